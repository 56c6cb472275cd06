"""Read the lines of a page of a PDF file: PDFium gives the text, and the positions of its characters."""

from __future__ import annotations

import ctypes
import math
import re
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from haybale.collections.files.file_reader import EXTRA
from haybale.extras import import_optional

_LINE_END = re.compile("\r\n|[\r\n\ufffe]")  # PDFium writes U+FFFE for a hyphen at the end of a line, and the line end
_MAX_RISE = 0.6  # of the height of letters, between characters of a line
_SAMPLED_CHARACTERS = 800  # of a page that is looked at for missing spaces
_MIN_GAPS = 0.005  # gaps a word, in a file that lacks spaces
_MIN_GAP = 0.12  # of the height of letters, between words
_LETTERS = re.compile(r"[^\W_]{3,}")
_MAX_SLANT = 0.1  # sine of the angle of a line that is not turned
_GAP = 1.3  # usual distances of lines, above which a paragraph ends


@dataclass(frozen=True, slots=True)
class PDFLine:
    """A line of a page: its text, whether a paragraph ends before it, and the height of its letters in points."""

    text: str
    after_gap: bool = False
    height: float = 0.0


@contextmanager
def opened_text(page: Any) -> Iterator[TextLayer]:
    """Open the text of a ``pypdfium2.PdfPage`` in the block."""
    text_page = page.get_textpage()
    try:
        yield TextLayer(text_page)
    finally:
        text_page.close()


class TextLayer:
    """The text of a page, with the positions of its characters.

    Parameters
    ----------
    text_page : pypdfium2.PdfTextPage
    """

    def __init__(self, text_page: Any) -> None:
        self._raw = raw = import_optional("pypdfium2", EXTRA).raw
        self._page = text_page.raw
        self._x, self._y, self._box = ctypes.c_double(), ctypes.c_double(), raw.FS_RECTF()
        self._first_text = text = text_page.get_text_range()
        n_characters = text_page.count_chars()
        if "\ud800" in text or "\ufffd" in text or len(text) < n_characters:
            text = text_page.get_text_bounded().replace("\x02", "\ufffe") or text
        self._text = text
        self._is_aligned = len(text) == n_characters  # positions in the text are those of characters
        # The numbers of characters rise with their positions: if the last one is its position, all are.
        last = len(text) - 1
        self._is_numbered = last >= 0 and raw.FPDFText_GetCharIndexFromTextIndex(self._page, last) == last

    def sampled_gaps(self) -> tuple[int, int]:
        """Return how many words the beginning of the text has, and how many gaps within these lack a space."""
        text = self._first_text[:_SAMPLED_CHARACTERS]
        return len(text.split()), len(self._gaps(text))

    def lines(self, find_spaces: bool) -> list[PDFLine]:
        """Return the lines of the page in the order of the file; lines of a divided word end with a hyphen.

        Parameters
        ----------
        find_spaces : bool
            Whether to look for gaps between letters that PDFium takes for one word: see :func:`lacks_spaces`.
        """
        text = self._text
        gaps = self._gaps(text) if find_spaces and self._is_aligned else []
        positions, start = list[tuple[float, float, str]](), 0
        for end in _LINE_END.finditer(f"{text}\n"):
            self._add_line(positions, start, end.start(), "-" if end[0] == "\ufffe" else "", gaps)
            start = end.end()
        steps = [above[0] - below[0] for above, below in pairwise(positions)]
        usual = [step for step, (_, height, _) in zip(steps, positions, strict=False) if 0 < step < 3 * height]
        least = _GAP * statistics.median_low(usual) if usual else float("inf")
        after_gap = [False, *[step > least for step in steps]]
        return [
            PDFLine(line.rstrip(), gap, height) for (_, height, line), gap in zip(positions, after_gap, strict=False)
        ]

    def _add_line(
        self, positions: list[tuple[float, float, str]], start: int, end: int, hyphen: str, gaps: list[int]
    ) -> None:
        """Append the height above the bottom of the page, the height of letters and the text of a line with its hyphen.

        Two lines are appended where PDFium took short ones for one.
        """
        content = self._text[start:end]
        stripped = content.strip()
        if not stripped:
            return
        start += content.index(stripped[0])
        end = start + len(stripped)
        first, height = self._bottom(start), self._height(start)
        least = _MAX_RISE * height
        if end - start > 1 and abs(first - self._bottom(end - 1)) > least > 0:
            angle = self._raw.FPDFText_GetCharAngle(self._page, self._number(start))
            for at in range(start + 1, end) if abs(math.sin(angle)) < _MAX_SLANT else ():
                bottom = self._bottom(at)
                if abs(first - bottom) > least and not self._text[at].isspace():
                    positions.append((first, height, _spaced(self._text, start, at, gaps)))
                    start, first, height = at, bottom, self._height(at)
        positions.append((first, height, _spaced(self._text, start, end, gaps) + hyphen))

    def _gaps(self, text: str) -> list[int]:
        """Return the positions in a text of letters that have a gap before them, though no space."""
        gaps: list[int] = []
        box, box_of, page = self._box, self._raw.FPDFText_GetLooseCharBox, self._page
        for word in _LETTERS.finditer(text):
            within, right = list[int](), None
            for at in range(word.start(), word.end()):
                box_of(page, at, box)
                if right is not None and box.left - right > _MIN_GAP * (box.top - box.bottom):
                    within.append(at)
                right = box.right
            if 2 * len(within) < len(word[0]):  # otherwise the letters are spaced out
                gaps += within
        return gaps

    def _number(self, at: int) -> int:
        """Return the number of the character at a position in the text."""
        return at if self._is_numbered else int(self._raw.FPDFText_GetCharIndexFromTextIndex(self._page, at))

    def _bottom(self, at: int) -> float:
        """Return how high a character is above the bottom of the page, in points."""
        self._y.value = 0.0
        self._raw.FPDFText_GetCharOrigin(self._page, self._number(at), self._x, self._y)
        return self._y.value

    def _height(self, at: int) -> float:
        """Return how high letters of the font of a character are, in points."""
        box = self._box
        box.top = box.bottom = 0.0
        self._raw.FPDFText_GetLooseCharBox(self._page, self._number(at), box)
        return float(box.top - box.bottom)


def _spaced(text: str, start: int, end: int, gaps: list[int]) -> str:
    """Return a part of a text with spaces at gaps."""
    if not gaps:
        return text[start:end]
    cuts = [start, *gaps[bisect_right(gaps, start) : bisect_left(gaps, end)], end]
    return " ".join(text[a:b] for a, b in pairwise(cuts))


def lacks_spaces(pages: Iterable[TextLayer]) -> bool:
    """Return whether PDFium joins words of these pages that have gaps between them."""
    counts = [page.sampled_gaps() for page in pages]
    return sum(n_gaps for _, n_gaps in counts) > _MIN_GAPS * sum(n_words for n_words, _ in counts)
