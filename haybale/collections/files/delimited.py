"""Read tables with commas, semicolons, tabs or bars: a row is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader
from haybale.collections.files.table_rows import Row, documents_of_rows
from haybale.collections.unread import UnreadPart
from haybale.delimited_table import named_cells, read_delimited


class Delimited(FileReader):
    """Reader of ``.csv``, ``.tsv`` and ``.tab`` files with a header."""

    name = "csv"
    suffixes = (".csv", ".tsv", ".tab")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_rows(rows_of(data), options)


def rows_of(data: bytes) -> Iterator[Row | UnreadPart]:
    """Yield the rows of a table by the names in its header, and the lines that are none."""
    decoded = decode_text(data)
    yield from decoded.unread
    table = read_delimited(decoded.text)
    yield from (UnreadPart(part=f"line {line}", reason=reason) for line, reason in table.problems)
    for line, cells in table.rows:
        yield Row(f"line {line}", named_cells(table.columns, cells))
