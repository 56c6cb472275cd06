"""Read a file that was uploaded as a query: the work of a process of its own, with limits of memory and time.

``python -m haybale.service.file_worker NAME`` reads the file from standard input, and writes a JSON object with
``text``, or with ``problem``.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
import zlib
from typing import Any

from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.service.limited_process import MAX_MEMORY, set_limits

MAX_TEXT = 200_000  # characters of a query
MAX_PARAGRAPHS = 5000  # of a query; a search is run for each
MAX_UNPACKED = 100_000_000  # bytes of a packed file, such as a document of Word

_PARAGRAPH_TAG = re.compile(rb"<(?:w|text):(?:p|h)[ >/]")  # as Word and OpenDocument write it
_TOO_MANY_PARAGRAPHS = f"a text must have at most {MAX_PARAGRAPHS:,} paragraphs, found {{:,}}; shorten it"


def text_of(name: str, data: bytes) -> dict[str, Any]:
    """Return the text of a file as ``text``, its paragraphs separated by blank lines, or why there is none."""
    reader = reader_of(name)
    assert reader is not None
    problem = packed_problem(data)
    if problem is not None:
        return {"problem": problem}
    try:
        documents, unread = read_documents(reader, data, {})
    except MemoryError:
        return {"problem": f"it takes more than {MAX_MEMORY // 2**20:,} MiB of memory"}
    if not documents:
        return {"problem": "; ".join(part.reason for part in unread)}
    paragraphs = [part.text or part.heading or "" for document in documents for part in document.parts]
    if len(paragraphs) > MAX_PARAGRAPHS:
        return {"problem": _TOO_MANY_PARAGRAPHS.format(len(paragraphs))}
    n_characters = sum(map(len, paragraphs)) + 2 * (len(paragraphs) - 1)
    if n_characters > MAX_TEXT:
        return {"problem": f"a text must have at most {MAX_TEXT:,} characters, found {n_characters:,}; shorten it"}
    return {"text": "\n\n".join(paragraphs)}


def packed_problem(data: bytes) -> str | None:
    """Return why a packed file is not read: it unpacks to too much, or has too many paragraphs; None if it is read."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = packed.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > MAX_UNPACKED:
                return f"it unpacks to {size:,} bytes, and at most {MAX_UNPACKED:,} are read"
            n_paragraphs = 0
            for entry in entries:
                if entry.filename.endswith(".xml"):
                    n_paragraphs += len(_PARAGRAPH_TAG.findall(packed.read(entry)))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        return f"damaged ({error})"
    # Paragraphs in tables, lists of styles and notes count, too, so the count may exceed that of the text.
    return _TOO_MANY_PARAGRAPHS.format(n_paragraphs) if n_paragraphs > 2 * MAX_PARAGRAPHS else None


def main() -> None:
    """Set the limits, read the file from standard input, and write its text to standard output."""
    set_limits()
    answer = text_of(sys.argv[1], sys.stdin.buffer.read())
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
