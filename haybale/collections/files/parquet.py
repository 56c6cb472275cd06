"""Read Parquet files: a row is a document."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader
from haybale.collections.files.table_rows import Row, documents_of_rows
from haybale.collections.unread import UnreadPart


class Parquet(FileReader):
    """Reader of ``.parquet`` files."""

    name = "parquet"
    suffixes = (".parquet",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        import pyarrow.parquet as pq

        batches = pq.ParquetFile(io.BytesIO(data)).iter_batches()
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from documents_of_rows((Row(f"row {number}", row) for number, row in enumerate(rows, 1)), options)
