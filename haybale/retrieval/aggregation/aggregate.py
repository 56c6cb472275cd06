"""Hits of query paragraphs to scores of documents, many query documents at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.aggregation.block import Array, Block, Documents, Options, block_of
from haybale.retrieval.aggregation.elementwise import extremes
from haybale.retrieval.aggregation.products import Vectors, products, summed
from haybale.retrieval.aggregation.registry import AGGREGATIONS, Aggregation
from haybale.retrieval.aggregation.score import QueryVectors, Scored
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.passages import PassageTable
from haybale.retrieval.run import DEPTH, Run
from haybale.vectors import array_namespace

MEMORY = 2**28  # bytes
_BLOCK = 2**24  # bytes of hits numbered at once: what a cache holds
_HIT = 64  # bytes that a hit takes while it is numbered, weighed and summed


def aggregate(
    hits: Hits,
    name: str,
    doc_of: Ints,
    offsets: Ints | None = None,
    *,
    vectors: Vectors | None = None,
    weights: Sequence[float] | NDArray[Any] | None = None,
    rrf_k: float = 60,
    n_hits: int | None = None,
    occurrences: str = "all",
    code_variant: bool = False,
    memory_budget: float = MEMORY,
) -> tuple[Any, Any, Any]:
    """Aggregate hits to documents: flat ``(query, document, score)``, by query and document, each pair once.

    Parameters
    ----------
    hits : (n_paragraphs, N), of NumPy or CuPy arrays; the result is of the same library.
    name : one of :data:`AGGREGATIONS`.
    doc_of : (n_passages,) the document of each passage, rising.
    offsets : (n_queries + 1,), query document j having the paragraphs ``offsets[j]:offsets[j + 1]``; default: every
        row a query.
    vectors : for the aggregations whose names begin with v.
    weights : (n_paragraphs,), default 1. A paragraph of weight 2 counts as if it stood in its document twice, one of
        weight 0 as if it did not, what lies between accordingly; maxima and minima only ask whether it is 0.
    rrf_k : the constant of Cormack et al. 2009.
    n_hits : N, hits of a paragraph that are looked at and the N of VRanks; default: as many as there are.
    occurrences : ``"all"`` hits of a document in a list count, as in the authors' code, or its ``"best"`` in each.
    code_variant : read the lists as the authors' code does. RRF and VRRF give the first of L hits the rank 1001 - L,
        since the code takes every list to hold 1000; VRanks takes L for N; scores of vectors are cut to whole numbers.
        The same as the paper where all lists hold 1000 hits, but for the cutting.
    memory_budget : bytes beside the input and the result; one query document is the least that is done at once.

    Raises :class:`UnknownNameError` for an unknown aggregation, :class:`InputError` for what does not fit together.

    >>> hits = Hits(np.array([[0, 2, 1], [2, 0, 1]]), np.array([[3, 2, 1], [9, 8, 7]], dtype=np.float32))
    >>> query, document, score = aggregate(hits, "rrf", np.array([0, 0, 1]), np.array([0, 2]))
    >>> document, score.round(4)
    (array([0, 1]), array([0.0643, 0.0325]))
    """
    xp = array_namespace(hits.passages)
    parts = []
    for done in scored_blocks(
        hits,
        name,
        doc_of,
        offsets,
        vectors=vectors,
        weights=weights,
        options=Options(n_hits or hits.passages.shape[1], rrf_k, occurrences, code_variant),
        memory_budget=memory_budget,
    ):
        cells, query, document = done.block.filled()
        parts.append((query + done.first_query, document, done.scored.score[cells]))
    if not parts:
        return xp.empty(0, dtype=np.int64), xp.empty(0, dtype=np.int64), xp.empty(0)
    query, document, score = (xp.concatenate(column) for column in zip(*parts, strict=True))
    return query, document, score


class ScoredBlock(NamedTuple):
    """A block of query documents, from ``first_query`` on, and its scores."""

    first_query: int
    block: Block
    scored: Scored


def scored_blocks(
    hits: Hits,
    name: str,
    doc_of: Ints,
    offsets: Ints | None,
    *,
    vectors: Vectors | None,
    weights: Sequence[float] | NDArray[Any] | None,
    options: Options,
    memory_budget: float = MEMORY,
) -> Iterator[ScoredBlock]:
    """What :func:`aggregate` does, block by block, with the shares of the hits. Checks first, then yields."""
    aggregation = find_aggregation(name)
    xp = array_namespace(hits.passages)
    hits = hits.top(options.n_hits)
    rows, width = hits.passages.shape
    offsets = _checked_offsets(offsets, rows)
    weight = xp.asarray(_checked_weights(weights, rows))
    doc_of = np.asarray(doc_of)
    if rows and width and int(hits.passages.max()) >= len(doc_of):
        raise InputError(f"hits name passage {int(hits.passages.max())}, expected numbers below {len(doc_of)}")
    if aggregation.vectors is not None:
        vectors = _checked_vectors(vectors, name, len(doc_of), rows)
    if not len(doc_of) or not width:
        return
    documents = Documents.of(doc_of, xp)
    lengths = np.diff(offsets)
    held = np.minimum(documents.n_passages, lengths * width) if aggregation.vectors == "products" else 0 * lengths
    for queries in _slices(8 * held, memory_budget / 2):
        group = _group(aggregation, vectors, offsets, queries, hits, weight)
        extreme = aggregation.vectors not in (None, "products")  # these hold a table of all passages
        each = _HIT * lengths[queries] * width + 8 * documents.n_passages * extreme
        for part in _slices(each, min(_BLOCK, memory_budget / 2)):
            first, last = queries.start + part.start, queries.start + part.stop
            some = slice(int(offsets[first]), int(offsets[last]))
            if some.start == some.stop:
                continue
            query = xp.asarray(np.repeat(np.arange(last - first), lengths[first:last]))
            block = block_of(
                hits.passages[some],
                hits.scores[some],
                query,
                last - first,
                weight[some],
                documents,
                options,
                only_first=aggregation.only_first,
            )
            if not bool(block.used.any()):
                continue
            known = None if group is None else _of_block(group, part, block)
            scored = aggregation.score(block, aggregation.weigh(block), known)
            if options.code_variant and aggregation.vectors is not None:
                scored = scored._replace(score=xp.trunc(scored.score))
            yield ScoredBlock(first, block, scored)


def rank_documents(
    index: PassageTable,
    hits: Hits,
    query_ids: Sequence[str],
    aggregation: str = "maxp",
    offsets: Ints | None = None,
    *,
    depth: int = DEPTH,
    **options: Any,
) -> Run:
    """The run that an aggregation makes of hits; ``options`` as in :func:`aggregate`, ids from the index.

    >>> index = PassageTable(3, np.array([0, 2, 3]), doc_ids=["a", "b"])
    >>> hits = Hits(np.array([[2, 0, 1]]), np.array([[3, 2, 1]], dtype=np.float32))
    >>> rank_documents(index, hits, ["q"])["q"]
    [('b', 3.0), ('a', 2.0)]
    """
    if offsets is None and len(query_ids) != len(hits):
        raise InputError(
            f"{len(query_ids)} query ids for hits of {len(hits)} queries; several rows a query need offsets"
        )
    columns = aggregate(hits, aggregation, index.doc_of, offsets, **options)
    query, document, score = (column if isinstance(column, np.ndarray) else column.get() for column in columns)
    return Run.from_numbers(query_ids, index.doc_ids, query, document, score, depth)


def find_aggregation(name: str) -> Aggregation:
    """The aggregation of that name."""
    if name not in AGGREGATIONS:
        raise UnknownNameError("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]


def _group(
    aggregation: Aggregation, vectors: Vectors | None, offsets: Ints, queries: slice, hits: Hits, weight: Array
) -> QueryVectors | None:
    """What the queries of a group need of the vectors; rows of its tables are the queries of the group."""
    if aggregation.vectors is None:
        return None
    assert vectors is not None
    xp = array_namespace(weight)
    some = slice(int(offsets[queries.start]), int(offsets[queries.stop]))
    own = offsets[queries.start : queries.stop + 1] - offsets[queries.start]
    paragraphs, weight = vectors.paragraphs[some], weight[some]
    query = xp.asarray(np.repeat(np.arange(len(own) - 1), np.diff(own)))
    total = xp.bincount(query, weights=weight, minlength=len(own) - 1)
    if aggregation.vectors != "products":
        return QueryVectors(
            vectors.passages, None, extremes(paragraphs, weight, own, aggregation.vectors), total, query
        )
    passages = hits.passages[some]
    mark = xp.zeros(int(vectors.passages.shape[0]) + 1, dtype=bool)
    mark[passages] = True  # padding, -1, marks the place behind the last
    retrieved = xp.flatnonzero(mark[:-1])
    return QueryVectors(
        vectors.passages,
        products(vectors.passages, summed(paragraphs, weight, own), retrieved, passages.size),
        None,
        total,
        query,
    )


def _of_block(group: QueryVectors, part: slice, block: Block) -> QueryVectors:
    return QueryVectors(
        group.passages,
        group.products,
        None if group.extremes is None else group.extremes[part],
        group.total_weight[part],
        block.query + part.start,
    )


def _slices(costs: NDArray[Any], budget: float) -> Iterator[slice]:
    """Consecutive items whose costs together stay within the budget; at least one at once."""
    start, spent = 0, 0.0
    for number, cost in enumerate(costs.tolist()):
        if number > start and spent + cost > budget:
            yield slice(start, number)
            start, spent = number, 0.0
        spent += cost
    if len(costs):
        yield slice(start, len(costs))


def _checked_offsets(offsets: Ints | None, rows: int) -> Ints:
    if offsets is None:
        return np.arange(rows + 1)
    offsets = np.asarray(offsets, dtype=np.int64)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise InputError("offsets must rise from 0 to the number of paragraphs")
    if offsets[-1] != rows:
        raise InputError(f"offsets end at {offsets[-1]}, but there are hits of {rows} paragraphs")
    return offsets


def _checked_weights(weights: Sequence[float] | NDArray[Any] | None, rows: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(rows)
    weight = np.asarray(weights, dtype=np.float64)
    if weight.shape != (rows,):
        raise InputError(f"expected {rows} weights, one a query paragraph, found shape {weight.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise InputError(f"weights must be finite and at least 0, found {weight[wrong[0]]} for paragraph {wrong[0]}")
    return weight


def _checked_vectors(vectors: Vectors | None, name: str, n_passages: int, rows: int) -> Vectors:
    if vectors is None:
        without = ", ".join(known for known, made in AGGREGATIONS.items() if made.vectors is None)
        raise InputError(
            f"the aggregation {name!r} needs vectors of passages and paragraphs, which a lexical index lacks; "
            f"without them there are {without}"
        )
    return vectors.checked(n_passages, rows)
