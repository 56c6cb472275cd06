"""``blank-lines``: what stands between blank lines is a paragraph, as in plain text and Markdown."""

from __future__ import annotations

from haybale.collections.paragraphs.paragraph import Paragraph, counted


def split_blank_lines(text: str) -> list[Paragraph]:
    """Line breaks within a paragraph become spaces; nothing is dropped.

    >>> [p.text for p in split_blank_lines("a line\\nbroken\\n\\nthe next")]
    ['a line broken', 'the next']
    """
    return counted(" ".join(block) for block in blocks(text.split("\n")))


def blocks(lines: list[str]) -> list[list[str]]:
    """Groups of lines between blank ones, stripped.

    >>> blocks(["a ", "b", "", " ", "c"])
    [['a', 'b'], ['c']]
    """
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line.strip())
        elif found[-1]:
            found.append([])
    return found if found[-1] else found[:-1]
