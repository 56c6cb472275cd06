"""Read Parquet files: a row is a document."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

import pyarrow as pa

from haybale.collections.files.file_reader import FileDocument, FileReader, Unreadable
from haybale.collections.files.table_rows import documents_of_rows


class Parquet(FileReader):
    """Reader of ``.parquet`` files."""

    name = "parquet"
    suffixes = (".parquet",)

    def read(self, data: bytes, columns: Mapping[str, str]) -> Iterator[FileDocument]:
        import pyarrow.parquet as pq

        try:
            batches = pq.ParquetFile(io.BytesIO(data)).iter_batches()
            yield from documents_of_rows((row for batch in batches for row in batch.to_pylist()), columns)
        except (pa.ArrowException, OSError) as error:
            raise Unreadable(f"expected a Parquet file, found other data ({type(error).__name__})") from error
