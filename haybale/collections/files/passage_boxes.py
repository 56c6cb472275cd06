"""Find the passages of a page among its characters, and the boxes around their lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from haybale.collections.files.page_characters import PageCharacters, letters_of

_SHORT_PASSAGE = 30  # letters, below which a passage must begin and end with a word
_MAX_LETTERS_OVER = 40  # of the end of a word that is on the next page
_MAX_WIDTH = 2.5  # widths of a character, of a line that runs up or down
_MAX_STEP = 1.0  # widths of such a line, between its characters
_MAX_LETTERS_BEFORE = 400  # at the top of a page, before the end of a word that is divided between pages


class Box(NamedTuple):
    """A rectangle on a page, as shares of its width and height from the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float


class LocatedPassage(NamedTuple):
    """The characters of a page that are a passage, from ``start`` to ``end``.

    ``letters_over`` are the letters at its end that are on the next page, because its last word is divided.
    """

    start: int
    end: int
    letters_over: str = ""


def locate_passages(passages: Sequence[str], page: PageCharacters) -> list[LocatedPassage | None]:
    """Return where passages are on a page; None for those that are not found, or at several places.

    Parameters
    ----------
    passages : sequence of str
        All passages of the page in their order, since the same words may be on it several times.
    page : PageCharacters

    Examples
    --------
    >>> page = PageCharacters.of([*"Rent. The ten- ant pays. Rent."], np.zeros((30, 4), dtype=np.float32))
    >>> [page.letters[at.start : at.end] for at in locate_passages(["The tenant pays.", "Rent."], page)]
    ['thetenantpays', 'rent']
    """
    letters = [letters_of(passage) for passage in passages]
    located: list[LocatedPassage | None] = [None] * len(passages)
    cursor = 0
    for i, passage in enumerate(passages):  # long ones first, which lie between them the short ones
        if len(letters[i]) >= _SHORT_PASSAGE:
            located[i] = _located(letters[i], passage, page, cursor)
            cursor = cursor if located[i] is None else max(cursor, located[i].end)  # type: ignore[union-attr]
    start = 0
    for i, passage in enumerate(passages):
        if located[i] is None and 0 < len(letters[i]) < _SHORT_PASSAGE:
            end = next((at.start for at in located[i + 1 :] if at is not None and at.start >= start), len(page.letters))
            located[i] = _whole_words(letters[i], page, start, end) or _with_word_over(passage, page, start)
        start = max(start, 0 if located[i] is None else located[i].end)  # type: ignore[union-attr]
    return located


def _located(letters: str, passage: str, page: PageCharacters, cursor: int) -> LocatedPassage | None:
    """Return where a long passage is: after a position, or anywhere if it is at one place only."""
    at = page.letters.find(letters, cursor)
    if at < 0:
        at = page.letters.find(letters)
        if page.letters.find(letters, at + 1) >= 0:
            return None
    return _with_word_over(passage, page, cursor) if at < 0 else LocatedPassage(at, at + len(letters))


def _whole_words(letters: str, page: PageCharacters, start: int, end: int) -> LocatedPassage | None:
    """Return where a text is between two positions that begins and ends with words; None if it is not there."""
    at = page.letters.find(letters, start, end)
    while at >= 0:
        after = at + len(letters)
        if page.begins_word[at] and (after == len(page.letters) or page.begins_word[after]):
            return LocatedPassage(at, after)
        at = page.letters.find(letters, at + 1, end)
    return None


def _with_word_over(passage: str, page: PageCharacters, start: int) -> LocatedPassage | None:
    """Return where a passage is whose last word ends on the next page."""
    letters, last_word = letters_of(passage), letters_of((re.split(r"\s", passage.rstrip()) or [""])[-1])
    for n_over in range(1, min(len(last_word), _MAX_LETTERS_OVER + 1)):
        located = _whole_words(letters[:-n_over], page, start, len(page.letters))
        if located is not None:
            return located._replace(letters_over=letters[-n_over:])
    return None


def locate_end_of_word(letters: str, page: PageCharacters) -> LocatedPassage | None:
    """Return where the end of a word is at the top of a page that began on the page before."""
    return _whole_words(letters, page, 0, _MAX_LETTERS_BEFORE + len(letters))


def locate_piece(piece: str, passage: LocatedPassage, page: PageCharacters) -> LocatedPassage:
    """Return where a part of a located passage is; the whole passage if the part is not found."""
    letters = letters_of(piece)
    at = page.letters.find(letters, passage.start, passage.end) if letters else -1
    if at >= 0:
        return LocatedPassage(at, at + len(letters))
    if passage.letters_over and letters.endswith(passage.letters_over):
        at = page.letters.rfind(letters.removesuffix(passage.letters_over), passage.start, passage.end)
        return passage if at < 0 else passage._replace(start=at)
    return passage


def boxes_of_lines(page: PageCharacters, located: LocatedPassage) -> list[Box]:
    """Return a box around each line of a located passage."""
    lines: list[list[float]] = []
    for box in page.boxes[located.start : located.end].tolist():
        if box[3] <= box[1] or box[2] <= box[0]:  # a character without a shape
            continue
        if lines and _continues(lines[-1], box):
            lines[-1] = [*map(min, lines[-1][:2], box[:2]), *map(max, lines[-1][2:], box[2:])]
        else:
            lines.append(box)
    kept = np.clip(np.array(lines).reshape(-1, 4), 0.0, 1.0)
    return [Box(*row) for row in kept.tolist() if row[2] > row[0] and row[3] > row[1]]


def _continues(line: list[float], box: list[float]) -> bool:
    """Return whether a character goes on with a line, which may run up or down."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if line[1] < y < line[3] or box[1] < (line[1] + line[3]) / 2 < box[3]:
        return True
    width, height = box[2] - box[0], box[3] - box[1]
    is_narrow = line[2] - line[0] < _MAX_WIDTH * width
    is_near = max(line[1], box[1]) - min(line[3], box[3]) < _MAX_STEP * max(height, line[2] - line[0])
    return is_narrow and is_near and (line[0] < x < line[2] or box[0] < (line[0] + line[2]) / 2 < box[2])
