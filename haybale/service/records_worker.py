"""Check a file of records that somebody adds: the work of a process of its own, with limits of memory and time.

``python -m haybale.service.records_worker NAME`` reads the file from standard input, and writes a JSON object with
``n_records`` and ``unread``, the places and reasons of what was not read, or with ``problem``.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from haybale.collections.files.delimited import Delimited
from haybale.collections.files.file_reader import FileReader, read_documents, reader_of
from haybale.collections.files.json_lines import JSONLines
from haybale.collections.files.plain_text import PlainText
from haybale.collections.files.references import FORMATS
from haybale.collections.files.spreadsheet import Spreadsheet
from haybale.service.file_worker import packed_problem
from haybale.service.limited_process import write_answer

_TABLES = (Delimited.name, JSONLines.name, PlainText.name, Spreadsheet.name)


def reader_of_records(name: str) -> FileReader | None:
    """Return the reader of a file of records by its name; None if its name is not that of one.

    >>> [reader_of_records(name) is not None for name in ("a.ris", "a.nbib", "a.csv", "a.txt", "a.pdf", "a.zip")]
    [True, True, True, True, False, False]
    """
    reader = reader_of(name)
    return reader if reader is not None and reader.name in (*FORMATS, *_TABLES) else None


def checked(name: str, data: bytes) -> dict[str, Any]:
    """Return how many records a file has and what was not read of it, or why it has none."""
    reader = reader_of_records(name)
    if reader is None:
        return {"problem": "expected records such as .ris, .nbib, .bib, .csv or .xlsx, found another file; export them"}
    problem = packed_problem(data)
    if problem is not None:
        return {"problem": f"expected a file of records, but {problem}; split it"}
    documents, unread = read_documents(reader, data, {})
    if not documents:
        return {"problem": "; ".join(str(part) for part in unread)}
    return {"n_records": len(documents), "unread": [(part.part, part.reason) for part in unread]}


def main() -> None:
    """Read the file from standard input with limits, and write what it has to standard output."""
    write_answer(partial(checked, sys.argv[1]), "records")


if __name__ == "__main__":
    main()
