"""Read tables with commas, semicolons or tabs: a row is a document."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import FileDocument, FileReader, decoded
from haybale.collections.files.table_rows import documents_of_rows

_DELIMITERS = ",;\t|"
_MAX_CELL_CHARACTERS = 2**27


class Delimited(FileReader):
    """Reader of ``.csv`` and ``.tsv`` files with a header."""

    name = "csv"
    suffixes = (".csv", ".tsv")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        yield from documents_of_rows(rows_of(data), options)


def rows_of(data: bytes) -> Iterator[dict[str, str]]:
    """Yield the rows of a table by the names in its header; the delimiter is the one that the header has most."""
    text = decoded(data)
    header = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=header.count)
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    for row in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
        yield {name: value for name, value in row.items() if name is not None}
