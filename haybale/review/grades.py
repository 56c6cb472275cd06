"""Check grades of documents."""

from __future__ import annotations

from typing import Any

from haybale.errors import InputError


def check_grade(grade: Any) -> int:
    """Return a grade as an integer; anything but a whole number from 0 raises :class:`~haybale.InputError`."""
    try:
        if isinstance(grade, str) or int(grade) != grade or not 0 <= grade < 2**31:
            raise ValueError
        return int(grade)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"a grade must be 0 for irrelevant, or 1 or more for relevant; found {grade!r}") from None
