"""Read the tables that OCR makes of pages, in Tesseract's format TSV: a row for each word, with its line and box."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from haybale.collections.files.page_lines import PDFLine

COLUMNS = (
    "level", "page_num", "block_num", "par_num", "line_num", "word_num", "left", "top", "width", "height", "conf",
    "text",
)  # fmt: skip
PAGE_LEVEL, WORD_LEVEL = 1, 5  # of rows; the box of a page is its size in pixels
_MIN_CONFIDENCE = 60  # per cent, of a page that is not listed


class NotRecognised(Exception):
    """The text of a page could not be recognised; the message is the reason."""


class RecognisedPage(NamedTuple):
    """The lines of a page, what is missing of its text, or an empty string, and the mean confidence in per cent."""

    lines: list[PDFLine]
    missing: str = ""
    confidence: float = 0.0


def rows_of_table(table: str) -> Iterator[dict[str, str]]:
    """Return the rows of a table, by the names of its columns."""
    return csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE)


def pages_of_table(table: str) -> list[RecognisedPage]:
    """Return the pages of a table.

    >>> names = "page_num block_num par_num line_num height conf text"
    >>> pages_of_table("\\n".join("\\t".join(row.split()) for row in (names, "1 1 1 1 20 96 Rent")))
    [RecognisedPage(lines=[PDFLine(text='Rent', after_gap=False, height=20.0)], missing='', confidence=96.0)]
    """
    pages: dict[str, list[dict[str, str]]] = {"1": []}
    for row in rows_of_table(table):
        page = pages.setdefault(row["page_num"], [])
        if (row["text"] or "").strip():
            page.append(row)
    return [_page(words) for words in pages.values()]


def _page(words: list[dict[str, str]]) -> RecognisedPage:
    """Return the page of its words, which are rows of a table."""
    if not words:
        return RecognisedPage([], "no text was recognised")
    lines: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for word in words:
        lines.setdefault((word["block_num"], word["par_num"], word["line_num"]), []).append(word)
    page: list[PDFLine] = []
    paragraph: tuple[str, ...] = ()
    for position, row in lines.items():
        text = " ".join(word["text"].strip() for word in row)
        height = statistics.median(float(word["height"]) for word in row)
        page.append(PDFLine(text, bool(page) and position[:2] != paragraph, height))
        paragraph = position[:2]
    n_characters = sum(len(word["text"]) for word in words)
    confidence = sum(len(word["text"]) * float(word["conf"]) for word in words) / n_characters
    low = f"recognised with a confidence of {confidence:.0f} % only; compare it with the picture"
    return RecognisedPage(page, low if confidence < _MIN_CONFIDENCE else "", confidence)


def joined_tables(tables: Iterable[str]) -> str:
    """Return one table with the pages of several tables of one page each, with their numbers.

    >>> joined_tables(["level\\tpage_num\\ttext\\n5\\t1\\tRent"] * 2)
    'level\\tpage_num\\ttext\\n5\\t1\\tRent\\n5\\t2\\tRent'
    """
    joined: list[str] = []
    for number, table in enumerate(tables, 1):
        names, *rows = table.rstrip("\n").split("\n")
        if number == 1:
            joined.append(names)
        for row in rows:
            level, _, rest = row.split("\t", 2)
            joined.append(f"{level}\t{number}\t{rest}")
    return "\n".join(joined)
