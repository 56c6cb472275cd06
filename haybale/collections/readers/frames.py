"""A collection from three frames, or from a folder of three Parquet files: passages, queries and judgements.

    passages[.parquet]    doc_id, text, passage_id (optional)             a row a passage, in the order of the document
    queries[.parquet]     query_id, text, split and own (optional)        a line of text is a paragraph
    qrels[.parquet]       query_id, doc_id, relevance and split (optional)

Ids are strings or whole numbers, which become strings. A judgement belongs to the ``split`` in its row; without such a
column to the split of its query; without one there either, to ``test``. A query joins every split that judges it. Where
``relevance`` is absent it is 1. ``own`` is the document a query was taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, column_names, library_of, to_arrow

_ROWS = 65_536  # of a file at once
_NEEDED = {"passages": ("doc_id", "text"), "queries": ("query_id", "text"), "qrels": ("query_id", "doc_id")}
_OPTIONAL = {"passages": ("passage_id",), "queries": ("split", "own"), "qrels": ("relevance", "split")}


def collection_from_frames(
    name: str, passages: Frame, queries: Frame, qrels: Frame, *, language: str | None = None
) -> Collection:
    """A collection from frames of pandas, cuDF, polars or pyarrow.

    Rows of a document need not stand side by side. Passages without an id get ``<document id>:<place in the
    document>``.

    Parameters
    ----------
    name : str
    passages, queries, qrels : frame
        Their columns are those of the module.
    language : str, optional
        Of the texts, for BM25 and TF-IDF.

    Raises
    ------
    InputError
        Naming frame, row (counted from 0) and column: a missing id or text, an id used twice, judgements of queries
        or documents that are not there, a grade that is no whole number; and what
        :class:`~haybale.collections.CollectionBuilder` refuses.

    Examples
    --------
    >>> passages = pd.DataFrame({"doc_id": ["a", "a", "b"], "text": ["Dogs bark.", "Cats purr.", "Taxes are due."]})
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["Who must pay?"]})
    >>> collection_from_frames("laws", passages, queries, pd.DataFrame({"query_id": ["q"], "doc_id": ["b"]}))
    Collection 'laws': 2 documents, 3 passages, 1 query (test 1)
    """
    parts = zip(_NEEDED, (passages, queries, qrels), strict=True)
    return _collection(CollectionBuilder(name, language), *([_of_frame(frame, part, part)] for part, frame in parts))


def documents_from_frame(frame: Frame) -> Collection:
    """Documents alone, without queries, from a frame of passages."""
    builder = CollectionBuilder("documents")
    _add_passages(builder, _of_frame(frame, "passages", "documents"))
    return builder.build()


def read_parquet(folder: Path | str) -> Collection:
    """Read a folder of the three files."""
    folder = Path(folder)
    for part in _NEEDED:
        _need(folder, part)
    return _collection(CollectionBuilder(folder.name), *(_read(folder, part) for part in _NEEDED))


def add_parquet_documents(builder: CollectionBuilder, folder: Path) -> None:
    """Read ``passages.parquet`` some rows at a time; a document's passages need not stand side by side."""
    for part in _read(folder):
        _add_passages(builder, part)


@dataclass(frozen=True)
class _Table:
    """Columns as what a collection is made of; an error names the source (a file, or a frame), column and row."""

    table: pa.Table
    source: Path | str
    first_row: int = 0

    def refuse(self, message: str, row: int | None = None) -> NoReturn:
        """Raise the one error of a bad table."""
        if row is not None:
            message = f"row {self.first_row + row}{', ' if message.startswith('column') else ': '}{message}"
        if isinstance(self.source, Path):
            raise FileFormatError(self.source, None, message)
        raise InputError(f"{self.source}: {message}")

    def has(self, name: str) -> bool:
        return name in self.table.column_names

    def strings(self, name: str, *, missing: bool = False) -> pa.Array:
        """(n,) large_string: a column of strings, of categories, or of whole numbers, which ids may be."""
        if missing and not self.has(name):
            return pa.nulls(len(self.table), pa.large_string())
        column = self.table.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        if not any(test(kind) for test in (*tests, pa.types.is_integer, pa.types.is_null)):
            self.refuse(f"column {name}: expected strings, found {column.type}")
        if not missing and column.null_count:
            row = int(pc.index(column.is_null(), True).as_py())
            self.refuse(f"column {name}: expected a string, found nothing", row)
        parts = [chunk.cast(kind).cast(pa.large_string()) for chunk in column.chunks]
        found = pa.concat_arrays(parts) if parts else pa.array([], type=pa.large_string())
        try:
            found.validate(full=True)
        except pa.ArrowInvalid:
            self.refuse(f"column {name}: expected UTF-8 text")
        return found

    def grades(self) -> list[int]:
        """(n,) whole numbers; without such a column, 1 for each row."""
        values = self.table.column("relevance").to_pylist() if self.has("relevance") else [1] * len(self.table)
        for row, value in enumerate(values):
            if not isinstance(value, int | float) or not float(value).is_integer() or abs(value) >= 2**31:
                found = "nothing" if value is None else repr(value)
                self.refuse(f"column relevance: expected a whole number, found {found}", row)
        return [int(value) for value in values]


