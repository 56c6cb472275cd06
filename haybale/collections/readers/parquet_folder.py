"""Read a collection from frames, or from a folder of Parquet files: passages, queries, judgements and documents.

    passages[.parquet]    doc_id, text, passage_id (optional)           one row per passage, in document order
    documents[.parquet]   doc_id, title (optional)                      optional; one row per document
    queries[.parquet]     query_id, text, split and own (optional)      each line of text is a paragraph
    qrels[.parquet]       query_id, doc_id, relevance and split (optional)

Ids are strings or whole numbers; whole numbers become strings. ``own`` is the document that a query was taken from. A
judgement belongs to the ``split`` in its row, by default to the split of its query, and by default to ``test``. A query
is in every split in which it is judged. The default ``relevance`` is 1.

Further columns of documents are their metadata, and so are those of passages, if all rows of a document have the same
value; those with different values, such as page numbers, are left out with a warning. ``title`` may be among them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.metadata import plain_value
from haybale.collections.reader import FolderReader
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, column_names, to_arrow, to_pandas

_REQUIRED_COLUMNS = {
    "passages": ("doc_id", "text"),
    "documents": ("doc_id",),
    "queries": ("query_id", "text"),
    "qrels": ("query_id", "doc_id"),
}
_OPTIONAL_COLUMNS = {
    "passages": ("passage_id",),
    "documents": (),
    "queries": ("split", "own"),
    "qrels": ("relevance", "split"),
}
_COLUMN_DEFAULTS = {"passage_id": None, "own": None, "relevance": 1}  # values of optional columns that are absent
Columns = dict[str, list[Any]]
Further = dict[str, pa.ChunkedArray]  # columns that may be metadata
Source = Path | str  # a file, or the name of a frame


def collection_from_frames(
    name: str,
    passages: Frame,
    queries: Frame,
    qrels: Frame,
    *,
    documents: Frame | None = None,
    language: str | None = None,
) -> Collection:
    """Create a collection from frames of pandas, cuDF, polars or pyarrow.

    Parameters
    ----------
    name : str
    passages, queries, qrels : frame
        Their columns are, in this order: ``doc_id``, ``text`` and optionally ``passage_id``; ``query_id``, ``text`` and
        optionally ``split`` and ``own``; ``query_id``, ``doc_id`` and optionally ``relevance`` and ``split``.
    documents : frame, optional
        Titles and metadata: ``doc_id``, optionally ``title``, and further columns of strings, numbers, dates, booleans
        or lists of strings. ``passages`` may have such columns too; each must have one value for a document.
    language : str, optional
        Language of the texts, for BM25 and TF-IDF; by default it is detected.

    Raises
    ------
    InputError
        A frame is invalid; the message names the frame, the row (counted from 0) and the column.

    Examples
    --------
    >>> import pandas as pd
    >>> passages = pd.DataFrame({"doc_id": ["a", "a", "b"], "text": ["Dogs bark.", "Cats purr.", "Taxes are due."]})
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["Who must pay?"]})
    >>> collection_from_frames("laws", passages, queries, pd.DataFrame({"query_id": ["q"], "doc_id": ["b"]}))
    Collection 'laws': 2 documents, 3 passages, 1 query (test 1)
    """
    builder = CollectionBuilder(name, language)
    _add_documents(builder, _read_frame(passages, "passages", "passages"), _further_of(passages), "passages")
    if documents is not None:
        ids = _read_frame(documents, "documents", "documents")["doc_id"]
        _add_metadata(builder, ids, _further_of(documents), "documents")
    query_columns, qrels_columns = _read_frame(queries, "queries", "queries"), _read_frame(qrels, "qrels", "qrels")
    _add_queries(builder, query_columns, qrels_columns, "queries", "qrels")
    return builder.build()


def documents_from_frame(frame: Frame) -> Collection:
    """Create a collection without queries from a frame of passages, whose further columns are metadata."""
    builder = CollectionBuilder("documents")
    _add_documents(builder, _read_frame(frame, "passages", "documents"), _further_of(frame), "documents")
    return builder.build()


class ParquetFolder(FolderReader):
    """Reader of folders of three Parquet files."""

    name = "parquet"
    expected = "passages.parquet"
    query_files = ("queries.parquet", "qrels.parquet")

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        columns, path = _read_file(folder, "passages")
        _add_documents(builder, columns, _further_in(path), path)
        if (folder / "documents.parquet").is_file():
            columns, path = _read_file(folder, "documents")
            _add_metadata(builder, columns["doc_id"], _further_in(path), path)

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        (queries, queries_path), (qrels, qrels_path) = _read_file(folder, "queries"), _read_file(folder, "qrels")
        _add_queries(builder, queries, qrels, queries_path, qrels_path)


def _add_documents(builder: CollectionBuilder, columns: Columns, further: Further, source: Source) -> None:
    _add_rows(source, zip(columns["doc_id"], columns["text"], columns["passage_id"], strict=True), builder.add_to)
    _add_metadata(builder, columns["doc_id"], further, source)


def _add_metadata(builder: CollectionBuilder, ids: Sequence[str], further: Further, source: Source) -> None:
    """Add the columns that have one value for each document; a warning names the others."""
    numbers = []
    for row, doc_id in enumerate(ids):
        if (number := builder.document_number(doc_id)) is None:
            _fail(source, f"row {row}: document {doc_id!r} has no passage in the collection; add one or remove the row")
        numbers.append(number)
    left_out = []
    for name, column in further.items():
        value_of: dict[int, Any] = {}
        values = map(plain_value, column.to_pylist() if _is_metadata(column) else [])
        pairs = ((number, value) for number, value in zip(numbers, values, strict=False) if value is not None)
        if not _is_metadata(column) or any(value_of.setdefault(number, value) != value for number, value in pairs):
            left_out.append(name)
            continue
        for number, value in value_of.items():
            if name == "title":
                builder.set_title(number, str(value))
            else:
                builder.add_metadata(number, {name: value})
    if left_out:
        warnings.warn(
            f"{source}: left out columns {', '.join(left_out)}: metadata must have one string, number, date, boolean "
            "or list of strings for each document; give a frame without them",
            stacklevel=4,
        )


def _add_queries(
    builder: CollectionBuilder, queries: Columns, qrels: Columns, queries_source: Source, qrels_source: Source
) -> None:
    ids = queries["query_id"]
    split_of = dict(zip(ids, queries["split"], strict=True)) if "split" in queries else {}
    splits = qrels.get("split") or [split_of.get(query_id, "test") for query_id in qrels["query_id"]]

    def add_query(query_id: str, text: str, own_document: str | None) -> None:
        builder.add_query(query_id, text.split("\n"), own_document, split_of.get(query_id))

    def add_judgement(split: str | None, query_id: str, doc_id: str, grade: int) -> None:
        if split is None:
            raise InputError(f"query {query_id!r} needs a split, found none")
        builder.add_judgement(split, query_id, doc_id, grade)

    _add_rows(queries_source, zip(ids, queries["text"], queries["own"], strict=True), add_query)
    rows = zip(splits, qrels["query_id"], qrels["doc_id"], qrels["relevance"], strict=True)
    _add_rows(qrels_source, rows, add_judgement)


def _add_rows(source: Source, rows: Iterable[tuple[Any, ...]], add: Callable[..., None]) -> None:
    for row, values in enumerate(rows):
        try:
            add(*values)
        except InputError as error:
            _fail(source, f"row {row}: {error}")


def _further_of(frame: Frame) -> Further:
    """Return the columns of a frame that are not read otherwise; values of several types become strings."""
    return {name: _arrow_column(frame, name) for name in _further_names(column_names(frame))}


def _arrow_column(frame: Frame, name: str) -> pa.ChunkedArray:
    try:
        return to_arrow(frame, [name])[name]
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError):  # a column of mixed types
        values = map(plain_value, to_pandas(frame, [name])[name])
        return pa.chunked_array([[None if value is None else str(value) for value in values]])


def _further_in(path: Path) -> Further:
    table = pq.read_table(path, columns=_further_names(pq.read_schema(path).names))
    return dict(zip(table.column_names, table.columns, strict=True))


def _further_names(names: list[str]) -> list[str]:
    """Return the names of possible metadata; a name that occurs twice, or is no string, is left out."""
    reserved_names = {"doc_id", "text", "passage_id"}
    return [
        name
        for name in names
        if names.count(name) == 1
        and isinstance(name, str)
        and name not in reserved_names
        and not name.startswith("__index_level_")
    ]


def _is_metadata(column: pa.ChunkedArray) -> bool:
    """Return whether the type of a column is one of metadata; vectors and objects are not."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return kind.value_type in (pa.string(), pa.large_string())
    return not (pa.types.is_nested(kind) or kind in (pa.binary(), pa.large_binary()))


