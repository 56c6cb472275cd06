"""Read a collection from three frames, or a folder of three Parquet files: passages, queries and judgements.

    passages[.parquet]    doc_id, text, passage_id (optional)             a row a passage, in the order of the document
    queries[.parquet]     query_id, text, split and own (optional)        a line of text is a paragraph
    qrels[.parquet]       query_id, doc_id, relevance and split (optional)

Ids are strings or whole numbers, which become strings. A judgement belongs to the ``split`` in its row; without such a
column to the split of its query; without one there either, to ``test``. A query joins every split that judges it. Where
``relevance`` is absent it is 1. ``own`` is the document a query was taken from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.reader import FolderReader
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, column_names, to_arrow

_NEEDED = {"passages": ("doc_id", "text"), "queries": ("query_id", "text"), "qrels": ("query_id", "doc_id")}
_OPTIONAL = {"passages": ("passage_id",), "queries": ("split", "own"), "qrels": ("relevance", "split")}
_DEFAULTS = {"passage_id": None, "own": None, "relevance": 1}  # where there is no such column
Columns = dict[str, list[Any]]
Source = Path | str  # a file, or the name of a frame


def collection_from_frames(
    name: str, passages: Frame, queries: Frame, qrels: Frame, *, language: str | None = None
) -> Collection:
    """Return a collection from frames of pandas, cuDF, polars or pyarrow.

    Parameters
    ----------
    name : str
    passages, queries, qrels : frame
        Their columns are those of the module; rows of a document need not stand side by side.
    language : str, optional
        Language of the texts, for BM25 and TF-IDF.

    Raises
    ------
    InputError
        Naming frame, row (counted from 0) and column.

    Examples
    --------
    >>> import pandas as pd
    >>> passages = pd.DataFrame({"doc_id": ["a", "a", "b"], "text": ["Dogs bark.", "Cats purr.", "Taxes are due."]})
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["Who must pay?"]})
    >>> collection_from_frames("laws", passages, queries, pd.DataFrame({"query_id": ["q"], "doc_id": ["b"]}))
    Collection 'laws': 2 documents, 3 passages, 1 query (test 1)
    """
    builder = CollectionBuilder(name, language)
    _add_passages(builder, _of_frame(passages, "passages", "passages"), "passages")
    asked, judged = _of_frame(queries, "queries", "queries"), _of_frame(qrels, "qrels", "qrels")
    _add_queries(builder, asked, judged, "queries", "qrels")
    return builder.build()


def documents_from_frame(frame: Frame) -> Collection:
    """Return a collection without queries from a frame of passages."""
    builder = CollectionBuilder("documents")
    _add_passages(builder, _of_frame(frame, "passages", "documents"), "documents")
    return builder.build()


class Parquet(FolderReader):
    """Reads folders of three Parquet files."""

    name = "parquet"
    expected = "passages.parquet"
    query_files = ("queries.parquet", "qrels.parquet")

    def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
        _add_passages(builder, *_of_file(folder, "passages"))

    def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
        (asked, asked_path), (judged, judged_path) = _of_file(folder, "queries"), _of_file(folder, "qrels")
        _add_queries(builder, asked, judged, asked_path, judged_path)


def _add_passages(builder: CollectionBuilder, columns: Columns, source: Source) -> None:
    _add(source, zip(columns["doc_id"], columns["text"], columns["passage_id"], strict=True), builder.add_to)


def _add_queries(builder: CollectionBuilder, asked: Columns, judged: Columns, of_asked: Source, of: Source) -> None:
    ids = asked["query_id"]
    split_of = dict(zip(ids, asked["split"], strict=True)) if "split" in asked else {}
    splits = judged.get("split") or [split_of.get(query_id, "test") for query_id in judged["query_id"]]

    def ask(query_id: str, text: str, own: str | None) -> None:
        builder.add_query(query_id, text.split("\n"), own, split_of.get(query_id))

    def judge(split: str | None, query_id: str, doc_id: str, grade: int) -> None:
        if split is None:
            raise InputError(f"query {query_id!r} is in no split")
        builder.add_judgement(split, query_id, doc_id, grade)

    _add(of_asked, zip(ids, asked["text"], asked["own"], strict=True), ask)
    _add(of, zip(splits, judged["query_id"], judged["doc_id"], judged["relevance"], strict=True), judge)


def _add(source: Source, rows: Iterable[tuple[Any, ...]], add: Callable[..., None]) -> None:
    """Add row by row; an error names the source and the row."""
    for row, values in enumerate(rows):
        try:
            add(*values)
        except InputError as error:
            _refuse(source, f"row {row}: {error}")


def _of_frame(frame: Frame, part: str, source: str) -> Columns:
    wanted = _wanted(column_names(frame), part, source)
    try:
        return _columns(to_arrow(frame, wanted), part, source)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:  # objects of several types
        _refuse(source, f"expected columns of strings and whole numbers: {error}")


def _of_file(folder: Path, part: str) -> tuple[Columns, Path]:
    path = folder / f"{part}.parquet"
    if not path.is_file():
        raise InputError(f"{folder}: expected a file {part}.parquet")
    try:
        table = pq.read_table(path, columns=_wanted(pq.read_schema(path).names, part, path))
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(path, None, f"cannot be read as Parquet: {error}") from error
    return _columns(table, part, path), path


def _wanted(names: list[str], part: str, source: Source) -> list[str]:
    """Return the names of the columns to be read; one that is missing or occurs twice is an error."""
    missing = [name for name in _NEEDED[part] if name not in names]
    if missing:
        columns, found = "columns" if len(missing) > 1 else "a column", ", ".join(map(str, names)) or "none"
        _refuse(source, f"expected {columns} {', '.join(missing)}; found {found}")
    wanted = [name for name in (*_NEEDED[part], *_OPTIONAL[part]) if name in names]
    for name in wanted:
        if names.count(name) > 1:
            _refuse(source, f"column {name} stands there twice")
    return wanted


def _columns(table: pa.Table, part: str, source: Source) -> Columns:
    """Return the columns, checked: strings, and whole numbers for relevance."""
    columns: Columns = {name: [value] * len(table) for name, value in _DEFAULTS.items()}
    for name in table.column_names:
        try:
            values = table.column(name).to_pylist()
        except UnicodeDecodeError:
            _refuse(source, f"column {name}: expected UTF-8 text")
        grades = name == "relevance"
        for row, value in enumerate(values):
            if value is None and part == "queries" and name in ("split", "own"):
                continue
            if not isinstance(value, (int | float) if grades else (int | str)) or (
                grades and (not float(value).is_integer() or abs(value) >= 2**31)
            ):
                expected, found = (
                    ("a whole number" if grades else "a string"),
                    value if value is not None else "nothing",
                )
                _refuse(source, f"row {row}, column {name}: expected {expected}, found {found}")
        columns[name] = [value if value is None else int(value) if grades else str(value) for value in values]
    return columns


def _refuse(source: Source, message: str) -> NoReturn:
    """Raise the one error of a bad table."""
    if isinstance(source, Path):
        raise FileFormatError(source, None, message)
    raise InputError(f"{source}: {message}")
