"""An aggregation of some hits, checked and cut into blocks that fit the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, device_of, placed, to_numpy
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
from haybale.vectors import array_namespace

MEMORY = 2**28  # bytes, in main memory
_MOST = 2**32  # bytes on a device, where more work at once is no faster
_BLOCK = 2**22  # bytes of hits numbered at once in main memory: what a cache holds
_HIT = 64  # bytes that a hit takes while it is numbered, weighed and summed
_CELL = 24  # bytes that a cell, of a query and a document, takes: its score and what marks it


class ScoredBlock(NamedTuple):
    """A block of query documents, from ``first_query`` on, and its scores."""

    first_query: int
    block: Block
    scored: Scored


@dataclass(frozen=True)
class Task:
    """What is to be aggregated, on the device of the hits."""

    aggregation: Aggregation
    hits: Hits
    offsets: Ints  # (n_queries + 1,)
    weight: Array
    documents: Documents
    vectors: Vectors | None
    options: Options
    device: Device
    memory_budget: float

    def __len__(self) -> int:
        """Query documents."""
        return len(self.offsets) - 1

    def blocks(self, queries: slice) -> Iterator[ScoredBlock]:
        """The query documents ``queries``, block by block; those without a hit that counts are left out."""
        kind, budget = self.aggregation.vectors, self.memory_budget
        n_passages = self.documents.n_passages
        lengths = np.diff(self.offsets)[queries]
        width = self.hits.passages.shape[1]
        found = int(lengths.max(initial=0)) * width  # hits of a query, at most
        extreme = kind not in (None, "products")  # these hold a table of all passages
        # The tables of products: 4 bytes a product, 1 for whether it is wanted, of every query and every passage found.
        groups: Iterator[slice] = slices(0 * lengths, budget / 2)
        if kind == "products":
            most = _at_once(found, n_passages, budget / 2 / 5)
            groups = slices(np.maximum(5 * np.minimum(n_passages, lengths * width), budget / 2 / most), budget / 2)
        # An extreme is the faster the more queries share a passage that is in the cache.
        whole = extreme or not self.device.is_cpu
        for some in groups:
            first = queries.start + some.start
            group = self._group(slice(first, queries.start + some.stop))
            each = _HIT * lengths[some] * width + 8 * n_passages * extreme
            room = budget / 2 if whole else min(_BLOCK, budget / 2)
            most = _at_once(found, self.documents.n, budget / 4 / _CELL)
            for part in slices(np.maximum(each, room / most), room):
                done = self._block(group, first, part)
                if done is not None:
                    yield done

    def _block(self, group: QueryVectors | None, start: int, part: slice) -> ScoredBlock | None:
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

    def _group(self, queries: slice) -> QueryVectors | None:
        """What the queries of a group need of the vectors; rows of its tables are the queries of the group."""
        kind, vectors = self.aggregation.vectors, self.vectors
        if kind is None:
            return None
        assert vectors is not None
        xp = array_namespace(self.weight)
        some = slice(int(self.offsets[queries.start]), int(self.offsets[queries.stop]))
        own = self.offsets[queries.start : queries.stop + 1] - some.start
        n = len(own) - 1
        paragraphs, weight = vectors.paragraphs[some], self.weight[some]
        query = xp.asarray(np.repeat(np.arange(n), np.diff(own)))
        exact = on_grid(weight[:, None], query, n, xp.asarray(np.diff(own)))[:, 0]
        total = xp.bincount(query, weights=exact, minlength=n)
        if kind != "products":
            return QueryVectors(vectors.passages, None, extremes(paragraphs, weight, own, kind), total, query)
        multiplied = products(vectors.passages, summed(paragraphs, weight, own), self.hits.passages[some], query)
        return QueryVectors(vectors.passages, multiplied, None, total, query)


def prepared(
    hits: Hits,
    name: str,
    doc_of: Ints,
    offsets: Ints | None,
    *,
    vectors: Vectors | None,
    weights: Sequence[float] | NDArray[Any] | None,
    options: Options,
    memory_budget: float | None = None,
) -> Task | None:
    """The task that the parameters of :func:`aggregate` set; None where nothing can be found.

    What is in main memory and needed on the device of the hits is copied there.
    """
    aggregation = find_aggregation(name)
    device = device_of(hits.passages)
    hits = Hits(hits.passages, placed(hits.scores, device, "scores of hits")).top(options.n_hits)
    rows, width = hits.passages.shape
    offsets = checked_offsets(offsets, rows)
    weight = checked_weights(weights, rows)
    doc_of = to_numpy(doc_of)
    largest = int(hits.passages.max()) if rows and width else -1
    if largest >= len(doc_of):
        raise InputError(f"hits name passage {largest}, expected numbers below {len(doc_of)}")
    if aggregation.vectors is not None:
        vectors = checked_vectors(vectors, name, len(doc_of), rows, device)
    if not len(doc_of) or not width:
        return None
    if memory_budget is None:
        memory_budget = MEMORY if device.is_cpu else min(_MOST, device.half_of_memory() / 2)
    xp = array_namespace(hits.passages)
    documents = Documents.of(doc_of, xp)
    return Task(aggregation, hits, offsets, xp.asarray(weight), documents, vectors, options, device, memory_budget)


def _of_block(group: QueryVectors, part: slice, block: Block) -> QueryVectors:
    return QueryVectors(
        group.passages,
        group.products,
        None if group.extremes is None else group.extremes[part],
        group.total_weight[part],
        block.query + part.start,
    )


def _at_once(found: int, n: int, cells: float) -> float:
    """How many queries share a table, of each with each of the n that any of them found, of so many cells.

    ``found``: how many of the n a query finds, at most.

    >>> _at_once(10, 1000, 4000.0), _at_once(10, 100, 4000.0), _at_once(10, 100, 1.0)
    (20.0, 40.0, 1.0)
    """
    return float(max(1, cells / max(1, n), (cells / max(1, found)) ** 0.5))


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