def _read_frame(frame: Frame, part: str, source: str) -> Columns:
    names = _checked_names(column_names(frame), part, source)
    try:
        return _checked_columns(to_arrow(frame, names), part, source)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:  # a column of mixed types
        _fail(source, f"expected columns of strings and whole numbers: {error}")


def _read_file(folder: Path, part: str) -> tuple[Columns, Path]:
    path = folder / f"{part}.parquet"
    if not path.is_file():
        raise InputError(f"{folder}: expected a file {part}.parquet, found none")
    try:
        table = pq.read_table(path, columns=_checked_names(pq.read_schema(path).names, part, path))
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(path, None, f"expected Parquet, found another format: {error}") from error
    return _checked_columns(table, part, path), path


def _checked_names(names: list[str], part: str, source: Source) -> list[str]:
    """Return the names of the columns to read; a column that is missing or occurs twice is an error."""
    missing = [name for name in _REQUIRED_COLUMNS[part] if name not in names]
    if missing:
        columns, listed_names = "columns" if len(missing) > 1 else "a column", ", ".join(map(str, names)) or "none"
        _fail(source, f"expected {columns} {', '.join(missing)}; found {listed_names}")
    names_to_read = [name for name in (*_REQUIRED_COLUMNS[part], *_OPTIONAL_COLUMNS[part]) if name in names]
    for name in names_to_read:
        if names.count(name) > 1:
            _fail(source, f"expected one column {name}, found {names.count(name)}")
    return names_to_read


def _checked_columns(table: pa.Table, part: str, source: Source) -> Columns:
    """Return the values of the columns as strings, and relevance as whole numbers."""
    columns: Columns = {name: [value] * len(table) for name, value in _COLUMN_DEFAULTS.items()}
    for name in table.column_names:
        try:
            values = table.column(name).to_pylist()
        except UnicodeDecodeError:
            _fail(source, f"column {name}: expected UTF-8 text")
        grades = name == "relevance"
        for row, value in enumerate(values):
            if value is None and part == "queries" and name in ("split", "own"):
                continue
            if not isinstance(value, (int | float) if grades else (int | str)) or (
                grades and (not float(value).is_integer() or abs(value) >= 2**31)
            ):
                expected = "a whole number" if grades else "a string"
                shown_value = "nothing" if value is None else value
                _fail(source, f"row {row}, column {name}: expected {expected}, found {shown_value}")
        columns[name] = [value if value is None else int(value) if grades else str(value) for value in values]
    return columns


def _fail(source: Source, message: str) -> NoReturn:
    if isinstance(source, Path):
        raise FileFormatError(source, None, message)
    raise InputError(": ".join((source, message)))
