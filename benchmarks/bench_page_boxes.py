"""Measure whether passages of PDF files of other makers are boxed where Poppler says that their words are.

    python benchmarks/bench_page_boxes.py FOLDER

FOLDER is that of bench_readers.py, with the same packages of Debian. Of each file, some pages are drawn as the service
draws them, and all passages of these pages are located. The words of `pdftotext -bbox` (package poppler-utils) whose
middle is in a box of a passage are compared with the words of the passage: recall is the share of the passage that is
in its boxes, precision the share of what is in its boxes that is its own.
"""

from __future__ import annotations

import gzip
import html
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench_readers import PDF_PACKAGES, REFCARDS, unpack
from provenance import options, provenance, shown, table, write_page

from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.collections.files.page_characters import letters_of
from haybale.collections.files.page_picture import draw_page
from haybale.collections.files.passage_boxes import Box, boxes_of_lines, locate_passages

_WORD = re.compile(r'<word xMin="([^"]*)" yMin="([^"]*)" xMax="([^"]*)" yMax="([^"]*)">(.*?)</word>')
_PAGE = re.compile(r'<page width="([^"]*)" height="([^"]*)">')


class PlacedWord(NamedTuple):
    """A word of Poppler with its middle, as shares of the width and the height of the page."""

    text: str
    x: float
    y: float


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="a folder for the packages")
    parser.add_argument("--pages", type=int, default=10, help="of each file, at equal distances (default: 10)")
    parser.add_argument("--note", default="", help="a sentence for the page")
    a = parser.parse_args()
    versions = {name: unpack(a.folder, name) for name in PDF_PACKAGES}
    rows = [row for name in PDF_PACKAGES for row in rows_of(a.folder / name, name, a.pages)]
    n_passages, n_located = (sum(int(str(row[i])) for row in rows) for i in (3, 4))
    lines = [
        "# Boxes of passages on pages",
        "",
        f"Of each file, up to {a.pages} pages at equal distances. {n_located:,} of {n_passages:,} passages with a",
        "letter or digit are located; the others get no box. Recall is the share of a located passage that Poppler",
        "(`pdftotext -bbox`) has in its boxes, precision the share of what Poppler has in its boxes that is its own,",
        "both in pieces of three letters of each word. Seconds are for a page: the median of drawing it and finding",
        f"its characters. {a.note}".rstrip(),
        *table("package|file|pages|passages|located|recall|precision|s", rows, 3, show_share),
        "",
        "Packages: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        provenance(shown("bench_page_boxes.py", sys.argv[1:]), more=("pypdfium2", "pillow")),
    ]
    write_page(a.results / "page-boxes.md", lines)


def show_share(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def rows_of(folder: Path, package: str, n_pages: int) -> Iterator[list[object]]:
    """Yield a row for each PDF file of a package."""
    contents = set[bytes]()
    for path in sorted({*folder.rglob("*.pdf"), *folder.rglob("*.pdf.gz")}):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if path.is_symlink() or data in contents or (package == "debian-refcard" and path.name not in REFCARDS):
            continue
        contents.add(data)
        reader = reader_of("file.pdf")
        assert reader is not None
        passages = defaultdict[int, list[str]](list)
        documents, _ = read_documents(reader, data, {})
        for part in documents[0].parts if documents else ():
            passages[part.page or 0].append(part.text)
        if not passages:  # a file of drawings
            continue
        numbers = sorted(passages)
        sample = sorted({numbers[i * len(numbers) // n_pages] for i in range(n_pages)})
        counts, seconds = Counter[str](), list[float]()
        for number in sample:
            start = time.perf_counter()
            page = draw_page(data, ".pdf", number - 1)
            seconds.append(time.perf_counter() - start)
            placed = words_of_poppler(data, number)
            for text, located in zip(passages[number], locate_passages(passages[number], page.characters), strict=True):
                if not letters_of(text):
                    continue
                counts["passages"] += 1
                if located is not None:
                    counts["located"] += 1
                    ours = Counter(pieces(text))
                    theirs = Counter(pieces(" ".join(words_in(placed, boxes_of_lines(page.characters, located)))))
                    counts["both"] += (ours & theirs).total()
                    counts["ours"] += ours.total()
                    counts["theirs"] += theirs.total()
        recall, precision = (counts["both"] / max(1, counts[side]) for side in ("ours", "theirs"))
        name = path.name.removesuffix(".gz")
        counted = counts["passages"], counts["located"]
        yield [package, name, len(sample), *counted, recall, precision, statistics.median(seconds)]


def words_of_poppler(data: bytes, page: int) -> list[PlacedWord]:
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(data)
        file.flush()
        command = ["pdftotext", "-bbox", "-cropbox", "-f", str(page), "-l", str(page), file.name, "-"]
        text = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")
    size = _PAGE.search(text)
    assert size is not None
    width, height = float(size[1]), float(size[2])
    placed = []
    for word in _WORD.finditer(text):
        left, top, right, bottom = map(float, word.groups()[:4])
        placed.append(PlacedWord(html.unescape(word[5]), (left + right) / 2 / width, (top + bottom) / 2 / height))
    return placed


def words_in(placed: list[PlacedWord], boxes: list[Box]) -> list[str]:
    """Return the words whose middle is in one of the boxes."""
    return [
        word.text
        for word in placed
        if any(box.left <= word.x <= box.right and box.top <= word.y <= box.bottom for box in boxes)
    ]


def pieces(text: str) -> list[str]:
    """Return the letters of words in pieces of three, so that words that are divided or joined differ little."""
    words = map(letters_of, text.split())
    return [word[i : i + 3] for word in words for i in range(max(1, len(word) - 2)) if word]


if __name__ == "__main__":
    main()
