"""The layout of three Parquet files, with the columns of :mod:`haybale.collections.frames`.

    passages.parquet       doc_id, text, passage_id (optional)
    queries.parquet        query_id, text, split and own (optional)
    qrels.parquet          query_id, doc_id, relevance and split (optional)

Splits are a column, of the judgements or else of the queries; without one, all judgements are of the split ``test``.
Passages are read a few at a time, with cuDF where it is installed, a CUDA device answers and the file is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.columns import check_columns
from haybale.collections.frames import PASSAGES, QRELS, QUERIES, collection_of_tables, passage_columns, wanted_columns
from haybale.collections.sink import DocumentSink
from haybale.collections.tables import find_cudf
from haybale.errors import FileFormatError, InputError

_ROWS = 65_536


def read_parquet(folder: Path | str) -> Collection:
    """Read a folder of the three files."""
    folder = Path(folder)
    paths = [_need(folder, f"{name}.parquet") for name in ("passages", "queries", "qrels")]
    queries, qrels = (_whole(path, columns) for path, columns in zip(paths[1:], (QUERIES, QRELS), strict=True))
    builder = CollectionBuilder(folder.name)
    return collection_of_tables(builder, passage_tables(paths[0]), queries, qrels, (paths[0], paths[1], paths[2]))


def add_parquet_documents(sink: DocumentSink, folder: Path) -> None:
    """Read ``passages.parquet`` a few rows at a time; a document's passages need not stand side by side."""
    path = _need(folder, "passages.parquet")
    row = 0
    for table in passage_tables(path):
        doc_ids, texts, given = passage_columns(table, path, row)
        ids = [None] * len(table) if given is None else given.to_pylist()
        for doc_id, text, passage_id in zip(doc_ids.to_pylist(), texts.to_pylist(), ids, strict=True):
            document = sink.document_number(doc_id)
            try:
                if document is None:
                    document = sink.add_document(doc_id)
                sink.add_passage(document, text, passage_id)
            except InputError as error:
                raise FileFormatError(path, None, f"row {row}: {error}") from None
            row += 1


def passage_tables(path: Path) -> Iterator[pa.Table]:
    """The passages as tables, a row group or a few rows of one at a time."""
    with _opened(path) as file:
        check_columns(file.schema_arrow.names, PASSAGES, path)
        columns = wanted_columns(file.schema_arrow.names, PASSAGES)
        cudf = find_cudf(path.stat().st_size)
        for group in range(file.num_row_groups):
            table = None if cudf is None else _with_cudf(cudf, path, columns, group)
            if table is not None:
                yield table
                continue
            try:
                for batch in file.iter_batches(_ROWS, row_groups=[group], columns=columns):
                    yield pa.Table.from_batches([batch])
            except (pa.ArrowException, OSError) as error:
                raise FileFormatError(path, None, f"row group {group} cannot be read: {error}") from error


def _with_cudf(cudf: Any, path: Path, columns: list[str], group: int) -> pa.Table | None:
    """A row group, or None where cuDF fails."""
    try:
        frame = cudf.read_parquet(str(path), columns=columns, row_groups=[group], use_pandas_metadata=False)
        return frame[columns].to_arrow(preserve_index=False)
    except Exception:  # memory, a driver, an encoding: pyarrow does without cuDF, and names what is wrong
        return None


def _whole(path: Path, needed: tuple[str, ...]) -> pa.Table:
    with _opened(path) as file:
        check_columns(file.schema_arrow.names, needed, path)
        try:
            return file.read(columns=wanted_columns(file.schema_arrow.names, needed))
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(path, None, f"cannot be read: {error}") from error


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(path, None, f"expected Parquet: {error}") from error


def _need(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise InputError(f"{folder}: expected a file {name}")
    return path
