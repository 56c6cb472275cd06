"""From passages to documents: MaxP, and PARM's RRF and VRRF.

A query document has one or several paragraphs, each with its own list of hits. Every hit of paragraph i on a
passage of document d is evidence for d; an aggregation turns the evidence into one score a document. All are
segment reductions over the flat hits of all queries at once, with no loop over hits.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.passages import PassageTable
from haybale.retrieval.run import DEPTH, Run
from haybale.sparse_products import paired_products
from haybale.vectors import Floats, Matrix, check_like, check_sparse

_GATHERED = 2**26  # values of passage vectors gathered at once in VRRF: 256 MiB


@dataclass(frozen=True)
class Evidence:
    """Flat hits, each (n_hits,): which query document, which document, and the hit itself."""

    query: Ints
    document: Ints
    passage: Ints
    rank: Ints  # of the passage in its paragraph's list, from 1
    score: Floats
    paragraph: Ints  # row of the hits


@dataclass(frozen=True)
class Vectors:
    """What the vector aggregations read: (n_passages, d), and the paragraphs' own (n_paragraphs, d); CSR if sparse."""

    passages: Matrix
    paragraphs: Matrix


Aggregation = Callable[[Evidence, "Vectors | None", float], NDArray[np.float64]]  # -> worth of each hit
Reduction = Callable[[NDArray[np.float64], Ints, int], NDArray[np.float64]]  # (worth, segment, n) -> (n,)


def aggregate(
    hits: Hits,
    name: str,
    doc_of: Ints,
    offsets: Ints | None = None,
    *,
    vectors: Vectors | None = None,
    rrf_k: float = 60,
) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Aggregate hits to documents: flat ``(query, document, score)``, each document once for a query.

    ``hits`` (n_paragraphs, N); ``doc_of`` (n_passages,); ``offsets`` (n_queries + 1,), query j being rows
    ``offsets[j]:offsets[j + 1]`` (default: every row a query); ``vectors`` for ``"vrrf"``; ``rrf_k``, the
    constant 60 of Cormack et al. 2009.

    >>> hits = Hits(np.array([[0, 2, 1], [2, 0, 1]]), np.array([[3, 2, 1], [9, 8, 7]], dtype=np.float32))
    >>> query, document, score = aggregate(hits, "rrf", np.array([0, 0, 1]), np.array([0, 2]))
    >>> document, score.round(4)
    (array([0, 1]), array([0.0643, 0.0325]))
    """
    if name not in AGGREGATIONS:
        raise UnknownNameError("aggregation", name, AGGREGATIONS)
    if offsets is None:
        offsets = np.arange(len(hits) + 1)
    if offsets[-1] != len(hits):
        raise InputError(f"offsets end at {offsets[-1]}, but there are hits of {len(hits)} paragraphs")
    worth_of, reduce = AGGREGATIONS[name]
    row, rank, passage, score = hits.flat()
    query = np.searchsorted(offsets, row, side="right") - 1
    evidence = Evidence(query, doc_of[passage], passage, rank, score, row)
    n_documents = int(doc_of.max()) + 1
    segments, segment = np.unique(evidence.query * n_documents + evidence.document, return_inverse=True)
    totals = reduce(worth_of(evidence, _summed(vectors, offsets), rrf_k), segment, len(segments))
    return segments // n_documents, segments % n_documents, totals


def rank_documents(
    index: PassageTable,
    hits: Hits,
    query_ids: Sequence[str],
    aggregation: str = "maxp",
    offsets: Ints | None = None,
    *,
    vectors: Vectors | None = None,
    rrf_k: float = 60,
    depth: int = DEPTH,
) -> Run:
    """The run that an aggregation makes of hits; parameters as in :func:`aggregate`, ids from the index.

    >>> index = PassageTable(3, np.array([0, 2, 3]), doc_ids=["a", "b"])
    >>> hits = Hits(np.array([[2, 0, 1]]), np.array([[3, 2, 1]], dtype=np.float32))
    >>> rank_documents(index, hits, ["q"])["q"]
    [('b', 3.0), ('a', 2.0)]
    """
    if offsets is None and len(query_ids) != len(hits):
        raise InputError(
            f"{len(query_ids)} query ids for hits of {len(hits)} queries; several rows a query need offsets"
        )
    query, document, score = aggregate(hits, aggregation, index.doc_of, offsets, vectors=vectors, rrf_k=rrf_k)
    return Run.from_numbers(query_ids, index.doc_ids, query, document, score, depth)


def _summed(vectors: Vectors | None, offsets: Ints) -> Vectors | None:
    """The same with each query's paragraphs summed: q̂ = Σ_i q_i, (n_queries, d)."""
    if vectors is None:
        return None
    paragraphs = check_like(vectors.paragraphs, "paragraph vectors", vectors.passages)
    n = int(paragraphs.shape[0])
    if n != offsets[-1]:
        raise InputError(f"{n} paragraph vectors for {offsets[-1]} paragraphs")
    if sparse.issparse(paragraphs):
        ones = np.ones(n, dtype=np.float32)
        return Vectors(
            vectors.passages, sparse.csr_matrix((ones, np.arange(n), offsets), shape=(len(offsets) - 1, n)) @ paragraphs
        )
    # A query without paragraphs has no hits either; reduceat would give it its neighbour's row.
    full = np.flatnonzero(np.diff(offsets) > 0)
    sums = np.zeros((len(offsets) - 1, paragraphs.shape[1]), dtype=np.float32)
    sums[full] = np.add.reduceat(paragraphs, offsets[full], axis=0)
    return Vectors(vectors.passages, sums)


