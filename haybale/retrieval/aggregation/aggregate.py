"""Hits of query paragraphs to scores of documents, many query documents at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import device_of, to_numpy
from haybale.errors import InputError
from haybale.machine import in_tiles
from haybale.retrieval.aggregation.block import Options
from haybale.retrieval.aggregation.products import Vectors
from haybale.retrieval.aggregation.task import Task, prepared
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.passages import PassageTable
from haybale.retrieval.run import DEPTH, Run
from haybale.vectors import array_namespace


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
    memory_budget: float | None = None,
) -> tuple[Any, Any, Any]:
    """Aggregate hits to documents: flat ``(query, document, score)``, by query and document, each pair once.

    Parameters
    ----------
    hits : (n_paragraphs, N), of NumPy or CuPy arrays; the work is done where they are, and the result is there.
    name : one of :data:`AGGREGATIONS`.
    doc_of : (n_passages,) the document of each passage, rising.
    offsets : (n_queries + 1,), query document j having the paragraphs ``offsets[j]:offsets[j + 1]``; default: every
        row a query.
    vectors : for the aggregations whose names begin with v; on the device of the hits, or in main memory, from where
        they are copied there. Passages may be float16, which are multiplied as they are. Sparse ones are in main
        memory only.
    weights : (n_paragraphs,), default 1. A paragraph of weight 2 counts as if it stood in its document twice, one of
        weight 0 as if it did not, what lies between accordingly; maxima and minima only ask whether it is 0.
    rrf_k : the constant of Cormack et al. 2009.
    n_hits : N, hits of a paragraph that are looked at and the N of VRanks; default: as many as there are.
    occurrences : ``"all"`` hits of a document in a list count, as in the authors' code, or its ``"best"`` in each.
    code_variant : read the lists as the authors' code does. RRF and VRRF give the first of L hits the rank 1001 - L,
        since the code takes every list to hold 1000; VRanks takes L for N; scores of vectors are cut to whole numbers.
        The same as the paper where all lists hold 1000 hits, but for the cutting.
    memory_budget : bytes beside the input and the result; default: 256 MiB, or on a device a quarter of what is free,
        at most 4 GiB. One query document is the least that is done at once. Where memory runs out nevertheless, half
        as many query documents are done at once.

    Raises :class:`UnknownNameError` for an unknown aggregation, :class:`InputError` for what does not fit together,
    :class:`DeviceError` for arrays on different devices, sparse vectors with hits on a device, or too little memory.

    >>> hits = Hits(np.array([[0, 2, 1], [2, 0, 1]]), np.array([[3, 2, 1], [9, 8, 7]], dtype=np.float32))
    >>> query, document, score = aggregate(hits, "rrf", np.array([0, 0, 1]), np.array([0, 2]))
    >>> document, score.round(4)
    (array([0, 1]), array([0.0643, 0.0325]))
    """
    xp = array_namespace(hits.passages)
    width = max(1, hits.passages.shape[1])
    with device_of(hits.passages).current():
        task = prepared(
            hits,
            name,
            doc_of,
            offsets,
            vectors=vectors,
            weights=weights,
            options=Options(width if n_hits is None else n_hits, rrf_k, occurrences, code_variant),
            memory_budget=memory_budget,
        )
        parts: list[tuple[Any, Any, Any]] = []
        if task is not None:
            for done in in_tiles(len(task), len(task), partial(_columns, task), what="query documents"):
                parts += done
        if not parts:
            return xp.empty(0, dtype=np.int64), xp.empty(0, dtype=np.int64), xp.empty(0)
        query, document, score = (xp.concatenate(column) for column in zip(*parts, strict=True))
        return query, document, score


def _columns(task: Task, queries: slice) -> list[tuple[Any, Any, Any]]:
    """``(query, document, score)`` of each block."""
    columns = []
    for first, block, scored in task.blocks(queries):
        cells, query, document = block.filled()
        columns.append((query + first, document, scored.score[cells]))
    return columns


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
    query, document, score = map(to_numpy, columns)
    return Run.from_numbers(query_ids, index.doc_ids, query, document, score, depth)
