"""Which numbers at the beginning of lines are the numbers of paragraphs.

Numbers also begin lines of lists, quotations, page breaks and orders. Those of paragraphs rise through the whole text
in one style. So, for each style, the chain of rising numbers is sought that scores best: 2 for each number it holds,
less 1 for each number it skips (counting up from 1). A jump thus has to pay for itself: ``[23]`` cited after
paragraph 7 is no paragraph, ``[9]`` after ``[7]`` is one where the text goes on with ``[10]``. Of equal chains the
one that begins earlier wins.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MOST_SKIPPED = 9
# The styles, and what of the line is text. "12.5 per cent" is no number of a paragraph.
_STYLES = (
    re.compile(r"\[[ ]?([0-9]{1,4})[ ]?\]\s*(.*)"),
    re.compile(r"([0-9]{1,4})()"),
    re.compile(r"([0-9]{1,4})\.(?:\s+(.*))?"),
)


class Number(NamedTuple):
    """A number at the beginning of a line, and the rest of it."""

    line: int
    value: int
    rest: str


def numbering(lines: list[str]) -> list[list[Number]]:
    """The numbers of paragraphs, in one chain; in two where they are used twice, as in a case in two languages.

    Brackets, ``[12]``, go before bare and dotted numbers, ``12`` and ``12.``, whose chain scores less than twice as
    much: those count pages, claims of an order, or footnotes too. A second chain is sought after the first, in the
    same style, and must score at least half as much. No chain at all is an empty list.

    >>> [[n.value for n in chain] for chain in numbering(["[1] a", "[2]", "b", "[7] quoted", "1. c", "[3] d"])]
    [[1, 2, 3]]
    """
    found = [_in_style(lines, style) for style in _STYLES]
    (brackets, bracket_score), *others = [best_chain(numbers) for numbers in found]
    chain, score = max(others, key=lambda other: other[1])
    numbers = found[1] if chain is others[0][0] else found[2]
    if bracket_score and 2 * bracket_score >= score:
        chain, score, numbers = brackets, bracket_score, found[0]
    if not chain:
        return []
    second, second_score = best_chain([number for number in numbers if number.line > chain[-1].line])
    return [chain, second] if second and 2 * second_score >= score else [chain]


def _in_style(lines: list[str], style: re.Pattern[str]) -> list[Number]:
    matches = ((line, style.fullmatch(text)) for line, text in enumerate(lines))
    return [Number(line, int(match[1]), (match[2] or "").strip()) for line, match in matches if match]


def best_chain(numbers: list[Number]) -> tuple[list[Number], int]:
    """The rising chain with the best score, and its score; linear in the length of ``numbers``.

    >>> chain, score = best_chain([Number(line, value, "") for line, value in enumerate([1, 2, 9, 3, 1])])
    >>> [number.line for number in chain], score
    ([0, 1, 3], 6)
    """
    nodes: list[tuple[Number, int]] = []  # with the node before it in its chain, -1 for none
    ends = {0: (0, -1)}  # value -> score and last node of the best chain that ends in it
    for number in numbers:
        before = [value for value in range(number.value - 1 - _MOST_SKIPPED, number.value) if value in ends]
        if not before:
            continue
        score, value = max((ends[value][0] + 3 - (number.value - value), value) for value in before)
        if number.value not in ends or score > ends[number.value][0]:
            nodes.append((number, ends[value][1]))
            ends[number.value] = (score, len(nodes) - 1)
    score, _, node = max((score, -value, node) for value, (score, node) in ends.items())
    chain = []
    while node >= 0:
        number, node = nodes[node]
        chain.append(number)
    return chain[::-1], score
