"""Read JSON Lines: an object is a document."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader
from haybale.collections.files.table_rows import Row, documents_of_rows
from haybale.collections.unread import UnreadPart


class JSONLines(FileReader):
    """Reader of ``.jsonl`` and ``.ndjson`` files."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from documents_of_rows(_objects(data), options)


def _objects(data: bytes) -> Iterator[Row | UnreadPart]:
    """Yield the object of each line, and the lines that have none."""
    decoded = decode_text(data)
    yield from decoded.unread
    for number, line in enumerate(decoded.text.split("\n"), 1):
        if not line.strip():
            continue
        location = f"line {number}"
        try:
            record = json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            yield UnreadPart(part=location, reason=f"expected a JSON object, found other text ({error})")
            continue
        if isinstance(record, dict):
            yield Row(location, record)
        else:
            yield UnreadPart(part=location, reason=f"expected a JSON object, found {type(record).__name__}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; the values of a key that occurs several times are a list."""
    counts = Counter(name for name, _ in pairs)
    if len(counts) == len(pairs):
        return dict(pairs)
    return {
        name: [value for other, value in pairs if other == name] if counts[name] > 1 else value for name, value in pairs
    }
