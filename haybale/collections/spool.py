"""Write the passages of a collection, or pieces of them, to one Parquet file, and compute their checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.collection import Collection

SCHEMA = pa.schema([(name, pa.large_string()) for name in ("passage_id", "doc_id", "text")])
SpanChunker = Callable[[str], list[tuple[int, int]]]  # returns the spans (start, end) of the pieces of a passage
Row = tuple[str, str, str]


class Spooled(NamedTuple):
    """The number of passages (or pieces), the number of rows written, and the SHA-256 of all ids and texts."""

    passages: int
    rows: int
    sha256: str


def spool(
    collection: Collection,
    file: BinaryIO | None,
    rows_per_group: int,
    shard: tuple[int, int] = (0, 1),
    split: SpanChunker | None = None,
) -> Spooled:
    """Write rows of (passage id, document id, text), ``rows_per_group`` to a row group.

    For ``shard = (i, n)``, only row groups with ``number % n == i`` are written, but all are hashed. Without a ``file``
    nothing is written. ``split`` cuts a passage into pieces with the ids ``<passage id>#<number>``.
    """
    writer = None
    if file is not None:
        writer = pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True)
    group: list[Row] = []
    sha, seen, written = hashlib.sha256(), 0, 0

    def flush() -> None:
        if writer is not None and group:
            columns = [pa.array(column, type=pa.large_string()) for column in zip(*group, strict=True)]
            writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=rows_per_group)
        group.clear()

    try:
        for row in _rows(collection, split):
            for value in row:
                data = value.encode()
                sha.update(len(data).to_bytes(8, "little") + data)
            if (seen // rows_per_group) % shard[1] == shard[0]:
                group.append(row)
                written += 1
            seen += 1
            if seen % rows_per_group == 0:
                flush()
        flush()
    finally:  # the writer must be closed before the file
        if writer is not None:
            writer.close()
    return Spooled(seen, written, sha.hexdigest())


def _rows(collection: Collection, split: SpanChunker | None) -> Iterator[Row]:
    passages, doc_ids = collection.passages, collection.doc_ids.to_pylist()
    for passage_id, document, text in zip(passages.ids, passages.doc_of, passages.texts, strict=True):
        name, whole = passage_id.as_py(), text.as_py()
        if split is None:
            yield name, doc_ids[document], whole
        else:
            for number, (start, end) in enumerate(split(whole)):
                yield piece_id(name, number), doc_ids[document], whole[start:end]


def piece_id(passage_id: str, number: int) -> str:
    """Return the id of a piece of a passage, counted from 0."""
    return f"{passage_id}#{number}"
