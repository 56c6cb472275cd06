"""Read Excel workbooks with openpyxl: each sheet is a table, and a row is a document."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Unreadable
from haybale.collections.files.table_rows import documents_of_rows
from haybale.extras import import_optional


class Spreadsheet(FileReader):
    """Reader of ``.xlsx`` files. The first row of a sheet has the names of its columns."""

    name = "xlsx"
    suffixes = (".xlsx", ".xlsm")
    packages = ("openpyxl",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        book = import_optional("openpyxl", EXTRA).load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        sheets = [(sheet.title, sheet.iter_rows(values_only=True)) for sheet in book.worksheets]
        empty = True
        for title, rows in sheets:
            header = next(rows, None)
            if header is None or not any(header):
                continue
            empty = False
            names = [str(name) if name is not None else "" for name in header]
            named = ({name: value for name, value in zip(names, row, strict=False) if name} for row in rows)
            for document in documents_of_rows(named, options):
                if len(sheets) > 1:
                    document.table, document.location = title, f"sheet {title}, {document.location}"
                yield document
        if empty:
            raise Unreadable("expected a sheet with a header, found none")
