"""A run: the ranked documents of each query. Rankers return runs; fusion and evaluation read them."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from haybale.arrow import number_array
from haybale.cached import cached_property
from haybale.collections import Collection, read_trec_run
from haybale.collections.collection import Strings, numbers_below, ragged_take, take_strings
from haybale.collections.ids import as_id, as_ids, distinct_ids, id_codes, id_table, in_one_table, in_order_of_ids
from haybale.errors import FileFormatError, InputError
from haybale.folders import replaced
from haybale.frames import Frame, check_filled, column_names, in_library, numbers, to_pandas
from haybale.notebook import html_table
from haybale.parameters import FROM_0, check_parameters
from haybale.retrieval.hits import Ints
from haybale.text_files import read_lines
from haybale.vectors import reals

if TYPE_CHECKING:
    import pandas as pd

DEPTH = 1000  # default number of documents kept for each query
_DOCUMENTS_IN_NOTEBOOK = 10  # a notebook shows this number of documents
_TRUE_SCORE = "true_score"  # the column of a frame with the scores of the run

Scores = NDArray[np.float64]


class Run:
    """Ranked documents of queries, by falling score, then by rising document id.

    Make a run with :meth:`from_frame`, :meth:`from_trec` or :meth:`from_numbers`. Documents are stored as codes:
    positions in a table of ids, which the runs of one index share.

    Parameters
    ----------
    query_ids : (m,) distinct ids
        A query may have no documents.
    rows : (n,) int64
        Positions in ``query_ids``, rising.
    documents : (n,) int64
        Positions in ``doc_ids``, in ranked order within a query.
    doc_ids : (n_documents,) table of distinct ids
    scores : (n,) float64

    Raises
    ------
    InputError
        If an id is missing, invalid or duplicate. The class methods also raise it for NaN and infinite scores, and for
        a document that occurs twice for one query.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"query_id": "q", "doc_id": ["b", "a", "c"], "score": [1.0, 1.0, 2.0]})
    >>> Run.from_frame(frame)["q"]
    [('c', 2.0), ('a', 1.0), ('b', 1.0)]
    """

    def __init__(self, query_ids: Iterable[str], rows: Ints, documents: Ints, doc_ids: Strings, scores: Scores) -> None:
        self.query_ids = distinct_ids(query_ids, "run: query ids")
        self._rows = rows
        self._documents = documents
        self._doc_ids = id_table(doc_ids)
        self._scores = scores
        self._offsets = np.searchsorted(rows, np.arange(len(self.query_ids) + 1))

    @classmethod
    def from_numbers(
        cls,
        query_ids: Iterable[str],
        doc_ids: Strings | Sequence[str],
        rows: Ints,
        documents: Ints,
        scores: NDArray[Any],
        k: int = DEPTH,
    ) -> Run:
        """Make a run from flat columns in any order.

        Parameters
        ----------
        query_ids : (m,) distinct ids
        doc_ids : (n_documents,) distinct ids
            All runs made with the same chunked array of strings share it.
        rows, documents : (n,) int64
            Positions in ``query_ids`` and in ``doc_ids``.
        scores : (n,) numbers
        k : int, default 1000
            Number of documents kept for each query.
        """
        query_ids, doc_ids = distinct_ids(query_ids, "run: query ids"), id_table(doc_ids)
        rows = numbers_below(rows, len(query_ids), "row").copy()  # the caller may change the original
        documents = numbers_below(documents, len(doc_ids), "document").copy()
        scores = reals(scores, "run: scores") + 0.0  # turns -0.0 into 0.0
        if not len(rows) == len(documents) == len(scores):
            sizes = f"{len(rows)} rows, {len(documents)} documents and {len(scores)} scores"
            raise InputError(f"run: columns must have equal lengths, found {sizes}")
        finite = np.isfinite(scores)
        if not finite.all():
            wrong = int(finite.argmin())
            raise InputError(f"run: query {query_ids[rows[wrong]]!r} must have finite scores, found {scores[wrong]}")
        if _has_duplicates(rows, documents, len(query_ids), len(doc_ids)):
            pairs, counts = np.unique(rows * len(doc_ids) + documents, return_counts=True)
            row, document = divmod(int(pairs[counts > 1][0]), len(doc_ids))
            twice = f"{doc_ids[document].as_py()!r} twice for query {query_ids[row]!r}"
            raise InputError(f"run: the documents of a query must be distinct, found {twice}")
        if ((rows[1:] < rows[:-1]) | ((rows[1:] == rows[:-1]) & (scores[1:] > scores[:-1]))).any():
            order = _order_by_score(scores, rows, len(query_ids), k)
            rows, documents, scores = rows[order], documents[order], scores[order]
        tied = (rows[1:] == rows[:-1]) & (scores[1:] == scores[:-1])
        if tied.any():  # only tied documents are sorted by id
            at = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
            _, id_ranks = in_order_of_ids(doc_ids, documents[at])
            documents[at] = documents[at][np.lexsort((id_ranks, -scores[at], rows[at]))]
        return cls(query_ids, rows, documents, doc_ids, scores).top(k)

    @classmethod
    def from_frame(cls, frame: Frame, k: int = DEPTH) -> Run:
        """Make a run from a frame with rows in any order; queries are in the order of their first occurrence.

        Parameters
        ----------
        frame : pandas or cuDF frame, or pyarrow table
            Has the columns ``query_id`` and ``doc_id``, strings or whole numbers, and ``score``; others are ignored. In
            a frame of :meth:`to_frame`, the scores are those of the column ``true_score``. InputError is raised if they
            are not those of ``score`` up to its rounding.
        k : int, default 1000
            Number of documents kept for each query.
        """
        exact = [_TRUE_SCORE] if _TRUE_SCORE in column_names(frame) else []
        frame = to_pandas(frame, ["query_id", "doc_id", "score", *exact], "run")
        check_filled(frame[["query_id", "doc_id"]], "run")
        rows, query_ids = id_codes(frame["query_id"], "run: column query_id")
        documents, doc_ids = id_codes(frame["doc_id"], "run: column doc_id")
        scores = numbers(frame, "score", "run")
        if exact:
            scores = _true_scores(rows, scores, numbers(frame, _TRUE_SCORE, "run"))
        return cls.from_numbers(query_ids, doc_ids, rows, documents, scores, k)

    @classmethod
    def joined(cls, runs: Sequence[Run]) -> Run:
        """Concatenate runs of different queries; raise InputError if two runs have the same query."""
        query_ids = [query for run in runs for query in run.query_ids]
        before = np.cumsum([0, *(len(run) for run in runs)])
        rows = [run._rows + start for run, start in zip(runs, before[:-1], strict=True)]
        doc_ids, documents = in_one_table([run._doc_ids for run in runs], [run._documents for run in runs])
        none = np.empty(0, dtype=np.int64)
        joint = np.concatenate([none, *rows]), np.concatenate([none, *documents])
        return cls(query_ids, *joint, doc_ids, np.concatenate([np.empty(0), *(run._scores for run in runs)]))

    @classmethod
    def from_trec(cls, path: Path | str, k: int = DEPTH) -> Run:
        """Read a TREC run file, plain or ``.gz``, in the order in which trec_eval evaluates it.

        Documents are ordered by falling score, those of equal scores by falling id; the rank column is ignored. A file
        of :meth:`to_trec` has no equal scores. Scores that are equal in float32, in which trec_eval compares them, are
        rounded to it, so that they are equal.

        Parameters
        ----------
        path : Path or str
        k : int, default 1000
            Number of documents kept for each query.
        """
        frame = read_trec_run(path)
        with np.errstate(over="ignore"):
            rounded = frame["score"].to_numpy().astype(np.float32).astype(np.float64)
        is_tied = frame.assign(score=rounded).duplicated(["query_id", "score"], keep=False) & np.isfinite(rounded)
        frame["score"] = np.where(is_tied, rounded, frame["score"])
        run = cls.from_frame(frame, len(frame))
        rows, documents, scores = run._rows, run._documents, run._scores
        starts = np.append(True, (rows[1:] != rows[:-1]) | (scores[1:] != scores[:-1]))[: len(rows)]
        begin = np.flatnonzero(starts)
        sizes = np.diff(np.append(begin, len(rows)))
        # Tied documents are in rising order of ids, so that each group is reversed.
        reversed_places = 2 * np.repeat(begin, sizes) + np.repeat(sizes, sizes) - 1 - np.arange(len(rows))
        return cls(run.query_ids, rows, documents[reversed_places], run._doc_ids, scores).top(k)

    def to_trec(self, path: Path | str, tag: str = "haybale") -> None:
        """Write a TREC run file, atomically.

        Its scores are distinct, as in :meth:`to_frame`, so every evaluator gives the values of
        :func:`~haybale.evaluation.evaluate`. The file has no column for the true scores of tied documents.

        Parameters
        ----------
        path : Path or str
            An existing file is replaced. A file whose name ends in ``.gz`` is compressed.
        tag : str, default "haybale"
            The name of the system in the last column.

        Raises
        ------
        InputError
            If an id or the tag is empty or contains white space; nothing is written then.
        """
        names = take_strings(self._doc_ids, self._documents)
        check_trec([*self.query_ids, *names, tag])
        lines = zip(
            np.asarray(self.query_ids, dtype=object)[self._rows],
            names,
            self._ranks.tolist(),
            distinct_scores(self._scores, self._rows).tolist(),
            strict=True,
        )
        with replaced(Path(path)) as aside, ExitStack() as files:
            file: Any = files.enter_context(open(aside, "wb"))
            if Path(path).suffix == ".gz":
                # Level 1 makes a file 7 % larger than level 9, the default, and takes a fifteenth of its time.
                file = files.enter_context(gzip.GzipFile("", "wb", 1, fileobj=file, mtime=0))
            file = files.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))
            file.writelines(f"{query} Q0 {document} {rank} {score!r} {tag}\n" for query, document, rank, score in lines)

    @classmethod
    def from_coliee(cls, path: Path | str) -> Run:
        """Read a file in the form of :meth:`to_coliee`; scores fall from line to line.

        Queries without an answer are not in the file, so the run lacks them.

        Raises
        ------
        FileFormatError
            For a line that does not have three columns.
        InputError
            For a document that occurs twice for one query.
        """
        import pandas as pd

        rows: list[tuple[str, str]] = []
        for number, line in read_lines(Path(path)):
            columns = line.split()
            if len(columns) != 3:
                raise FileFormatError(
                    path, number, f"expected a query, a document and a tag, found {len(columns)} columns; correct it"
                )
            rows.append((columns[0], columns[1]))
        frame = pd.DataFrame(rows, columns=["query_id", "doc_id"], dtype=object)
        return cls.from_frame(frame.assign(score=-np.arange(len(rows), dtype=np.float64)), max(1, len(rows)))

    def to_coliee(self, path: Path | str, tag: str = "haybale") -> None:
        """Write the documents of each query as answers in the form of COLIEE's task 1, atomically.

        A line is ``query document tag``, separated by single spaces, such as ``000001 000018 univABC``. All documents
        of the run are answers: rank with :class:`~haybale.Cut`, or cut the run with :meth:`top`. See
        https://coliee.org/submission.

        Parameters
        ----------
        path : Path or str
            An existing file is replaced.
        tag : str, default "haybale"
            The run tag: at most 12 letters and digits, which identify the group and the run.

        Raises
        ------
        InputError
            For another tag, or if an id is empty or contains white space; nothing is written then.
        """
        names = take_strings(self._doc_ids, self._documents)
        check_coliee([*self.query_ids, *names], tag)
        queries = np.asarray(self.query_ids, dtype=object)[self._rows]
        with replaced(Path(path)) as aside, open(aside, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{query} {document} {tag}\n" for query, document in zip(queries, names, strict=True))

    @overload
    def to_frame(self, library: Literal["pandas"] = "pandas") -> pd.DataFrame: ...
    @overload
    def to_frame(self, library: str) -> Any: ...
    def to_frame(self, library: str = "pandas") -> Any:
        """Return a frame with the columns ``query_id``, ``doc_id``, ``score``, ``rank`` (from 1) and ``true_score``.

        ir_measures and :func:`~haybale.evaluation.evaluate` take it as it is, ``ranx.Run.from_df`` with the names of
        its columns. In pandas the ids have the type object, which ranx requires.

        Other tools sort by score, some in float32, and break ties in different ways. So the values of ``score`` fall
        strictly within each query, also in float32: a score that does not is replaced by the largest float32 below the
        score before it. Every evaluator therefore gives the values of :func:`~haybale.evaluation.evaluate`, from
        the frame and from a CSV or Parquet file of it. ``true_score`` has the scores of the run.

        Parameters
        ----------
        library : {"pandas", "cudf", "pyarrow"}, default "pandas"
        """
        import pandas as pd

        frame = pd.DataFrame(
            {
                "query_id": np.asarray(self.query_ids, dtype=object)[self._rows],
                "doc_id": take_strings(self._doc_ids, self._documents),
                "score": distinct_scores(self._scores, self._rows),
                "rank": self._ranks,
                _TRUE_SCORE: self._scores,
            }
        )
        return (
            frame.astype({"query_id": object, "doc_id": object}) if library == "pandas" else in_library(frame, library)
        )

    def flat(self) -> tuple[Ints, Ints, Strings, Scores]:
        """Return ``(query row, rank from 1, document id, score)``, each (n,); rows rise."""
        return self._rows, self._ranks, self._doc_ids.take(pa.array(self._documents)), self._scores

    def numbers_in(self, collection: Collection) -> tuple[Ints, Ints, Ints]:
        """Return ``(query row, rank from 1, document)``, each (n,), with the document numbers of a collection."""
        rows, ranks, documents, table, _ = self.coded()
        if table is not collection.doc_ids and len(documents):
            used, used_rows = np.unique(documents, return_inverse=True)
            documents = collection.document_numbers(table.take(number_array(used)))[used_rows]
        return rows, ranks, documents

    def coded(self) -> tuple[Ints, Ints, Ints, Strings, Scores]:
        """Return ``(query row, rank from 1, document code, table of ids, score)``; see :meth:`flat`.

        A code is a position in the table of ids, which may have ids that are not ranked.

        Examples
        --------
        >>> table = id_table(["a", "b", "c"])
        >>> run = Run.from_numbers(["q"], table, [0, 0], [1, 2], [0.5, 0.9])
        >>> run.coded()[2], run.coded()[3] is table
        (array([2, 1]), True)
        """
        return self._rows, self._ranks, self._documents, self._doc_ids, self._scores

    def top(self, k: int) -> Run:
        """Return the first ``k`` documents of every query."""
        check_parameters("Run", {"k": k}, {"k": FROM_0})
        kept = self._ranks <= k
        if kept.all():
            return self
        return Run(self.query_ids, self._rows[kept], self._documents[kept], self._doc_ids, self._scores[kept])

    def take(self, query_ids: Sequence[str]) -> Run:
        """Return the run of some distinct queries, in the given order; raise InputError for an unknown query."""
        query_ids = as_ids(query_ids, "run: query ids")
        rows = np.array([self._row(query) for query in query_ids], dtype=np.int64)
        at, offsets = ragged_take(self._offsets, rows)
        of = np.repeat(np.arange(len(rows)), np.diff(offsets))
        return Run(query_ids, of, self._documents[at], self._doc_ids, self._scores[at])

    def __getitem__(self, query_id: str) -> list[tuple[str, float]]:
        """Return ``(document id, score)`` of one query, best first; raise InputError for an unknown query."""
        row = self._row(as_id(query_id, "run: query id"))
        part = slice(self._offsets[row], self._offsets[row + 1])
        names = take_strings(self._doc_ids, self._documents[part])
        return list(zip(names, self._scores[part].tolist(), strict=True))

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.query_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        if not (
            self.query_ids == other.query_ids
            and np.array_equal(self._rows, other._rows)
            and np.array_equal(self._scores, other._scores)
        ):
            return False
        (ours, theirs) = in_one_table([self._doc_ids, other._doc_ids], [self._documents, other._documents])[1]
        return np.array_equal(ours, theirs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Run of {len(self):,} queries, {len(self._rows):,} ranked documents"

    def _repr_html_(self) -> str:
        """Return the first ranked documents for notebooks."""
        n = _DOCUMENTS_IN_NOTEBOOK
        queries = [self.query_ids[row] for row in self._rows[:n].tolist()]
        names, scores = take_strings(self._doc_ids, self._documents[:n]), self._scores[:n].tolist()
        rows = zip(queries, self._ranks[:n].tolist(), names, map("{:.4f}".format, scores), strict=True)
        more = "" if len(self._rows) <= n else f", the first {n}"
        return html_table(repr(self) + more, ("query_id", "rank", "doc_id", "score"), rows)

    @property
    def _ranks(self) -> Ints:  # (n,) from 1
        return np.arange(1, len(self._rows) + 1) - self._offsets[self._rows]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {query: row for row, query in enumerate(self.query_ids)}

    def _row(self, query_id: str) -> int:
        if query_id not in self._row_of:
            raise InputError(f"run: expected the id of one of its {len(self):,} queries, found {query_id!r}")
        return self._row_of[query_id]


def check_trec(names: Sequence[str]) -> None:
    """Raise InputError for ids or a tag that a TREC file cannot hold: empty ones, or those with white space."""
    if " ".join(names).split() != names:
        name = next(name for name in names if name.split() != [name])
        raise InputError(f"run: {name!r} cannot stand in a file that separates columns by spaces; change it")


def check_coliee(names: Sequence[str], tag: str) -> None:
    """Raise InputError for a tag that COLIEE does not take, and for ids that its files cannot hold."""
    if not re.fullmatch("[A-Za-z0-9]{1,12}", tag):
        raise InputError(f"run: the tag of a COLIEE file must be 1 to 12 letters and digits, found {tag!r}")
    check_trec(names)


def _has_duplicates(rows: Ints, documents: Ints, n_queries: int, n_documents: int) -> bool:
    """Return whether a (row, document) pair occurs twice: by a bitmap if it is small, else by sorting."""
    pairs = rows * n_documents + documents
    if n_queries * n_documents <= 16 * len(pairs):
        mark = np.zeros(n_queries * n_documents, dtype=bool)
        mark[pairs] = True
        return int(np.count_nonzero(mark)) < len(pairs)
    pairs.sort()
    return bool((pairs[1:] == pairs[:-1]).any())


def _order_by_score(scores: Scores, rows: Ints, n_queries: int, k: int) -> Ints:
    """Return the order by row and falling score, possibly without documents that score below a query's k-th best."""
    if len(rows) < 64 * n_queries or (rows[1:] < rows[:-1]).any():  # many short lists, or rows in any order
        return np.lexsort((-scores, rows))
    parts = [np.empty(0, dtype=np.int64)]
    for start, end in pairwise(np.searchsorted(rows, np.arange(n_queries + 1)).tolist()):
        falling = -scores[start:end]
        if 0 < k < end - start:
            kept = np.flatnonzero(falling <= np.partition(falling, k - 1)[k - 1])
            parts.append(start + kept[np.argsort(falling[kept])])
        else:
            parts.append(start + np.argsort(falling))
    return np.concatenate(parts)


