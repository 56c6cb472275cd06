"""Hits of query paragraphs to scores of documents: checked, and cut into blocks that fit the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, device_of, is_sparse, placed, to_numpy
from haybale.errors import InputError, UnknownNameError
from haybale.machine import in_tiles
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.parm.formulas import (
    AGGREGATIONS,
    Aggregation,
    Block,
    Options,
    Scored,
    Vectors,
    block_of,
    products_of,
)
from haybale.retrieval.parm.kernels import Array
from haybale.retrieval.passages import PassageTable
from haybale.retrieval.run import DEPTH, Run
from haybale.vectors import array_namespace, check_like

_MEMORY = 2**28  # bytes, in main memory
_MOST = 2**32  # bytes on a device, where more work at once is no faster
_BLOCK = 2**22  # bytes of hits numbered at once where only they count: what a cache holds
_HIT = 64  # bytes that a hit takes while it is numbered, weighed and summed
_CELL = 24  # bytes that a cell, of a query and a document, takes: its score and what marks it
_PRODUCT = 5  # bytes of a table of products: a product, and whether it is wanted


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
    memory_budget: float | None = None,
) -> tuple[Any, Any, Any]:
    """Aggregate hits to documents.

    Parameters
    ----------
    hits : Hits
        (n_paragraphs, N), of NumPy or CuPy arrays; the work is done where they are.
    name : str
        One of :data:`AGGREGATIONS`.
    doc_of : (n_passages,) array of int
        The document of each passage, rising.
    offsets : (n_queries + 1,) array of int, optional
        Query document j has the paragraphs ``offsets[j]:offsets[j + 1]``; default: every row a query.
    vectors : Vectors, optional
        For the aggregations whose names begin with v; copied to the device of the hits. Sparse ones: CPU only.
    weights : (n_paragraphs,) sequence of float, optional
        Default 1. A paragraph of weight 2 counts as if it stood in its document twice, one of weight 0 as if it did
        not; maxima and minima only ask whether it is 0.
    rrf_k : float, default 60
        The constant of Cormack et al. 2009.
    n_hits : int, optional
        N, hits of a paragraph that are looked at and the N of VRanks; default: as many as there are.
    occurrences : {"all", "best"}, default "all"
        All hits of a document in a list count, as in the authors' code, or its best in each.
    memory_budget : float, optional
        Bytes beside the input and the result; default: 256 MiB, or on a device a quarter of what is free, at most
        4 GiB. Where memory runs out nevertheless, half as many query documents are done at once, at least one.

    Returns
    -------
    (query, document, score)
        Flat, by query and document, each pair once; on the device of the hits, but for sparse vectors, whose
        aggregation is done in main memory.

    Raises
    ------
    UnknownNameError, InputError
        For an unknown aggregation, and for what does not fit together.
    DeviceError
        For arrays on different devices, or too little memory.

    Examples
    --------
    >>> hits = Hits(np.array([[0, 2, 1], [2, 0, 1]]), np.array([[3, 2, 1], [9, 8, 7]], dtype=np.float32))
    >>> query, document, score = aggregate(hits, "rrf", np.array([0, 0, 1]), np.array([0, 2]))
    >>> document, score.round(4)
    (array([0, 1]), array([0.0643, 0.0325]))
    """
    width = max(1, hits.passages.shape[1])
    options = Options(width if n_hits is None else n_hits, rrf_k, occurrences)
    if vectors is not None and is_sparse(vectors.passages):
        hits, vectors = hits.to_numpy(), Vectors(to_numpy(vectors.passages), to_numpy(vectors.paragraphs))
    with device_of(hits.passages).current():
        task = Task(hits, name, doc_of, offsets, vectors, weights, options, memory_budget)
        parts = [part for done in in_tiles(len(task), len(task), task.columns, what="query documents") for part in done]
        if not parts:
            xp = array_namespace(hits.passages)
            return xp.empty(0, dtype=np.int64), xp.empty(0, dtype=np.int64), xp.empty(0)
        query, document, score = (task.xp.concatenate(column) for column in zip(*parts, strict=True))
        return query, document, score


def rank_documents(
    index: PassageTable,
    hits: Hits,
    query_ids: Sequence[str],
    aggregation: str = "maxp",
    offsets: Ints | None = None,
    *,
    k: int = DEPTH,
    **options: Any,
) -> Run:
    """The run that an aggregation makes of hits.

    Parameters
    ----------
    index : PassageTable
        Any index, for the documents of its passages and their ids.
    hits : Hits (n_paragraphs, N)
    query_ids : (n_queries,) str
    aggregation : str, default "maxp"
        One of :data:`AGGREGATIONS`.
    offsets : (n_queries + 1,) int, optional
        Where the rows of each query begin; None: every row is a query.
    k : int, default 1000
        Documents of a query that stay.
    **options : optional
        As in :func:`aggregate`.

    Examples
    --------
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
    query, document, score = map(to_numpy, columns)
    return Run.from_numbers(query_ids, index.doc_ids, query, document, score, k)