def _maxp(evidence: Evidence, vectors: Vectors | None, rrf_k: float) -> NDArray[np.float64]:
    return evidence.score.astype(np.float64)


def _rrf(evidence: Evidence, vectors: Vectors | None, rrf_k: float) -> NDArray[np.float64]:
    return np.asarray(1 / (rrf_k + evidence.rank), dtype=np.float64)


def _vrrf(evidence: Evidence, vectors: Vectors | None, rrf_k: float) -> NDArray[np.float64]:
    """⟨q̂, Σ w p⟩ = Σ w ⟨q̂, p⟩: the sum over a document's hits needs no document vector."""
    if vectors is None:
        raise InputError("the aggregation 'vrrf' needs vectors; an index without them can use 'rrf' or 'maxp'")
    if sparse.issparse(vectors.passages):
        pairs = check_sparse(vectors.paragraphs, "paragraph sums"), check_sparse(vectors.passages, "passages")
        return _rrf(evidence, None, rrf_k) * paired_products(pairs[0], evidence.query, pairs[1], evidence.passage)
    similarity = np.empty(len(evidence.passage), dtype=np.float64)
    budget = _GATHERED // vectors.passages.shape[1]  # hits at once
    ends = np.append(np.flatnonzero(np.diff(evidence.query)) + 1, len(similarity))  # where a query's hits end
    start = 0
    while start < len(similarity):  # whole queries up to the budget, at least one
        ahead = ends[ends > start]
        part = slice(start, int(ahead[ahead <= start + budget].max(initial=ahead[0])))
        passages, column = np.unique(evidence.passage[part], return_inverse=True)
        queries, line = np.unique(evidence.query[part], return_inverse=True)
        products = vectors.paragraphs[queries] @ vectors.passages[passages].T  # (queries, passages)
        similarity[part] = products[line, column]
        start = part.stop
    return _rrf(evidence, None, rrf_k) * similarity


def _maximum(worth: NDArray[np.float64], segment: Ints, n: int) -> NDArray[np.float64]:
    best = np.full(n, -np.inf)
    np.maximum.at(best, segment, worth)
    return best


def _sum(worth: NDArray[np.float64], segment: Ints, n: int) -> NDArray[np.float64]:
    return np.asarray(np.bincount(segment, weights=worth, minlength=n), dtype=np.float64)


AGGREGATIONS: dict[str, tuple[Aggregation, Reduction]] = {
    "maxp": (_maxp, _maximum),
    "rrf": (_rrf, _sum),
    "vrrf": (_vrrf, _sum),
}
