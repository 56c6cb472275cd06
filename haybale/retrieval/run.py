"""A run: ranked documents for each query. Comes from every ranker, goes into fusion and evaluation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
import pyarrow as pa

from haybale.collections import read_trec_run
from haybale.collections.collection import Strings
from haybale.errors import InputError
from haybale.frames import Frame, check_filled, in_library, numbers, to_pandas
from haybale.retrieval.hits import Ints

DEPTH = 1000  # documents kept for each query unless asked otherwise


class Run:
    """Documents by query, in a total order: higher score first, among equal scores the smaller document id.

    Columns of :meth:`to_frame`, which is the surface: ``query_id``, ``doc_id``, ``score`` (float64), ``rank``
    (from 1). A query without any document is in ``query_ids`` and has no row. Build one with
    :meth:`from_frame`, :meth:`from_trec` or :meth:`from_numbers`; NaN or infinite scores and a document twice for
    one query are refused.

    >>> frame = pd.DataFrame({"query_id": "q", "doc_id": ["b", "a", "c"], "score": [1.0, 1.0, 2.0]})
    >>> Run.from_frame(frame)["q"]
    [('c', 2.0), ('a', 1.0), ('b', 1.0)]
    """

    def __init__(self, query_ids: Sequence[str], rows: Ints, doc_ids: Strings, scores: np.ndarray) -> None:
        """From columns that are in order already; use the class methods instead."""
        self.query_ids = list(query_ids)
        self._rows = rows  # (n,) position in query_ids, rising
        self._doc_ids = doc_ids  # (n,)
        self._scores = scores  # (n,) float64
        self._offsets = np.searchsorted(rows, np.arange(len(self.query_ids) + 1))

    @classmethod
    def from_numbers(
        cls,
        query_ids: Sequence[str],
        doc_ids: Strings,
        rows: Ints,
        documents: Ints,
        scores: np.ndarray,
        depth: int = DEPTH,
    ) -> Run:
        """From flat columns in any order: query row, document number, score; the best ``depth`` of a query stay."""
        scores = np.asarray(scores, dtype=np.float64)
        if not np.isfinite(scores).all():
            raise InputError(
                f"run: query {query_ids[int(rows[~np.isfinite(scores)][0])]!r} has a score that is no number"
            )
        # Not np.unique: document numbers are small, and there may be many of them.
        mark = np.zeros(int(np.max(documents, initial=-1)) + 1, dtype=bool)
        mark[documents] = True
        used, which = np.flatnonzero(mark), (np.cumsum(mark) - 1)[documents]
        pairs = np.sort(rows * len(used) + which)
        if (pairs[1:] == pairs[:-1]).any():
            raise InputError("run: a document occurs twice for one query")
        names = doc_ids.take(pa.array(used))
        by_id = np.empty(len(used), dtype=np.int64)
        by_id[np.argsort(np.asarray(names.to_pylist(), dtype=object))] = np.arange(len(used))
        order = np.lexsort((by_id[which], -scores, rows))
        rows, which, scores = rows[order], which[order], scores[order]
        ends = np.cumsum(np.bincount(rows, minlength=len(query_ids)))
        kept = np.arange(len(rows)) - np.concatenate(([0], ends))[rows] < depth
        rows, which, scores = rows[kept], which[kept], scores[kept]
        return cls(query_ids, rows, names.take(pa.array(which)), scores)

    @classmethod
    def from_frame(cls, frame: Frame, depth: int = DEPTH) -> Run:
        """From columns ``query_id``, ``doc_id`` and ``score``; others are ignored, the order does not matter.

        ``frame`` is one of pandas or cuDF, or a table of pyarrow.
        """
        frame = to_pandas(frame, ["query_id", "doc_id", "score"], "run")
        check_filled(frame[["query_id", "doc_id"]], "run")
        rows, query_ids = pd.factorize(frame["query_id"].astype(str))
        documents, doc_ids = pd.factorize(frame["doc_id"].astype(str))
        strings = pa.chunked_array([pa.array(list(doc_ids), type=pa.large_string())])
        scores = numbers(frame, "score", "run")
        return cls.from_numbers(list(query_ids), strings, rows.astype(np.int64), documents, scores, depth)

    @classmethod
    def joined(cls, runs: Sequence[Run]) -> Run:
        """Runs about different queries as one, in their order.

        >>> parts = [Run.from_frame(pd.DataFrame({"query_id": [q], "doc_id": "a", "score": 1.0})) for q in "xy"]
        >>> Run.joined(parts).query_ids
        ['x', 'y']
        """
        query_ids = [query for run in runs for query in run.query_ids]
        if len(set(query_ids)) != len(query_ids):
            raise InputError("runs to be joined must be about different queries")
        before = np.cumsum([0, *(len(run) for run in runs)])
        rows = [run._rows + start for run, start in zip(runs, before[:-1], strict=True)]
        empty: list[Any] = [np.empty(0, dtype=np.int64)]
        return cls(
            query_ids,
            np.concatenate(rows or empty),
            pa.chunked_array([chunk for run in runs for chunk in run._doc_ids.chunks], type=pa.large_string()),
            np.concatenate([run._scores for run in runs] or empty).astype(np.float64),
        )

    @classmethod
    def from_trec(cls, path: Path | str, depth: int = DEPTH) -> Run:
        """Read a TREC run file, plain or ``.gz``; the scores decide the order, not the rank column."""
        return cls.from_frame(read_trec_run(path), depth)

    def to_trec(self, path: Path | str, tag: str = "haybale") -> None:
        """Write a TREC run file, aside first, then renamed; reading it back gives an equal run."""
        for name in [*self.query_ids, *self._doc_ids.unique().to_pylist(), tag]:
            if not name or any(map(str.isspace, name)):
                raise InputError(f"run: {name!r} cannot stand in a TREC file, whose columns are separated by spaces")
        path = Path(path)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        frame = self._frame()
        with open(aside, "w", encoding="utf-8", newline="\n") as file:
            for query, document, score, rank in zip(
                frame["query_id"], frame["doc_id"], self._scores.tolist(), frame["rank"], strict=True
            ):
                file.write(f"{query} Q0 {document} {rank} {score!r} {tag}\n")
        os.replace(aside, path)

    @overload
    def to_frame(self, library: Literal["pandas"] = "pandas") -> pd.DataFrame: ...

    @overload
    def to_frame(self, library: str) -> Frame: ...

    def to_frame(self, library: str = "pandas") -> Frame:
        """Columns ``query_id``, ``doc_id``, ``score``, ``rank``; a row a ranked document.

        ``library`` is ``"pandas"``, ``"cudf"`` or ``"pyarrow"``.
        """
        return in_library(self._frame(), library)

    def _frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "query_id": np.asarray(self.query_ids, dtype=object)[self._rows],
                "doc_id": self._doc_ids.to_pylist(),
                "score": self._scores,
                "rank": np.arange(len(self._rows)) - self._offsets[self._rows] + 1,
            }
        )

    def flat(self) -> tuple[Ints, Ints, Strings, np.ndarray]:
        """``(query row, rank from 1, document id, score)`` of every ranked document, each (n,); rows rise.

        >>> rows, ranks, doc_ids, scores = Run.from_frame(
        ...     pd.DataFrame({"query_id": ["q", "q", "r"], "doc_id": ["a", "b", "b"], "score": [1.0, 2.0, 3.0]})
        ... ).flat()
        >>> rows, ranks, doc_ids.to_pylist(), scores
        (array([0, 0, 1]), array([1, 2, 1]), ['b', 'a', 'b'], array([2., 1., 3.]))
        """
        return self._rows, np.arange(len(self._rows)) - self._offsets[self._rows] + 1, self._doc_ids, self._scores

    def top(self, depth: int) -> Run:
        """The first ``depth`` documents of every query."""
        kept = np.arange(len(self._rows)) - self._offsets[self._rows] < depth
        return Run(self.query_ids, self._rows[kept], self._doc_ids.filter(pa.array(kept)), self._scores[kept])

    def reindexed(self, query_ids: Sequence[str]) -> Run:
        """The same rankings with these queries, in this order; queries the run does not know have no document."""
        position = {query: i for i, query in enumerate(query_ids)}
        unknown = [query for query in self.query_ids if query not in position]
        if unknown:
            raise InputError(f"run: query {unknown[0]!r} is not among the queries asked for")
        rows = np.array([position[query] for query in self.query_ids], dtype=np.int64)[self._rows]
        order = np.argsort(rows, kind="stable")
        return Run(query_ids, rows[order], self._doc_ids.take(pa.array(order)), self._scores[order])

    def __getitem__(self, query_id: str) -> list[tuple[str, float]]:
        """``(document id, score)`` of one query, best first."""
        if query_id not in self._position:
            raise InputError(f"run: unknown query id {query_id!r}")
        row = self._position[query_id]
        part = slice(self._offsets[row], self._offsets[row + 1])
        return list(zip(self._doc_ids[part].to_pylist(), self._scores[part].tolist(), strict=True))

    @cached_property
    def _position(self) -> dict[str, int]:
        return {query: row for row, query in enumerate(self.query_ids)}

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.query_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return (
            self.query_ids == other.query_ids
            and np.array_equal(self._rows, other._rows)
            and np.array_equal(self._scores, other._scores)
            and self._doc_ids.to_pylist() == other._doc_ids.to_pylist()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Run of {len(self):,} queries, {len(self._rows):,} ranked documents"
