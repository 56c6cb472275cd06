"""Read rankings of other engines from TREC files, frames and mappings, in a total order.

Documents are sorted by falling score, those with equal scores by their rank in the file, frame or list, then by id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections import read_trec_run
from haybale.collections.ids import id_codes, in_order_of_ids
from haybale.errors import FileFormatError, InputError
from haybale.frames import LIBRARIES, Frame, check_filled, column_names, library_of, numbers, to_pandas
from haybale.manifest import digest
from haybale.retrieval.run import Run

if TYPE_CHECKING:
    import pandas as pd

RankedDocuments: TypeAlias = Mapping[str, float] | Sequence[tuple[str, float]] | Sequence[str]
RunLike: TypeAlias = "Run | RankedLists | Frame | Mapping[str, RankedDocuments]"

_FORMS = "the path of a TREC file, a run, a frame, or a mapping of query ids to documents"


class RankedLists:
    """A run that another engine made, which equals all others with the same rankings.

    Parameters
    ----------
    run : Run
    sha256 : str, optional
        The digest of the file that the run was read from. Default: a digest of the rankings.

    Attributes
    ----------
    row_of : dict of str to int
        The row of each query in the run.
    offsets : (n_queries + 1,) int64
        Where the documents of each query begin in ``documents`` and ``scores``.
    documents, scores : (n,) int64, (n,) float64
        The ranked documents, as positions in the table ``doc_ids``, and their scores.
    """

    def __init__(self, run: Run, sha256: str | None = None) -> None:
        self.run = run
        self.sha256 = _run_digest(run) if sha256 is None else sha256
        self.row_of = {query_id: row for row, query_id in enumerate(run.query_ids)}
        rows, _, self.documents, self.doc_ids, self.scores = run.coded()
        self.offsets = np.searchsorted(rows, np.arange(len(run) + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RankedLists) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return repr(self.run)

    def __str__(self) -> str:
        return f"sha256:{self.sha256[:12]}"

    def write(self, folder: Path) -> None:
        """Write the run to Parquet files in a folder, in its order."""
        rows, _, doc_ids, scores = self.run.flat()
        columns = {"row": pa.array(rows), "doc_id": doc_ids, "score": pa.array(scores)}
        pq.write_table(pa.table({"query_id": pa.array(self.run.query_ids, pa.large_string())}), folder / _QUERIES)
        pq.write_table(pa.table(columns), folder / _RANKED)

    @classmethod
    def read(cls, folder: Path, sha256: str) -> RankedLists:
        """Read what :meth:`write` of a run with this digest has written."""
        query_ids = pq.read_table(folder / _QUERIES).column("query_id").to_pylist()
        table = pq.read_table(folder / _RANKED)
        encoded = table.column("doc_id").combine_chunks().dictionary_encode()
        row, score = (table.column(name).to_numpy() for name in ("row", "score"))
        documents = encoded.indices.to_numpy().astype(np.int64)
        return cls(Run(query_ids, row, documents, pa.chunked_array([encoded.dictionary]), score), sha256)


_QUERIES, _RANKED = "queries.parquet", "ranked.parquet"
# The files that rankers have read, by path, time of the last change and size.
_files: WeakValueDictionary[tuple[str, int, int], RankedLists] = WeakValueDictionary()


def read_ranked_lists(path: str | Path) -> RankedLists:
    """Read a TREC run file, plain or ``.gz``; a file that a ranker has read already is not read again."""
    path = Path(path)
    if not path.is_file():
        raise FileFormatError(path, None, f"expected a TREC run file, found no file {path.name!r}; check the path")
    state = path.stat()
    key = str(path.absolute()), state.st_mtime_ns, state.st_size
    lists = _files.get(key)
    if lists is None:
        sha256 = digest(path)
        try:
            run = _from_frame(read_trec_run(path), str(path))
        except FileFormatError:
            raise
        except InputError as error:  # it does not name the file
            raise FileFormatError(path, None, str(error)) from None
        lists = _files[key] = RankedLists(run, sha256)
    return lists


def ranked_lists(given_run: RunLike) -> RankedLists:
    """Convert a run, a frame or a mapping.

    Parameters
    ----------
    given_run : Run, frame or mapping
        - a run, whose order is kept;
        - a frame with the columns ``query_id``, ``doc_id``, ``score`` and, optionally, ``rank``;
        - a mapping of query ids to ``{document id: score}``, to a list of ``(document id, score)``, or to a list of
          document ids, best first, which get the scores 1, 1/2, 1/3, ….

    Raises
    ------
    InputError
        For anything else, and for a score that is not finite or a document that occurs twice for a query.
    """
    if isinstance(given_run, RankedLists):
        return given_run
    if isinstance(given_run, Run):
        return RankedLists(given_run)
    if isinstance(given_run, Mapping):
        return RankedLists(_from_mapping(given_run))
    try:
        library_of(given_run)
    except InputError:
        message = f"run: expected {_FORMS}, found {type(given_run).__name__}; give a frame of {', '.join(LIBRARIES)}"
        raise InputError(message) from None
    has_rank = "rank" in column_names(given_run)
    frame = to_pandas(given_run, ["query_id", "doc_id", "score", *(["rank"] if has_rank else [])], "run")
    check_filled(frame[["query_id", "doc_id"]], "run")
    return RankedLists(_from_frame(frame, "run"))


def joined_lists(parts: Sequence[RankedLists], sha256: str | None = None) -> RankedLists:
    """Join runs of different queries; ``sha256`` is as for :class:`RankedLists`."""
    if len(parts) == 1:
        return parts[0]
    first_part: dict[str, int] = {}
    for number, part in enumerate(parts):
        for query_id in part.run.query_ids:
            if first_part.setdefault(query_id, number) != number:
                raise InputError(f"runs: expected each query in one run, found {query_id!r} in two; remove it from one")
    return RankedLists(Run.joined([part.run for part in parts]), sha256)


def _from_mapping(given_run: Mapping[str, RankedDocuments]) -> Run:
    """Return the run of a mapping of query ids to documents; a query may have none."""
    import pandas as pd

    query_ids, doc_ids, scores, ranks = [], [], [], []
    for query_id, documents in given_run.items():
        for rank, (doc_id, score) in enumerate(_scored(query_id, documents), 1):
            query_ids.append(query_id)
            doc_ids.append(doc_id)
            scores.append(score)
            ranks.append(np.nan if isinstance(documents, Mapping) else rank)
    columns = {"query_id": pd.Series(query_ids, dtype=object), "doc_id": pd.Series(doc_ids, dtype=object)}
    frame = pd.DataFrame({**columns, "score": pd.Series(scores, dtype=float), "rank": pd.Series(ranks, dtype=float)})
    run = _from_frame(frame, "run")
    empty = Run.from_numbers([query_id for query_id in given_run if not given_run[query_id]], [], *_no_columns())
    return Run.joined([run, empty]) if len(empty) else run


def _scored(query_id: str, documents: Any) -> Iterable[tuple[Any, float]]:
    """Return the documents of a query with their scores."""
    if isinstance(documents, Mapping):
        documents = list(documents.items())
    elif isinstance(documents, list | tuple) and all(isinstance(doc_id, str) for doc_id in documents):
        documents = [(doc_id, 1 / rank) for rank, doc_id in enumerate(documents, 1)]
    if isinstance(documents, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[1], int | float | np.number)
        for pair in documents
    ):
        return documents
    raise InputError(
        f"run: query {query_id!r} must have document ids with scores, or ids in their order, found {documents!r:.80}"
    )


def _from_frame(frame: pd.DataFrame, what: str) -> Run:
    """Return the run of a frame in the order of this module."""
    rows, query_ids = id_codes(frame["query_id"], f"{what}: column query_id")
    documents, doc_ids = id_codes(frame["doc_id"], f"{what}: column doc_id")
    scores = numbers(frame, "score", what)
    checked = Run.from_numbers(query_ids, doc_ids, rows, documents, scores, max(1, len(rows)))
    table, scores = checked.coded()[3], scores + 0.0  # turns -0.0 into 0.0
    ranks = numbers(frame, "rank", what) if "rank" in frame.columns else np.zeros(len(rows))
    order = np.lexsort((in_order_of_ids(table, documents)[1], ranks, -scores, rows))  # a rank that is NaN comes last
    return Run(query_ids, rows[order], documents[order], table, scores[order])


def _no_columns() -> tuple[Any, Any, Any]:
    """Return the rows, documents and scores of a run without documents."""
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)


def _run_digest(run: Run) -> str:
    """Return a digest of the query ids, document ids and scores of a run, whatever the order of the queries."""
    query_ids = sorted(run.query_ids)
    rows, _, doc_ids, scores = run.take(query_ids).flat()
    sha256 = hashlib.sha256("\0".join([*query_ids, "", *doc_ids.to_pylist()]).encode())
    for array in (rows, scores):
        sha256.update(np.ascontiguousarray(array).data)
    return sha256.hexdigest()
