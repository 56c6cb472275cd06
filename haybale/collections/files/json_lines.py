"""Read JSON Lines: an object is a document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.file_reader import FileDocument, FileReader, Unreadable, decoded
from haybale.collections.files.table_rows import documents_of_rows


class JSONLines(FileReader):
    """Reader of ``.jsonl`` and ``.ndjson`` files."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        yield from documents_of_rows(_objects(decoded(data)), options)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise Unreadable(f"line {number}: expected a JSON object, found other text ({error})") from error
            if not isinstance(record, dict):
                raise Unreadable(f"line {number}: expected a JSON object, found {type(record).__name__}")
            yield record
