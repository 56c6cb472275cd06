"""Number the paragraphs of a Word document, whose file has the formats of numbers, but not the numbers themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable

from haybale.collections.files.packed_xml import Element, child_of, elements, name_of, value_of

_MAX_LEVELS = 9
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


class WordNumbering:
    """The lists of a document with their counters.

    Parameters
    ----------
    root : element, optional
        The root of ``numbering.xml``.
    """

    def __init__(self, root: Element | None) -> None:
        lists = [] if root is None else list(elements(root))
        self._formats = {value_of(item, "abstractNumId"): item for item in lists if name_of(item) == "abstractNum"}
        self._lists = {value_of(item, "numId"): item for item in lists if name_of(item) == "num"}
        self._counts: dict[str | None, list[int | None]] = {}  # by format and level; None before the first number
        self._begun: set[tuple[str | None, int]] = set()  # lists and levels whose own start was used

    def label(self, properties: Iterable[Element | None], style: str | None) -> str:
        """Count a paragraph, and return its number as it is seen; an empty text without one.

        ``properties`` are those of the paragraph and of its styles, the nearest first; ``style`` is its style.
        """
        list_entries = [list_entry for element in properties if (list_entry := child_of(element, "numPr")) is not None]
        list_id = next(
            (id for list_entry in list_entries if (id := _value(child_of(list_entry, "numId"))) is not None), None
        )
        item = self._lists.get(list_id)
        format_id = _value(child_of(item, "abstractNumId"))
        numbers = self._formats.get(format_id)
        style_of_list = _value(child_of(numbers, "numStyleLink"))
        if style_of_list is not None:  # the format is that of a style of lists
            formats = self._formats.items()
            format_ids = (id for id, other in formats if _value(child_of(other, "styleLink")) == style_of_list)
            format_id = next(format_ids, format_id)
            numbers = self._formats[format_id]
        if item is None or numbers is None:
            return ""
        levels = {value_of(level, "ilvl"): level for level in elements(numbers) if name_of(level) == "lvl"}
        of_style = (n for n, level in levels.items() if style and _value(child_of(level, "pStyle")) == style)
        direct = (n for list_entry in list_entries if (n := _value(child_of(list_entry, "ilvl"))) is not None)
        number = next(direct, None) or next(of_style, None) or "0"
        if number not in levels or not number.isdecimal() or int(number) >= _MAX_LEVELS:
            return ""
        self._count(list_id, item, format_id, int(number), levels)
        return self._shown(levels, int(number), self._counts[format_id])

    def _count(
        self, list_id: str | None, item: Element, format_id: str | None, n: int, levels: dict[str | None, Element]
    ) -> None:
        """Count one more at level n, and begin those below it anew."""
        counts = self._counts.setdefault(format_id, [None] * _MAX_LEVELS)
        overrides = (level for level in elements(item) if value_of(level, "ilvl") == str(n))
        override = next((start for level in overrides if (start := child_of(level, "startOverride")) is not None), None)
        if override is not None and (list_id, n) not in self._begun:
            self._begun.add((list_id, n))
            counts[n] = _number(override)
        else:
            before = counts[n]
            counts[n] = _number(child_of(levels[str(n)], "start")) if before is None else before + 1
        for level in range(n):
            counts[level] = (
                _number(child_of(levels.get(str(level)), "start")) if counts[level] is None else counts[level]
            )
        counts[n + 1 :] = [None] * (_MAX_LEVELS - n - 1)

    @staticmethod
    def _shown(levels: dict[str | None, Element], n: int, counts: list[int | None]) -> str:
        if _value(child_of(levels[str(n)], "numFmt")) in ("bullet", "none"):
            return ""
        is_legal = child_of(levels[str(n)], "isLgl") is not None  # all numbers in digits

        def number(match: re.Match[str]) -> str:
            level = int(match[1]) - 1
            kind = _value(child_of(levels.get(str(level)), "numFmt")) or "decimal"
            count = counts[level] if 0 <= level < _MAX_LEVELS else None
            return "" if count is None else shown_number(count, "decimal" if is_legal else kind)

        return re.sub(r"%([1-9])", number, _value(child_of(levels[str(n)], "lvlText")) or "").strip()


def shown_number(number: int, kind: str) -> str:
    """Return a number in one of the formats of Word; in digits in those that are not known.

    >>> [shown_number(28, kind) for kind in ("decimal", "lowerLetter", "upperRoman", "decimalZero")]
    ['28', 'bb', 'XXVIII', '28']
    """
    if number < 1:
        return str(number)
    if kind.endswith("Letter"):
        text = chr(ord("a") + (number - 1) % 26) * (1 + (number - 1) // 26)
    elif kind.endswith("Roman"):
        text, rest = "", min(number, 10_000)
        for value, letters in _ROMAN:
            text, rest = text + letters * (rest // value), rest % value
    else:
        return f"{number:02}" if kind == "decimalZero" else str(number)
    return text.upper() if kind.startswith("upper") else text


def _value(element: Element | None) -> str | None:
    return None if element is None else value_of(element, "val")


def _number(element: Element | None) -> int:
    """Return the number at which a level starts."""
    text = _value(element) or "1"
    return int(text) if text.isdecimal() else 1
