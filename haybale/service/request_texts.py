"""Check the length of texts that a request brings, and split queries into paragraphs."""

from __future__ import annotations

import re

from haybale.errors import InputError
from haybale.service.file_worker import MAX_PARAGRAPHS, MAX_TEXT


def paragraphs(text: str) -> str | list[str]:
    """Return the paragraphs of a text that blank lines separate; a text without blank lines as it is."""
    check_length(text)
    if not text.strip():
        raise InputError("text= must say what to search for, found an empty text; give a few words")
    parts = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) > MAX_PARAGRAPHS:
        raise InputError(
            f"a text must have at most {MAX_PARAGRAPHS:,} paragraphs, found {len(parts):,}; shorten it, or use "
            "haybale search, which has no such limit"
        )
    return parts if len(parts) > 1 else text.strip()


def check_length(text: str) -> None:
    """Raise :class:`~haybale.InputError` for a text of too many characters."""
    if len(text) > MAX_TEXT:
        raise InputError(f"a text must have at most {MAX_TEXT:,} characters, found {len(text):,}; shorten it")
