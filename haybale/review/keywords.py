"""Find a topic's keywords for inclusion and exclusion in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from haybale.search.snippets import Span

INCLUDE, EXCLUDE, TERM = "include", "exclude", "term"  # why a piece of a text is marked
MAX_KEYWORDS, MAX_CHARACTERS = 500, 200  # of a topic and kind; of one keyword


def keyword_spans(text: str, keywords: Iterable[str]) -> list[Span]:
    """Return the spans of keywords in a text, in order and without overlaps.

    Upper and lower case are the same. A keyword is whole words; with ``*`` at its end, it is the beginning of a word.
    White space between the words of a keyword stands for any white space.

    >>> keyword_spans("Randomised trials: a trial of dogs", ["random*", "trial", "a trial of"])
    [(0, 10), (19, 29)]
    """
    pattern = _pattern(tuple(keywords))
    return [] if pattern is None else [match.span() for match in pattern.finditer(text)]


@lru_cache(maxsize=256)
def _pattern(keywords: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return what matches any of the keywords, the longest first; None without keywords."""
    alternatives = []
    for keyword in sorted({" ".join(keyword.split()) for keyword in keywords}, key=lambda words: (-len(words), words)):
        stem = keyword.rstrip("*").rstrip()
        if stem:
            words = r"\s+".join(map(re.escape, stem.split(" ")))
            alternatives.append(rf"{words}\w*" if keyword.endswith("*") else words)
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w)", re.IGNORECASE) if alternatives else None


def marked_pieces(
    text: str, terms: Sequence[Span], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return a text in pieces, each with why it is marked: ``"exclude"``, ``"include"``, ``"term"`` or not (empty).

    Where they overlap, a keyword for exclusion comes before one for inclusion, and this before a term of the ranking.

    >>> marked_pieces("Dogs and cats bark.", [(0, 4), (14, 18)], ["dogs"], ["cat*"])
    [('Dogs', 'include'), (' and ', ''), ('cats', 'exclude'), (' ', ''), ('bark', 'term'), ('.', '')]
    """
    kinds = [""] * len(text)
    for kind, spans in (
        (TERM, terms), (INCLUDE, keyword_spans(text, include)), (EXCLUDE, keyword_spans(text, exclude)),
    ):  # fmt: skip
        for start, end in spans:
            kinds[start:end] = [kind] * len(kinds[start:end])
    signs = zip(text, kinds, strict=True)
    return [("".join(sign for sign, _ in run), kind) for kind, run in groupby(signs, key=itemgetter(1))]
