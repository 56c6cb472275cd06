"""Aggregate the hits of query paragraphs to scores of documents, in blocks that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, device_of, is_sparse, placed, tell_once, to_device, to_numpy
from haybale.errors import InputError, UnknownNameError
from haybale.parallel import iter_blocks
from haybale.parameters import COUNT, NOT_NEGATIVE, check_parameters, one_of
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.parm.device_scores import DeviceScores, largest_passage, score_on_device
from haybale.retrieval.parm.formulas import (
    AGGREGATIONS,
    Aggregation,
    Scored,
    Task,
    Vectors,
    make_block,
    make_products,
    score_block,
)
from haybale.retrieval.passages import PassageTable, check_offsets
from haybale.retrieval.run import DEPTH, Run
from haybale.vectors import check_like

_MEMORY = 2**28  # bytes of intermediate arrays in main memory
_MAX_DEVICE_BYTES = 2**32  # of intermediate arrays on a device; more is not faster
_CACHED_BYTES = 2**22  # of hits in a block without vectors, which fit into a cache
_BYTES_PER_HIT = 64  # of intermediate arrays
_BYTES_PER_HIT_ON_DEVICE = 128
_BYTES_PER_CELL = 24  # of a cell, a pair of query and document
_BYTES_PER_PRODUCT = 5  # of a pair of query and passage: its inner product, and whether it is needed
CONSTRAINTS = {"n_hits": COUNT, "rrf_k": NOT_NEGATIVE, "occurrences": one_of(["all", "best"]), "k": COUNT}


def aggregate(
    hits: Hits,
    name: str,
    doc_of: Ints,
    offsets: Ints | None = None,
    *,
    vectors: Vectors | None = None,
    rrf_k: float = 60,
    n_hits: int | None = None,
    occurrences: str = "all",
) -> tuple[Any, Any, Any]:
    """Aggregate the hits of query paragraphs to scores of documents.

    Parameters
    ----------
    hits : Hits
        (n_paragraphs, N). The computation runs on the device of the hits.
    name : str
        One of :data:`AGGREGATIONS`.
    doc_of : (n_passages,) array of int
        The document of each passage, rising.
    offsets : (n_queries + 1,) array of int, optional
        Query document j has the paragraphs ``offsets[j]:offsets[j + 1]``. By default, every row is a query document.
    vectors : Vectors, optional
        Required by the aggregations whose names begin with v. They are copied to the device of the hits; with sparse
        vectors, the computation runs on the CPU.
    rrf_k : float, default 60
        The constant k of reciprocal ranks (Cormack et al. 2009). A larger value makes the first ranks count less.
    n_hits : int, optional
        The number of hits of a paragraph that count, and the N of VRanks. By default, all hits count.
    occurrences : {"all", "best"}, default "all"
        Whether all hits of a paragraph on a document count, as in the authors' code, or only the best one.

    Returns
    -------
    (query, document, score)
        Flat arrays, sorted by query and document, on the device of the computation.

    Raises
    ------
    UnknownNameError, InputError
        If the aggregation is unknown, or arguments do not fit together.
    DeviceError
        If arrays are on different devices, or memory does not suffice for one query document.

    Examples
    --------
    >>> hits = Hits(np.array([[0, 2, 1], [2, 0, 1]]), np.array([[3, 2, 1], [9, 8, 7]], dtype=np.float32))
    >>> query, document, score = aggregate(hits, "rrf", np.array([0, 0, 1]), np.array([0, 2]))
    >>> document, score.round(4)
    (array([0, 1]), array([0.0643, 0.0325]))
    """
    with device_of(hits.passages).current():
        task = make_task(hits, name, doc_of, offsets, vectors, rrf_k, n_hits, occurrences)
        n, xp = len(task.offsets) - 1, device_of(task.doc_of).xp

        def columns(queries: slice) -> list[tuple[Any, Any, Any]]:
            return [scores.columns() for scores in score_blocks(task, queries)]

        parts = [part for chunk in iter_blocks(n, n, columns, what="query documents") for part in chunk]
        if len(parts) == 1:
            return parts[0]
        none = xp.empty(0, dtype=np.int64), xp.empty(0, dtype=np.int64), xp.empty(0)
        query, document, score = (xp.concatenate(column) for column in zip(none, *parts, strict=True))
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
    """Aggregate hits to a run.

    Parameters
    ----------
    index : PassageTable
        The index that was searched, or another one of the same passages.
    hits, aggregation, offsets
        As in :func:`aggregate`; the default aggregation is ``"maxp"``.
    query_ids : (n_queries,) str
    k : int, default 1000
        Number of documents kept for each query.
    **options
        Other parameters of :func:`aggregate`.

    Examples
    --------
    >>> index = PassageTable(3, np.array([0, 2, 3]), doc_ids=["a", "b"])
    >>> hits = Hits(np.array([[2, 0, 1]]), np.array([[3, 2, 1]], dtype=np.float32))
    >>> rank_documents(index, hits, ["q"])["q"]
    [('b', 3.0), ('a', 2.0)]
    """
    check_parameters("rank_documents", {"k": k}, CONSTRAINTS)
    if offsets is None and len(query_ids) != len(hits):
        raise InputError(f"without offsets, hits must have a row per query id, {len(query_ids)}, found {len(hits)}")
    columns = aggregate(hits, aggregation, index.doc_of, offsets, **options)
    query, document, score = map(to_numpy, columns)
    return Run.from_numbers(query_ids, index.doc_ids, query, document, score, k)


def find_aggregation(name: str) -> Aggregation:
    """Return the aggregation of that name; raise UnknownNameError if there is none."""
    if name not in AGGREGATIONS:
        raise UnknownNameError("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]


def make_task(
    hits: Hits,
    name: str,
    doc_of: Ints,
    offsets: Ints | None,
    vectors: Vectors | None,
    rrf_k: float = 60,
    n_hits: int | None = None,
    occurrences: str = "all",
) -> Task:
    """Check the arguments of :func:`aggregate`, and copy arrays to the device of the hits.

    Sparse vectors stay on the CPU, and the hits are copied there.
    """
    if vectors is not None and is_sparse(vectors.passages):
        if not device_of(hits.passages).is_cpu:
            tell_once("hits of sparse vectors are aggregated on the CPU, where the vectors are")
        hits, vectors = hits.to_numpy(), Vectors(*map(to_numpy, vectors))
    n_hits = max(1, hits.passages.shape[1]) if n_hits is None else n_hits
    check_parameters("aggregate", {"rrf_k": rrf_k, "n_hits": n_hits, "occurrences": occurrences}, CONSTRAINTS)
    aggregation, device = find_aggregation(name), device_of(hits.passages)
    hits = Hits(hits.passages, placed(hits.scores, device, "scores of hits")).top(n_hits)
    doc_of, rows = to_numpy(doc_of), len(hits)
    largest = int(hits.passages.max(initial=-1)) if device.is_cpu else largest_passage(hits.passages)
    if largest >= len(doc_of):
        raise InputError(f"hits: expected passage numbers below {len(doc_of)}, found {largest}")
    offsets = np.arange(rows + 1) if offsets is None else check_offsets(offsets, rows, "offsets", "paragraphs")
    vectors = None if aggregation.vectors is None else _checked_vectors(vectors, name, len(doc_of), rows, device)
    n_documents = int(doc_of[-1]) + 1 if len(doc_of) else 0
    return Task(aggregation, hits, offsets, to_device(doc_of, device), n_documents, vectors, n_hits, rrf_k, occurrences)


def _checked_vectors(vectors: Vectors | None, name: str, n: int, rows: int, device: Device) -> Vectors:
    """Check that vectors fit the hits, and copy them to their device. The index has checked the passages' values."""
    if vectors is None:
        without = ", ".join(other for other, aggregation in AGGREGATIONS.items() if aggregation.vectors is None)
        raise InputError(
            f"the aggregation {name!r} needs 'vectors' of passages and paragraphs, which a lexical index lacks; "
            f"without vectors, use {without}"
        )
    passages, paragraphs = (
        matrix if is_sparse(matrix) else placed(matrix, device, what)
        for matrix, what in zip(vectors, ("passage vectors", "paragraph vectors"), strict=True)
    )
    paragraphs = check_like(paragraphs, "paragraph vectors", passages)
    if paragraphs.shape[0] != rows:
        raise InputError(f"vectors: expected {rows} paragraph vectors, as hits has rows, found {paragraphs.shape[0]}")
    if passages.shape[0] != n:
        raise InputError(f"vectors: expected {n} passage vectors, as doc_of has entries, found {passages.shape[0]}")
    return Vectors(passages, paragraphs)


