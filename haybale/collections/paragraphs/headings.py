"""``headings``: sections of plain text, found by the form of their headings.

A heading is a line that begins with ``#`` (Markdown), stands over a rule of one repeated sign at least as long
(reStructuredText), begins with ``§ 12``, ``Art. 5``, ``Article 5`` or ``Section 5``, is numbered (``II. Facts``,
``A. Background``, ``2.1 Method``), or is in capitals. The last three must be short, and end as no sentence does.
"""

from __future__ import annotations

import re

from haybale.collections.paragraphs.blank_lines import split_blank_lines
from haybale.collections.paragraphs.paragraph import Paragraph, uniquely_labelled

_MOST_WORDS = 12
_RULE = re.compile(r"([=\-~^#*+])\1{2,}")
_MARKDOWN = re.compile(r"#{1,6}\s+(?=\S)")
_LAW = re.compile(
    r"(?:§§?|Art\.|Article|Artikel|Section|Sec\.)\s*(?:[0-9]+[a-z]?|[IVXLC]+)\b[.:)]?(?:\s+(?P<title>.*))?"
)
_NUMBERED = re.compile(r"(?:(?:[IVXLC]+|[A-Z]|[0-9]{1,2})[.)]|[0-9]{1,2}(?:\.[0-9]{1,2})+\.?)\s+(?P<title>.*)")


def split_headings(text: str) -> list[Paragraph]:
    """A section is its heading, a line break, and its text in one line; the heading is also its label.

    A heading without a text of its own stands before the next one. What comes before the first heading is labelled
    ``0``. Dropped are the signs that make a heading, ``#`` and rules. A text without headings is split at blank lines.

    >>> split_headings("# Facts\\nIt rained.\\nA lot.\\n\\nII. Law\\nNone.")
    [Paragraph(text='Facts\\nIt rained. A lot.', label='Facts'), Paragraph(text='II. Law\\nNone.', label='II. Law')]
    """
    lines = [line.strip() for line in text.split("\n")]
    sections: list[tuple[list[str], list[str]]] = [([], [])]  # headings, text
    number = 0
    while number < len(lines):
        heading, used = _heading(lines, number)
        number += used
        if heading is None:
            if line := lines[number - 1]:
                sections[-1][1].append(line)
        elif sections[-1][1]:
            sections.append(([heading], []))
        else:
            sections[-1][0].append(heading)
    if not any(headings for headings, _ in sections):
        return split_blank_lines(text)
    found = []
    for headings, body in sections:
        whole = "\n".join([*headings, " ".join(body)] if body else headings)
        found.append(Paragraph(whole, headings[-1] if headings else "0"))
    return uniquely_labelled(found)


def _heading(lines: list[str], number: int) -> tuple[str | None, int]:
    """The heading that begins at a line, or None, and how many lines it takes."""
    line, below = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
    if _is_rule(line):  # over a title, with the same rule below it
        if below and not _is_rule(below) and number + 2 < len(lines) and lines[number + 2] == line:
            return below, 3
        return None, 1
    if line and _is_rule(below) and len(below) >= len(line):
        return line, 2
    if match := _MARKDOWN.match(line):
        words = line[match.end() :].split()
        closing = len(words) > 1 and not words[-1].strip("#")  # "# Facts #"
        return " ".join(words[:-1] if closing else words), 1
    return (line, 1) if _reads_as_heading(line) else (None, 1)


def _is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None


def _reads_as_heading(line: str) -> bool:
    if not line or len(line) > 200 or len(line.split()) > _MOST_WORDS:
        return False
    if match := _LAW.fullmatch(line):
        title = match["title"] or ""
        return not title[:1].islower() and not title.endswith((".", ";", ",", "!", "?"))
    if line.endswith((".", ";", ",", "!", "?")):
        return False
    if match := _NUMBERED.fullmatch(line):
        return match["title"][:1].isupper()
    return line.isupper() and line[0].isalpha() and sum(map(str.isalpha, line)) >= 4