def _true_scores(rows: Ints, scores: Scores, true: Scores) -> Scores:
    """Return the scores of a run from both columns of its frame; raise InputError if the user changed one of them."""
    largest = float(np.finfo(np.float32).max)
    distinct, wanted = np.clip(scores, -largest, largest), np.clip(true, -largest, largest)
    # Each of the documents before it may lower a score by a float32 step, at most 2^-23 of its magnitude.
    most = np.bincount(rows)[rows] * (2.0**-22 * np.abs(wanted) + 2.0**-140)
    if len(wrong := np.flatnonzero(~(np.abs(distinct - wanted) <= most) & np.isfinite(true))):
        values = f"{scores[wrong[0]]} and {true[wrong[0]]} in row {wrong[0]}"
        raise InputError(
            f"run: expected equal values in 'score' and {_TRUE_SCORE!r}, found {values}; remove the wrong column"
        )
    return true


def distinct_scores(scores: Scores, rows: Ints) -> Scores:
    """Lower scores (n,) where needed so that they fall strictly within each query, also in float32; see ``to_frame``.

    ``rows`` (n,) are rising numbers of queries.

    >>> distinct_scores(np.array([1.0, 1.0, 0.5, 1.0]), np.array([0, 0, 0, 1]))
    array([1.        , 0.99999994, 0.5       , 1.        ])
    """
    offsets = np.searchsorted(rows, np.arange(int(rows.max(initial=-1)) + 2))
    # Number the float32 values in rising order. Neighbouring values get neighbouring numbers, and 0.0 gets 0.
    with np.errstate(over="ignore"):  # the largest scores become infinite
        bits = scores.astype(np.float32).view(np.int32).astype(np.int64)
    number = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    infinity = int(np.float32(np.inf).view(np.int32))
    # Each number must be below the one before it. Adding the rank turns this into a running minimum.
    rank = np.arange(len(rows)) - offsets[rows]
    apart = rows << 34  # restarts the minimum at each query
    falling = np.minimum.accumulate(number + rank - apart) + apart - rank
    # Leave room for the scores that follow, so that replaced scores are finite.
    last = offsets[rows + 1] - 1
    lowest = np.where(number[last] == -infinity, -infinity, 1 - infinity)
    falling = np.maximum(falling, lowest + last - np.arange(len(rows)))
    moved = np.sign(falling) * np.abs(falling).astype(np.int32).view(np.float32)
    return np.where(falling == number, scores, moved)
