"""Snippets: a passage of a document that was found, with what carried the score marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from haybale.collections import Collection
from haybale.collections.files.page_titles import page_of_title

Span = tuple[int, int]

_LEAD_DIVISOR = 8  # 1/8 of an excerpt's width is shown before its first highlight


@dataclass(frozen=True)
class Snippet:
    """A passage with its place in the document.

    Parameters
    ----------
    passage_id, text : str
        The passage as it is in the engine.
    highlights : list of (int, int)
        Start and end in ``text`` of what carried the score, ascending and without overlaps: terms, or the nearest
        sentence where vectors carried more of it.
    page : int, optional
        The page, if the file has pages.
    heading : str, optional
        The heading that the passage stands under; of a page, how it was read: ``"read by OCR"``.
    """

    passage_id: str
    text: str
    highlights: list[Span]
    page: int | None = None
    heading: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "passage_id": self.passage_id,
            "page": self.page,
            "heading": self.heading,
            "text": self.text,
            "highlights": [list(span) for span in self.highlights],
        }

    @property
    def place(self) -> str:
        """The page and the heading in words; an empty string if there is neither."""
        page = "" if self.page is None else f"page {self.page}"
        return ", ".join(filter(None, (page, self.heading)))

    def pieces(self, width: int | None = None) -> list[tuple[str, bool]]:
        """Return the whole text in pieces; true marks a highlight. If it is longer than ``width``, an excerpt.

        >>> Snippet("a:0", "Dogs bark.", [(0, 4)]).pieces()
        [('Dogs', True), (' bark.', False)]
        """
        if width is not None and len(self.text) > width:
            return self.excerpt(width)
        parts, at = [], 0
        for start, end in self.highlights:
            parts += [(self.text[at:start], False), (self.text[start:end], True)]
            at = end
        return [piece for piece in [*parts, (self.text[at:], False)] if piece[0]]

    def excerpt(self, width: int = 300) -> list[tuple[str, bool]]:
        """Return about ``width`` characters in one line, around the most highlights, in pieces; true marks a highlight.

        >>> Snippet("a:0", "Dogs must be kept on a lead.", [(0, 4), (23, 27)]).excerpt(24)
        [('Dogs', True), (' must be kept on a …', False)]
        """
        start, end = self._window(width)
        # Each white-space character becomes one space, so that positions stay.
        line = re.sub(r"\s", " ", self.text)
        pieces = [("… ", False)] if start > 0 else []
        at = start
        for first, last in self.highlights:
            first, last = max(first, start), min(last, end)
            if first < last:
                pieces += [(line[at:first], False), (line[first:last], True)]
                at = last
        pieces += [(line[at:end], False), (" …" if end < len(line) else "", False)]
        return list(_joined(pieces))

    def _window(self, width: int) -> Span:
        """Return the start and end of the part with the most distinct highlighted words, the earliest of equals."""
        n = len(self.text)
        if n <= width:
            return 0, n
        best, start = -1, 0
        for first, _ in self.highlights or [(0, 0)]:
            begin = 0 if first < width // 2 else min(first - width // _LEAD_DIVISOR, n - width)
            words = {self.text[a:b].lower() for a, b in self.highlights if begin <= a < begin + width}
            if len(words) > best:
                best, start = len(words), begin
        end = start + width
        if start > 0:  # not in the middle of a word
            gap = re.search(r"\s", self.text[start : start + width // _LEAD_DIVISOR])
            start += gap.end() if gap else 0
        if end < n:
            cut = max(self.text.rfind(space, start + width // 2, end + 1) for space in (" ", "\n"))
            end = cut if cut > start else end
        return start, end


def _joined(pieces: list[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """Join neighbouring pieces of one kind, and drop empty ones."""
    text, kind = "", False
    for piece, marked in pieces:
        if marked != kind and text:
            yield text, kind
            text = ""
        if piece:
            text, kind = text + piece, marked
    if text:
        yield text, kind


def snippet_of(collection: Collection, passage: int, highlights: list[Span]) -> Snippet:
    """Return the snippet of a passage, given by its number, with its page or heading."""
    passages, sections = collection.passages, collection.sections
    section = -1 if passages.sections is None else int(passages.sections[passage])
    title = "" if sections is None or section < 0 else str(sections.titles[section].as_py() or "")
    page = page_of_title(title)
    return Snippet(
        str(passages.ids[passage].as_py()),
        str(passages.texts[passage].as_py()),
        highlights,
        None if page is None else page.number,
        page.reading if page is not None else title or None,
    )