def score_blocks(task: Task, queries: slice) -> Iterator[Scored | DeviceScores]:
    """Score query documents in blocks that fit into memory."""
    if not len(task.doc_of) or not task.hits.passages.shape[1]:
        return
    device, lengths = device_of(task.doc_of), np.diff(task.offsets)[queries]
    if device.is_cpu:
        yield from _blocks_on_cpu(task, queries, lengths)
        return
    budget = min(_MAX_DEVICE_BYTES, device.half_of_memory() / 2)
    for part in slices(_BYTES_PER_HIT_ON_DEVICE * lengths * task.hits.passages.shape[1], budget):
        first, last = queries.start + part.start, queries.start + part.stop
        if task.offsets[first] < task.offsets[last]:
            yield score_on_device(task, first, last)


def _blocks_on_cpu(task: Task, queries: slice, lengths: Ints) -> Iterator[Scored]:
    """Score query documents, whose numbers of paragraphs are ``lengths``, in blocks that fit into main memory.

    A block has a cell for each of its queries with each document that any of them retrieved and, for vectors, a table
    of its queries and passages. So a block has few queries if they retrieve different documents.
    """
    kind, n_passages, budget, width = task.aggregation.vectors, len(task.doc_of), _MEMORY, task.hits.passages.shape[1]
    max_hits = int(lengths.max(initial=0)) * width  # of a query
    groups = [slice(0, len(lengths))]
    if kind == "products":
        max_queries = _queries_per_table(max_hits, n_passages, budget / 2 / _BYTES_PER_PRODUCT)
        sizes = np.maximum(_BYTES_PER_PRODUCT * np.minimum(n_passages, lengths * width), budget / 2 / max_queries)
        groups = list(slices(sizes, budget / 2))
    max_queries, block_budget = _queries_per_table(max_hits, task.n_documents, budget / 4 / _BYTES_PER_CELL), budget / 2
    if kind not in (None, "products"):  # the kernel has a table of all passages, and is faster with many queries
        max_queries = min(max_queries, max(1, budget / 4 / _BYTES_PER_CELL / n_passages))
    else:
        block_budget = min(_CACHED_BYTES, block_budget)
    for group in groups:
        start, stop = queries.start + group.start, queries.start + group.stop
        products = make_products(task, start, stop) if kind == "products" else None
        for part in slices(
            np.maximum(_BYTES_PER_HIT * lengths[group] * width, block_budget / max_queries), block_budget
        ):
            first, last = start + part.start, start + part.stop
            if task.offsets[first] < task.offsets[last]:
                yield score_block(make_block(task, first, last, products))


def _queries_per_table(max_hits: int, n: int, cells: float) -> float:
    """Return how many queries fit into a table of ``cells`` with a column for each of n items that any query retrieves.

    ``max_hits`` is the maximum number of items that one query retrieves.

    >>> _queries_per_table(10, 1000, 4000.0), _queries_per_table(10, 100, 4000.0), _queries_per_table(10, 100, 1.0)
    (20.0, 40.0, 1.0)
    """
    return float(max(1, cells / max(1, n), (cells / max(1, max_hits)) ** 0.5))


def slices(costs: NDArray[Any], budget: float) -> Iterator[slice]:
    """Yield slices of at least one consecutive item each, whose total costs stay within the budget."""
    start, spent = 0, 0.0
    for number, cost in enumerate(costs.tolist()):
        if number > start and spent + cost > budget:
            yield slice(start, number)
            start, spent = number, 0.0
        spent += cost
    if len(costs):
        yield slice(start, len(costs))
