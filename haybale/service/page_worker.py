"""Draw a page of a file for a service: the work of a process of its own, with limits of memory and time.

``python -m haybale.service.page_worker SUFFIX INDEX`` reads the file from standard input, and writes what
:func:`drawn_page` reads: a line of JSON, the picture, and arrays of the characters; or a line with ``problem``.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.page_characters import PageCharacters
from haybale.collections.files.page_picture import DrawnPage, draw_page
from haybale.errors import HaybaleError
from haybale.service.limited_process import MAX_MEMORY, MAX_SECONDS, set_limits


def drawn_page(output: bytes) -> DrawnPage:
    """Return the page that the process has drawn; Unreadable is raised if it could not."""
    line, _, rest = output.partition(b"\n")
    try:
        about = json.loads(line)
        if "problem" in about:
            raise Unreadable(about["problem"])
        n, n_bytes = len(about["letters"]), about["n_bytes"]
        boxes = np.frombuffer(rest, np.float32, 4 * n, n_bytes).reshape(n, 4)
        begins_word = np.frombuffer(rest, np.bool_, n, n_bytes + 16 * n)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, Unreadable):
            raise
        limits = f"{MAX_SECONDS} seconds or {MAX_MEMORY // 2**20:,} MiB"
        raise Unreadable(f"its page takes more than {limits} to draw; open the file itself") from None
    characters = PageCharacters(about["letters"], boxes, begins_word)
    size = about["width"], about["height"], about["n_pages"]
    return DrawnPage(rest[:n_bytes], about["media_type"], *size, characters, about["note"])


def _written(page: DrawnPage) -> bytes:
    about = {
        "media_type": page.media_type,
        "width": page.width,
        "height": page.height,
        "n_pages": page.n_pages,
        "note": page.note,
        "letters": page.characters.letters,
        "n_bytes": len(page.picture),
    }
    arrays = page.characters.boxes.astype(np.float32).tobytes() + page.characters.begins_word.tobytes()
    return json.dumps(about).encode() + b"\n" + page.picture + arrays


def main() -> None:
    """Set the limits, read the file from standard input, and write its page to standard output."""
    set_limits()
    suffix, index = sys.argv[1], int(sys.argv[2])
    try:
        output = _written(draw_page(sys.stdin.buffer.read(), suffix, index))
    except (Unreadable, HaybaleError) as error:
        output = json.dumps({"problem": str(error)}).encode() + b"\n"
    sys.stdout.buffer.write(output)


if __name__ == "__main__":
    main()
