"""Read a file that was uploaded as a query: the work of a process of its own, with limits of memory and time.

``python -m haybale.service.file_worker NAME`` reads the file from standard input, and writes a JSON object with
``text``, or with ``problem``. A file of a few kilobytes can unpack to gigabytes, or keep a library busy for hours; the
limits end this process then, and the service goes on.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from haybale.collections.files.file_reader import read_documents, reader_of

MAX_TEXT = 200_000  # characters of a query
MAX_MEMORY = 2**30  # bytes that reading may take beyond what Python takes
MAX_SECONDS = 20  # of CPU


def text_of(name: str, data: bytes) -> dict[str, Any]:
    """Return the text of a file as ``text``, its paragraphs separated by blank lines, or why there is none."""
    reader = reader_of(name)
    assert reader is not None
    try:
        documents, problem = read_documents(reader, data, {})
    except MemoryError:
        return {"problem": f"it takes more than {MAX_MEMORY // 2**20:,} MiB of memory"}
    if not documents:
        return {"problem": problem}
    paragraphs = [part.text for document in documents for part in document.parts]
    n_characters = sum(map(len, paragraphs)) + 2 * (len(paragraphs) - 1)
    if n_characters > MAX_TEXT:
        return {"problem": f"a text must have at most {MAX_TEXT:,} characters, found {n_characters:,}; shorten it"}
    return {"text": "\n\n".join(paragraphs)}


def main() -> None:
    """Set the limits, read and write."""
    limits = {resource.RLIMIT_CPU: MAX_SECONDS, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + MAX_MEMORY
    for kind, limit in limits.items():
        most = resource.getrlimit(kind)[1]
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (limit, limit))
    answer = text_of(sys.argv[1], sys.stdin.buffer.read())
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
