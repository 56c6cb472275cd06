"""Write texts as cells of CSV files so that no spreadsheet takes one for a formula, and read them back."""

from __future__ import annotations

import re
from typing import Any

# How a formula begins for a spreadsheet, in half or full width, after apostrophes, which mark a cell as text.
_FORMULA = re.compile("('*)[=+\\-@\t\r＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def as_cell(value: Any) -> Any:
    """Return a value for a cell: a text that a spreadsheet would calculate gets an apostrophe before it.

    Numbers stay numbers, also those that are written as texts.

    >>> [as_cell(value) for value in ("=1+1", "@SUM(A1)", "-2.5", -2.5, "a = b", "'=x", None)]
    ["'=1+1", "'@SUM(A1)", '-2.5', -2.5, 'a = b', "''=x", None]
    """
    if not isinstance(value, str) or _FORMULA.match(value) is None or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def from_cell(text: str) -> str:
    """Return the text that :func:`as_cell` made a cell of.

    >>> [from_cell(text) for text in ("'=1+1", "-2.5", "'quoted'", "''=x")]
    ['=1+1', '-2.5', "'quoted'", "'=x"]
    """
    match = _FORMULA.match(text)
    return text[1:] if match is not None and match.group(1) else text
