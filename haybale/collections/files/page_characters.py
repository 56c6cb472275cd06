"""Find where the characters of a page are: in a PDF file with PDFium, on a recognised page with Tesseract's table."""

from __future__ import annotations

import ctypes
import unicodedata
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.collections.files.file_reader import EXTRA
from haybale.collections.files.recognised_words import rows_of_table
from haybale.extras import import_optional

MAX_CHARACTERS = 200_000  # of a page; the rest is not located
_RESOLUTION = 1_000_000  # steps of a side of the page, in which PDFium says where a character is


class PageCharacters(NamedTuple):
    """The letters and digits of a page in the order of its text.

    Attributes
    ----------
    letters : str
        As :func:`letters_of` returns them, of length n.
    boxes : numpy.ndarray
        Of shape (n, 4), float32: left, top, right and bottom of each, as shares of the width and the height of the page
        as it is seen, from its upper left corner.
    begins_word : numpy.ndarray
        Of shape (n,), bool: whether the character before it on the page is not a letter or digit.
    """

    letters: str
    boxes: NDArray[np.float32]
    begins_word: NDArray[np.bool_]

    @classmethod
    def of(cls, characters: list[str], boxes: NDArray[np.float32]) -> PageCharacters:
        """Make them of the characters of a page, with a box for each; those that are spaces need no true box."""
        letters, rows, begins, is_within = list[str](), list[int](), list[bool](), False
        for row, character in enumerate(characters):
            of_character = letters_of(character)
            for letter in of_character:
                letters.append(letter)
                rows.append(row)
                begins.append(not is_within)
                is_within = True
            # An accent of its own stands within a word.
            is_within = bool(of_character) or (is_within and unicodedata.category(character[:1] or " ")[0] == "M")
        return cls("".join(letters), boxes[np.array(rows, dtype=np.int64)], np.array(begins, dtype=bool))


def letters_of(text: str) -> str:
    """Return the letters and digits of a text, without case, accents and ligatures, by which places are compared.

    >>> letters_of("Die Pﬂicht-\\nübung, § 5")
    'diepflichtubung5'
    """
    return "".join(map(_letters_of_character, text))


@lru_cache(maxsize=65_536)
def _letters_of_character(character: str) -> str:
    folded = unicodedata.normalize("NFKD", character.casefold())
    return "".join(letter for letter in folded if letter.isalnum())


def characters_of_page(page: Any) -> PageCharacters:
    """Return the characters of a ``pypdfium2.PdfPage``."""
    raw = import_optional("pypdfium2", EXTRA).raw
    text_page = page.get_textpage()
    try:
        n = min(text_page.count_chars(), MAX_CHARACTERS)
        characters = [_character(raw.FPDFText_GetUnicode(text_page, at)) for at in range(n)]
        boxes = np.zeros((n, 4), dtype=np.float32)
        left, right, bottom, top = (ctypes.c_double() for _ in range(4))
        x, y = ctypes.c_int(), ctypes.c_int()
        for at, character in enumerate(characters):
            if character.isspace() or not raw.FPDFText_GetCharBox(text_page, at, left, right, bottom, top):
                continue
            corners = []
            for of_x, of_y in ((left, bottom), (right, top)):
                # It turns and crops the page as a picture of it is.
                raw.FPDF_PageToDevice(page, 0, 0, _RESOLUTION, _RESOLUTION, 0, of_x, of_y, x, y)
                corners.append((x.value, y.value))
            (x0, y0), (x1, y1) = corners
            boxes[at] = min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
    finally:
        text_page.close()
    return PageCharacters.of(characters, (boxes / _RESOLUTION).astype(np.float32))


def _character(code: int) -> str:
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else " "


def characters_of_table(table: str) -> list[PageCharacters]:
    """Return the characters of the pages of a table of Tesseract; those of a word share its box evenly."""
    pages: dict[str, tuple[list[str], list[tuple[float, ...]]]] = {}
    sizes: dict[str, tuple[float, float]] = {}
    for row in rows_of_table(table):
        left, top, width, height = (float(row.get(name) or 0) for name in ("left", "top", "width", "height"))
        characters, boxes = pages.setdefault(row["page_num"], ([], []))
        if row.get("level") == "1":
            sizes[row["page_num"]] = max(width, 1.0), max(height, 1.0)
        word = (row["text"] or "").strip()
        if word and row["page_num"] in sizes:
            share = width / len(word)
            boxes += [(left + share * i, top, left + share * (i + 1), top + height) for i in range(len(word))]
            boxes.append((0.0, 0.0, 0.0, 0.0))
            characters += [*word, " "]
    return [
        PageCharacters.of(
            characters,
            (np.array(boxes).reshape(-1, 4) / np.tile(sizes.get(page, (1.0, 1.0)), 2)).astype(np.float32),
        )
        for page, (characters, boxes) in pages.items()
    ]