def _collection(
    builder: CollectionBuilder, passages: Iterable[_Table], queries: Iterable[_Table], qrels: Iterable[_Table]
) -> Collection:
    """A collection from tables of each kind, one after the other."""
    for part in passages:
        _add_passages(builder, part)
    split_of: dict[str, str | None] = {}
    for part in queries:
        columns = [part.strings(name).to_pylist() for name in _NEEDED["queries"]]
        columns += [part.strings(name, missing=True).to_pylist() for name in _OPTIONAL["queries"]]
        for row, (query_id, text, split, own) in enumerate(zip(*columns, strict=True)):
            try:
                builder.add_query(query_id, text.split("\n"), own=own, split=split)
            except InputError as error:
                part.refuse(str(error), row)
            if part.has("split"):
                split_of[query_id] = split
    for part in qrels:
        ids, documents = (part.strings(name).to_pylist() for name in _NEEDED["qrels"])
        splits = part.strings("split").to_pylist() if part.has("split") else [split_of.get(i, "test") for i in ids]
        for row, (split, *judgement) in enumerate(zip(splits, ids, documents, part.grades(), strict=True)):
            if split is None:
                part.refuse(f"query {judgement[0]!r} is in no split", row)
            try:
                builder.add_judgement(split, *judgement)
            except InputError as error:
                part.refuse(str(error), row)
    return builder.build()


def _add_passages(builder: CollectionBuilder, part: _Table) -> None:
    doc_ids, texts = (part.strings(name) for name in _NEEDED["passages"])
    given = part.strings("passage_id") if part.has("passage_id") else None
    try:
        builder.add_passages(doc_ids, texts, given, part.first_row)
    except InputError as error:
        part.refuse(str(error))


def _wanted(names: Sequence[Any], part: str, source: Path | str) -> list[str]:
    """The columns that are read, of those there are; one that is needed must be there, and none twice."""
    wanted = [name for name in (*_NEEDED[part], *_OPTIONAL[part]) if name in names]
    missing = [name for name in _NEEDED[part] if name not in wanted]
    nothing = _Table(pa.table({}), source)
    if missing:
        columns = "columns" if len(missing) > 1 else "a column"
        found = ", ".join(map(str, names)) or "none"
        nothing.refuse(f"expected {columns} {', '.join(missing)}; found {found}")
    for name in wanted:
        if list(names).count(name) > 1:
            nothing.refuse(f"column {name} stands there twice")
    return wanted


def _of_frame(frame: Frame, part: str, source: str) -> _Table:
    """The columns that are read of a frame."""
    wanted = _wanted(column_names(frame), part, source)
    if library_of(frame) != "pandas":
        return _Table(to_arrow(frame, wanted), source)
    arrays = {}
    for name in wanted:
        try:
            arrays[name] = pa.array(frame[name], from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # objects of several types
            for row, value in enumerate(frame[name]):
                if not isinstance(value, str) and not pd.isna(value):
                    kind = type(value).__name__
                    _Table(pa.table({}), source).refuse(f"column {name}: expected a string, found {kind}", row)
            raise
    return _Table(pa.table(arrays), source)


def _read(folder: Path, part: str = "passages") -> Iterator[_Table]:
    """One of the files, some rows of a row group at a time."""
    path, row = _need(folder, part), 0
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(path, None, f"expected Parquet: {error}") from error
    with file:
        columns = _wanted(file.schema_arrow.names, part, path)
        for group in range(file.num_row_groups):
            try:
                for batch in file.iter_batches(_ROWS, row_groups=[group], columns=columns):
                    yield _Table(pa.Table.from_batches([batch]), path, row)
                    row += len(batch)
            except (pa.ArrowException, OSError) as error:
                raise FileFormatError(path, None, f"row group {group} cannot be read: {error}") from error


def _need(folder: Path, part: str) -> Path:
    path = folder / f"{part}.parquet"
    if not path.is_file():
        raise InputError(f"{folder}: expected a file {part}.parquet")
    return path
