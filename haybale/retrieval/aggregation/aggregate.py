"""Hits of query paragraphs to scores of documents, many query documents at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.retrieval.aggregation.block import Array, Block, Documents, Options, block_of
from haybale.retrieval.aggregation.checks import (
    checked_offsets,
    checked_vectors,
    checked_weights,
    find_aggregation,
)
from haybale.retrieval.aggregation.elementwise import extremes
from haybale.retrieval.aggregation.products import Vectors, products, summed
from haybale.retrieval.aggregation.reduce import on_grid
from haybale.retrieval.aggregation.registry import Aggregation
from haybale.retrieval.aggregation.score import QueryVectors, Scored
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.passages import PassageTable
from haybale.retrieval.run import DEPTH, Run
from haybale.vectors import array_namespace

MEMORY = 2**28  # bytes
_BLOCK = 2**22  # bytes of hits numbered at once: what a cache holds
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
    width = max(1, hits.passages.shape[1])
    parts = []
    for first, block, scored in scored_blocks(
        hits,
        name,
        doc_of,
        offsets,
        vectors=vectors,
        weights=weights,
        options=Options(width if n_hits is None else n_hits, rrf_k, occurrences, code_variant),
        memory_budget=memory_budget,
    ):
        cells, query, document = block.filled()
        parts.append((query + first, document, scored.score[cells]))
    if not parts:
        return xp.empty(0, dtype=np.int64), xp.empty(0, dtype=np.int64), xp.empty(0)
    query, document, score = (xp.concatenate(column) for column in zip(*parts, strict=True))
    return query, document, score


class ScoredBlock(NamedTuple):
    """A block of query documents, from ``first_query`` on, and its scores."""

    first_query: int
    block: Block
    scored: Scored


@dataclass(frozen=True)
class Task:
    """An aggregation of some hits, checked, on the device of the hits."""

    aggregation: Aggregation
    hits: Hits
    offsets: Ints
    weight: Array
    documents: Documents
    vectors: Vectors | None
    options: Options

    def block(self, group: QueryVectors | None, start: int, part: slice) -> ScoredBlock | None:
        """The queries ``part`` of a group that begins at query ``start``; None where no hit of theirs counts."""
        first, last = start + part.start, start + part.stop
        some = slice(int(self.offsets[first]), int(self.offsets[last]))
        if some.start == some.stop:
            return None
        xp = array_namespace(self.weight)
        block = block_of(
            self.hits.passages[some],
            self.hits.scores[some],
            xp.asarray(np.repeat(np.arange(last - first), np.diff(self.offsets[first : last + 1]))),
            last - first,
            self.weight[some],
            self.documents,
            self.options,
            only_first=self.aggregation.only_first,
        )
        if block.is_empty:
            return None
        known = None if group is None else _of_block(group, part, block)
        scored = self.aggregation.score(block, self.aggregation.weigh(block), known)
        if self.options.code_variant and group is not None:
            scored = scored._replace(score=xp.trunc(scored.score))
        return ScoredBlock(first, block, scored)


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
    """What :func:`aggregate` does, block by block, with the shares of the hits."""
    aggregation = find_aggregation(name)
    xp = array_namespace(hits.passages)
    hits = hits.top(options.n_hits)
    rows, width = hits.passages.shape
    offsets = checked_offsets(offsets, rows)
    weight = xp.asarray(checked_weights(weights, rows))
    doc_of = np.asarray(doc_of)
    if rows and width and int(hits.passages.max()) >= len(doc_of):
        raise InputError(f"hits name passage {int(hits.passages.max())}, expected numbers below {len(doc_of)}")
    if aggregation.vectors is not None:
        vectors = checked_vectors(vectors, name, len(doc_of), rows)
    if not len(doc_of) or not width:
        return
    task = Task(aggregation, hits, offsets, weight, Documents.of(doc_of, xp), vectors, options)
    lengths = np.diff(offsets)
    # A query's row in the tables of products: 4 bytes a product, 1 for whether it is wanted.
    held = np.minimum(len(doc_of), lengths * width) if aggregation.vectors == "products" else 0 * lengths
    extreme = aggregation.vectors not in (None, "products")  # these hold a table of all passages
    for queries in slices(5 * held, memory_budget / 2):
        group = _group(task, queries)
        each = _HIT * lengths[queries] * width + 8 * len(doc_of) * extreme
        # An extreme is the faster the more queries share a passage that is in the cache.
        for part in slices(each, memory_budget / 2 if extreme else min(_BLOCK, memory_budget / 2)):
            done = task.block(group, queries.start, part)
            if done is not None:
                yield done


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


def _group(task: Task, queries: slice) -> QueryVectors | None:
    """What the queries of a group need of the vectors; rows of its tables are the queries of the group."""
    kind, vectors = task.aggregation.vectors, task.vectors
    if kind is None:
        return None
    assert vectors is not None
    xp = array_namespace(task.weight)
    some = slice(int(task.offsets[queries.start]), int(task.offsets[queries.stop]))
    own = task.offsets[queries.start : queries.stop + 1] - some.start
    paragraphs, weight = vectors.paragraphs[some], task.weight[some]
    query = xp.asarray(np.repeat(np.arange(len(own) - 1), np.diff(own)))
    exact = on_grid(weight[:, None], query, len(own) - 1, xp.asarray(np.diff(own)))[:, 0]
    total = xp.bincount(query, weights=exact, minlength=len(own) - 1)
    if kind != "products":
        return QueryVectors(vectors.passages, None, extremes(paragraphs, weight, own, kind), total, query)
    multiplied = products(vectors.passages, summed(paragraphs, weight, own), task.hits.passages[some], query)
    return QueryVectors(vectors.passages, multiplied, None, total, query)


def _of_block(group: QueryVectors, part: slice, block: Block) -> QueryVectors:
    return QueryVectors(
        group.passages,
        group.products,
        None if group.extremes is None else group.extremes[part],
        group.total_weight[part],
        block.query + part.start,
    )


def slices(costs: NDArray[Any], budget: float) -> Iterator[slice]:
    """Consecutive items whose costs together stay within the budget; at least one at once."""
    start, spent = 0, 0.0
    for number, cost in enumerate(costs.tolist()):
        if number > start and spent + cost > budget:
            yield slice(start, number)
            start, spent = number, 0.0
        spent += cost
    if len(costs):
        yield slice(start, len(costs))
