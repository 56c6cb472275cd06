"""Read tables with commas, semicolons or tabs: a row is a document."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import FileDocument, FileReader, Unreadable, decoded
from haybale.collections.files.table_rows import documents_of_rows

_DELIMITERS = ",;\t|"
_LARGEST_CELL = 2**27


class Delimited(FileReader):
    """Reader of ``.csv`` and ``.tsv`` files with a header."""

    name = "csv"
    suffixes = (".csv", ".tsv")

    def read(self, data: bytes, columns: Mapping[str, str]) -> Iterator[FileDocument]:
        text = decoded(data)
        header = text.partition("\n")[0]
        delimiter = max(_DELIMITERS, key=header.count)
        csv.field_size_limit(_LARGEST_CELL)
        try:
            rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
            yield from documents_of_rows(({k: v for k, v in row.items() if k is not None} for row in rows), columns)
        except csv.Error as error:
            raise Unreadable(f"damaged table: {error}") from error
