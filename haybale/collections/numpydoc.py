"""The two things of a numpydoc docstring that pydocs needs: its sections, and the names under *See Also*."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_UNDERLINE = re.compile(r"^[-=]{3,}\s*$")
# "name", "name : text", "a, b, c", ":func:`name`", "name(x, y)" at the left margin
_ROLE = re.compile(r":\w+(?::\w+)*:`~?\.?([\w.]+)`")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_NAMES_LINE = re.compile(r"^`{0,2}[A-Za-z_][\w.]*`{0,2}(?:\s*,\s*`{0,2}[A-Za-z_][\w.]*`{0,2})*\s*,?\s*$")


class Section(NamedTuple):
    """A section and its blocks (runs of lines between blank ones); the part before any heading has title ''."""

    title: str
    blocks: list[str]


def sections(docstring: str) -> list[Section]:
    """Split a docstring at its underlined headings.

    >>> sections("Adds.\\n\\nLonger.\\n\\nNotes\\n-----\\nFast.")
    [Section(title='', blocks=['Adds.', 'Longer.']), Section(title='Notes', blocks=['Fast.'])]
    """
    lines = inspect.cleandoc(docstring).split("\n")
    found: list[tuple[str, list[str]]] = [("", [])]
    i = 0
    while i < len(lines):
        heading = lines[i].strip()
        underlined = i + 1 < len(lines) and _UNDERLINE.match(lines[i + 1].strip())
        # A table's rule follows a row of cells, a heading is a few words at the margin.
        if (
            underlined
            and heading
            and not lines[i].startswith(" ")
            and len(heading.split()) <= 4
            and "  " not in heading
        ):
            found.append((heading, []))
            i += 2
            continue
        found[-1][1].append(lines[i])
        i += 1
    return [Section(title, _blocks(body)) for title, body in found if _blocks(body)]


def _blocks(lines: list[str]) -> list[str]:
    blocks = re.split(r"\n\s*\n", "\n".join(lines))
    return [block.strip("\n") for block in blocks if block.strip()]


def see_also(blocks: list[str]) -> list[str]:
    """The names a *See Also* section refers to, in order, each once.

    >>> see_also(["arcsin, sinh, cos"])
    ['arcsin', 'sinh', 'cos']
    >>> see_also(["DataFrame.join : Joins on the\\n    index.", ":func:`~numpy.dot` : Product."])
    ['DataFrame.join', 'numpy.dot']
    """
    names: list[str] = []
    for line in "\n".join(blocks).split("\n"):
        if not line.strip() or line.startswith(" "):
            continue  # continuation lines hold descriptions
        head = re.split(r"\s:\s|\s:$|\s--?\s", line, maxsplit=1)[0].removesuffix(":")
        roles = _ROLE.findall(head)
        if roles:
            names += roles
        elif _NAMES_LINE.match(head):
            names += _NAME.findall(head)
        elif match := re.match(r"^([A-Za-z_][\w.]*)\(", head):
            names.append(match.group(1))
    return list(dict.fromkeys(name.strip(".") for name in names))
