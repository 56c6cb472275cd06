"""What runs say of the documents they rank, as numbers: the pool of each query and the features of its documents.

Runs are compared by what does not depend on the scale of their scores: the place between the lowest and the best
score of the query, and the rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.collections.collection import Strings
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

RUN_FEATURES = ("level", "rank", "first")
MEMORY_FEATURES = (*RUN_FEATURES, "score")


@dataclass(frozen=True)
class Listing:
    """The first documents of one run, queries in the pool's order, best first; each (k,)."""

    place: Ints  # row of the pool
    query: Ints  # rising
    score: NDArray[np.float64]

    def features(self, memory: bool) -> Floats:
        """(3, k) ``level``, ``rank`` and ``first``, and for a memory, (4, k), ``score``."""
        starts = np.flatnonzero(np.diff(self.query, prepend=-1))
        counts = np.diff(np.append(starts, len(self.query)))
        rank = np.arange(len(self.query)) - np.repeat(starts, counts) + 1
        best, lowest = self.score[starts], self.score[starts + counts - 1]
        span = np.repeat(best - lowest, counts)
        above = self.score - np.repeat(lowest, counts)
        level = np.divide(above, span, out=np.ones_like(above), where=span > 0)
        columns = [level, 61 / (60 + rank), 1 / rank, *([self.score] if memory else [])]
        return np.asarray(columns, dtype=np.float32)


@dataclass(frozen=True)
class Pool:
    """The documents of some runs, query by query: rows sorted by query, then by document number."""

    query_ids: Sequence[str]
    doc_ids: Strings  # by document number, one chunk
    query: Ints  # (n,) rising
    document: Ints  # (n,)
    listings: dict[str, Listing]  # by run, sorted by name

    def features(self, memories: frozenset[str]) -> Floats:
        """(f, n) the features of :func:`feature_list`; 0 for documents that a run does not have."""
        names = feature_list(self.listings, memories)
        table = np.zeros((len(names), len(self.query)), dtype=np.float32)
        row = 0
        for name, listing in self.listings.items():
            values = listing.features(name in memories)
            table[row : row + len(values), listing.place] = values
            row += len(values)
        return table

    def row_of(self, doc_id: str) -> int | None:
        """The row of a document in a pool of one query."""
        number = pc.index(self.doc_ids, doc_id).as_py()
        rows = np.flatnonzero(self.document == number)
        return int(rows[0]) if len(rows) else None

    def relevant(self, relevant: Mapping[str, Sequence[str]]) -> NDArray[np.bool_]:
        """(n,) whether the document is among the query's relevant ones."""
        pairs = [(row, document) for row, query in enumerate(self.query_ids) for document in relevant.get(query, ())]
        ids = pa.array([document for _, document in pairs], type=pa.large_string())
        numbers = pc.fill_null(pc.index_in(ids, value_set=self.doc_ids.chunk(0)), -1).to_numpy(zero_copy_only=False)
        rows = np.array([row for row, _ in pairs], dtype=np.int64)
        n = max(1, len(self.doc_ids))
        keys = (rows * n + numbers)[numbers >= 0]
        return np.isin(self.query * n + self.document, keys)


def feature_list(runs: Mapping[str, Any], memories: frozenset[str]) -> list[tuple[str, str]]:
    """``(run, feature)`` of the rows of :meth:`Pool.features`.

    >>> feature_list({"bm25": None}, frozenset())
    [('bm25', 'level'), ('bm25', 'rank'), ('bm25', 'first')]
    """
    return [(name, kind) for name in runs for kind in (MEMORY_FEATURES if name in memories else RUN_FEATURES)]


def pooled(runs: Mapping[str, Run], query_ids: Sequence[str], depth: int) -> Pool:
    """The union of the first ``depth`` documents of every run, for these of its queries.

    Nothing depends on the order of the runs: they are taken by name.
    """
    position = {query: row for row, query in enumerate(query_ids)}
    parts = {name: _part(runs[name], position, depth) for name in sorted(runs)}
    chunks = [chunk for _, ids, _ in parts.values() for chunk in ids.cast(pa.large_string()).chunks]
    encoded = pa.concat_arrays([pa.array([], type=pa.large_string()), *chunks]).dictionary_encode()
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    n = max(1, len(encoded.dictionary))
    keys = np.concatenate([rows for rows, _, _ in parts.values()]) * n + numbers
    pool = np.unique(keys)
    ends = np.cumsum([len(rows) for rows, _, _ in parts.values()])
    listings = {
        name: Listing(np.searchsorted(pool, keys[end - len(rows) : end]), rows, scores)
        for (name, (rows, _, scores)), end in zip(parts.items(), ends, strict=True)
    }
    return Pool(query_ids, pa.chunked_array([encoded.dictionary]), *np.divmod(pool, n), listings)


def _part(run: Run, position: dict[str, int], depth: int) -> tuple[Ints, Any, NDArray[np.float64]]:
    """``(query row, document id, score)`` of the first documents of the queries asked for, in their order."""
    rows, ranks, doc_ids, scores = run.flat()
    rows = np.array([position.get(query, -1) for query in run.query_ids], dtype=np.int64)[rows]
    kept = np.flatnonzero((rows >= 0) & (ranks <= depth))
    kept = kept[np.argsort(rows[kept], kind="stable")]
    return rows[kept], doc_ids.take(pa.array(kept)), scores[kept]
