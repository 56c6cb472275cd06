"""Name the sections that are pages of a file: "page 3", or "page 3, read by OCR"."""

from __future__ import annotations

import re
from typing import NamedTuple

_BY_OCR = "read by OCR"
_TITLE = re.compile(r"page (\d{1,9})(?:, (.+))?")


class TitledPage(NamedTuple):
    """A page by its number from 1, and how it was read, or None."""

    number: int
    reading: str | None = None

    @property
    def by_ocr(self) -> bool:
        """Whether its text was recognised in a picture."""
        return self.reading == _BY_OCR


def title_of_page(number: int, by_ocr: bool) -> str:
    """Return the title of the section that is a page."""
    return f"page {number}" + (f", {_BY_OCR}" if by_ocr else "")


def page_of_title(title: str) -> TitledPage | None:
    """Return the page that a section is; None for a heading.

    >>> page_of_title(title_of_page(3, by_ocr=True)), page_of_title("page three")
    (TitledPage(number=3, reading='read by OCR'), None)
    """
    match = _TITLE.fullmatch(title)
    return None if match is None else TitledPage(int(match[1]), match[2])