def find_aggregation(name: str) -> Aggregation:
    """The aggregation of that name."""
    if name not in AGGREGATIONS:
        raise UnknownNameError("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]


class Task:
    """An aggregation of some hits, checked, on their device; what is in main memory and needed there is copied."""

    def __init__(
        self,
        hits: Hits,
        name: str,
        doc_of: Ints,
        offsets: Ints | None,
        vectors: Vectors | None,
        weights: Sequence[float] | NDArray[Any] | None,
        options: Options,
        memory_budget: float | None = None,
    ) -> None:
        self.aggregation, self.options = find_aggregation(name), options
        device = device_of(hits.passages)
        self.hits = Hits(hits.passages, placed(hits.scores, device, "scores of hits")).top(options.n_hits)
        self.xp = array_namespace(hits.passages)
        doc_of, rows = to_numpy(doc_of), len(hits)
        largest = int(self.hits.passages.max()) if self.hits.passages.size else -1
        if largest >= len(doc_of):
            raise InputError(f"hits name passage {largest}, expected numbers below {len(doc_of)}")
        self.offsets = _checked_offsets(offsets, rows)
        self.weight = self.xp.asarray(_checked_weights(weights, rows))
        self.doc_of, self.n_documents = self.xp.asarray(doc_of), int(doc_of[-1]) + 1 if len(doc_of) else 0
        self.vectors = None
        if self.aggregation.vectors is not None:
            self.vectors = _checked_vectors(vectors, name, len(doc_of), rows, device)
        if memory_budget is None:
            memory_budget = _MEMORY if device.is_cpu else min(_MOST, device.half_of_memory() / 2)
        self.memory_budget = float(memory_budget)

    def __len__(self) -> int:
        """Query documents."""
        return len(self.offsets) - 1

    def columns(self, queries: slice) -> list[tuple[Array, Array, Array]]:
        """``(query, document, score)`` of each block of some query documents."""
        columns = []
        for first, block, scored in self.blocks(queries):
            cells, query, document = block.filled()
            columns.append((query + first, document, scored.score[cells]))
        return columns

    def blocks(self, queries: slice) -> Iterator[tuple[int, Block, Scored]]:
        """The query documents ``queries`` by blocks: their first, the block and its scores.

        Those without a hit that counts are left out. In a block, queries share a table of cells with all documents that
        any of them found, and, for vectors, one with all passages: few queries may be in it where each finds others.
        """
        kind, budget, n_passages = self.aggregation.vectors, self.memory_budget, len(self.doc_of)
        lengths, width = np.diff(self.offsets)[queries], self.hits.passages.shape[1]
        if not n_passages or not width:
            return
        found = int(lengths.max(initial=0)) * width  # hits of a query, at most
        groups: Iterable[slice] = [slice(0, len(lengths))]
        if kind == "products":
            most = _at_once(found, n_passages, budget / 2 / _PRODUCT)
            sizes = np.maximum(_PRODUCT * np.minimum(n_passages, lengths * width), budget / 2 / most)
            groups = slices(sizes, budget / 2)
        most = _at_once(found, self.n_documents, budget / 4 / _CELL)
        if kind not in (None, "products"):  # a table of all passages; the faster the more queries share a passage
            most = min(most, max(1, budget / 4 / _CELL / n_passages))
        room = min(_BLOCK, budget / 2) if self.xp is np and kind in (None, "products") else budget / 2
        for group in groups:
            start, products = queries.start + group.start, None
            if kind == "products":
                rows, query = self._rows(start, queries.start + group.stop)
                assert self.vectors is not None
                products = products_of(
                    self.hits.passages[rows],
                    query,
                    self.weight[rows],
                    group.stop - group.start,
                    Vectors(self.vectors.passages, self.vectors.paragraphs[rows]),
                )
            for part in slices(np.maximum(_HIT * lengths[group] * width, room / most), room):
                first, last = start + part.start, start + part.stop
                rows, query = self._rows(first, last)
                if rows.start == rows.stop:
                    continue
                block = block_of(
                    Hits(self.hits.passages[rows], self.hits.scores[rows]),
                    query,
                    last - first,
                    self.weight[rows],
                    self.doc_of,
                    self.n_documents,
                    self.options,
                    None if self.vectors is None else Vectors(self.vectors.passages, self.vectors.paragraphs[rows]),
                    self.aggregation.only_first,
                    None if products is None else products._replace(first=part.start),
                )
                if block.used is None or bool(block.used.any()):
                    yield first, block, self.aggregation.score(block, self.aggregation.weigh(block))

    def _rows(self, first: int, last: int) -> tuple[slice, Array]:
        """The paragraphs of some query documents, and (r,) whose each is, from 0."""
        query = np.repeat(np.arange(last - first), np.diff(self.offsets[first : last + 1]))
        return slice(int(self.offsets[first]), int(self.offsets[last])), self.xp.asarray(query)


def _checked_offsets(offsets: Ints | None, rows: int) -> Ints:
    """(n_queries + 1,), rising from 0 to the number of rows."""
    if offsets is None:
        return np.arange(rows + 1)
    offsets = np.asarray(to_numpy(offsets), dtype=np.int64)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise InputError("offsets must rise from 0 to the number of paragraphs")
    if offsets[-1] != rows:
        raise InputError(f"offsets end at {offsets[-1]}, but there are hits of {rows} paragraphs")
    return offsets


def _checked_weights(weights: Sequence[float] | NDArray[Any] | None, rows: int) -> NDArray[np.float64]:
    """(rows,), finite and not negative; 1 by default."""
    if weights is None:
        return np.ones(rows)
    weight = np.asarray(to_numpy(weights), dtype=np.float64)
    if weight.shape != (rows,):
        raise InputError(f"expected {rows} weights, one a query paragraph, found shape {weight.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise InputError(f"weights must be finite and at least 0, found {weight[wrong[0]]} for paragraph {wrong[0]}")
    return weight


def _checked_vectors(vectors: Vectors | None, name: str, n: int, rows: int, device: Device) -> Vectors:
    """Vectors that fit the hits, on their device; the passages are taken as the index has checked them."""
    if vectors is None:
        without = ", ".join(known for known, made in AGGREGATIONS.items() if made.vectors is None)
        raise InputError(
            f"the aggregation {name!r} needs vectors of passages and paragraphs, which a lexical index lacks; "
            f"without them there are {without}"
        )
    passages, paragraphs = (
        matrix if is_sparse(matrix) else placed(matrix, device, what)
        for matrix, what in ((vectors.passages, "passage vectors"), (vectors.paragraphs, "paragraph vectors"))
    )
    paragraphs = check_like(paragraphs, "paragraph vectors", passages)
    if paragraphs.shape[0] != rows:
        raise InputError(f"{paragraphs.shape[0]} paragraph vectors for {rows} paragraphs")
    if passages.shape[0] != n:
        raise InputError(f"{passages.shape[0]} passage vectors for {n} passages")
    return Vectors(passages, paragraphs)


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
