"""Read Parquet files: a row is a document."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import FileDocument, FileReader
from haybale.collections.files.table_rows import documents_of_rows


class Parquet(FileReader):
    """Reader of ``.parquet`` files."""

    name = "parquet"
    suffixes = (".parquet",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        import pyarrow.parquet as pq

        batches = pq.ParquetFile(io.BytesIO(data)).iter_batches()
        yield from documents_of_rows((row for batch in batches for row in batch.to_pylist()), options)
