"""``lines``: every line that is not empty is a paragraph, as in BEIR's layout."""

from __future__ import annotations

from haybale.collections.paragraphs.paragraph import Paragraph, counted


def split_lines(text: str) -> list[Paragraph]:
    """Drops nothing but white space at the ends of lines.

    >>> [p.text for p in split_lines("one line\\n\\n another ")]
    ['one line', 'another']
    """
    return counted(line.strip() for line in text.split("\n") if line.strip())
