"""``numbered``: paragraphs that carry numbers, as in cases of the Federal Court of Canada (COLIEE) and patent claims.

Althammer et al. 2022 (PARM), section 4.1, divide the cases of COLIEE into an introduction, a summary and the numbered
paragraphs, and remove the French versions and the numbers. How a number is told from a number in a list or a
quotation: :mod:`~haybale.collections.paragraphs.numbering`.
"""

from __future__ import annotations

import re

from haybale.collections.paragraphs.blank_lines import blocks
from haybale.collections.paragraphs.french import english_version, is_french, without_markers
from haybale.collections.paragraphs.numbering import Number, numbering
from haybale.collections.paragraphs.paragraph import Paragraph, counted, uniquely_labelled
from haybale.errors import InputError

FRENCH = ("drop", "keep")
_SUPPRESSED = re.compile(r"<[A-Z]{1,30}_SUPPRESSED>")
_SUMMARY, _NO_SUMMARY = "summary:", "contains no summary"


def split_numbered(text: str, *, french: str = "drop") -> list[Paragraph]:
    """Introduction ``I``, summary ``S`` (from a line ``Summary:`` to the first number), then paragraphs by number.

    Line breaks within a paragraph become spaces. Headings between two paragraphs, or two versions, end the first of
    them. A text without numbers is split at blank lines and its paragraphs labelled from 0.

    Dropped are the numbers, the word ``Summary:``, a summary that says it "contains no summary",
    ``<FRAGMENT_SUPPRESSED>`` and its like, lines without a letter or digit, and the remark which language follows.
    ``french="drop"`` also drops French: where numbers occur twice, the version that the remark, or else the text,
    says is French; then every paragraph whose function words are French. ``"keep"`` labels a second version's
    paragraphs ``"1 (2)"``.

    >>> case = "Federal Court\\n\\nSummary:\\nA visa was refused.\\n[1]\\nThe officer\\nerred.\\n[2] I agree."
    >>> [(p.label, p.text) for p in split_numbered(case)]
    [('I', 'Federal Court'), ('S', 'A visa was refused.'), ('1', 'The officer erred.'), ('2', 'I agree.')]
    """
    if french not in FRENCH:
        raise InputError(f"french must be one of {', '.join(FRENCH)}, found {french!r}")
    english = english_version(text)
    lines = clean_lines(text)
    chains = numbering(lines)
    if not chains:
        found = counted(" ".join(block) for block in blocks(lines))
        return found if french == "keep" else counted(p.text for p in found if not is_french(p.text))
    opening = _opening(lines[: chains[0][0].line])
    versions = [_version(lines, chain, end) for chain, end in zip(chains, _ends(lines, chains), strict=True)]
    if french == "keep":
        return uniquely_labelled([*opening, *(paragraph for version in versions for paragraph in version)])
    kept = [*opening, *(paragraph for version in _english(versions, english) for paragraph in version)]
    return uniquely_labelled(paragraph for paragraph in kept if not is_french(paragraph.text))


def clean_lines(text: str) -> list[str]:
    """The lines, each with single spaces, without what is no text; a line that had nothing else goes, a blank stays.

    >>> clean_lines("as in <FRAGMENT_SUPPRESSED>,\\u00a0 said\\n<FRAGMENT_SUPPRESSED>\\n\\n* * *\\nso")
    ['as in , said', '', 'so']
    """
    cleaned = []
    for line in without_markers(text).split("\n"):
        kept = " ".join(_SUPPRESSED.sub(" ", line).split())
        if any(map(str.isalnum, kept)):
            cleaned.append(kept)
        elif not line.strip():
            cleaned.append("")
    return cleaned


def _ends(lines: list[str], chains: list[list[Number]]) -> list[int]:
    return [*(chain[0].line for chain in chains[1:]), len(lines)]


def _version(lines: list[str], chain: list[Number], end: int) -> list[Paragraph]:
    """The paragraphs of one chain of numbers, the last up to the line ``end``."""
    found = []
    for place, number in enumerate(chain):
        stop = chain[place + 1].line if place + 1 < len(chain) else end
        body = " ".join(filter(None, [number.rest, *lines[number.line + 1 : stop]]))
        found.append(Paragraph(body, str(number.value)))
    return [paragraph for paragraph in found if paragraph.text]


def _opening(lines: list[str]) -> list[Paragraph]:
    """Introduction and summary, where there is text."""
    marks = [place for place, line in enumerate(lines) if line.lower() == _SUMMARY]
    first = marks[0] if marks else len(lines)
    introduction = " ".join(filter(None, lines[:first]))
    summary = " ".join(line for line in lines[first:] if line and line.lower() != _SUMMARY)
    found = [Paragraph(introduction, "I"), Paragraph(summary, "S")]
    return [p for p in found if p.text and not (p.label == "S" and _NO_SUMMARY in p.text.lower())]


def _english(versions: list[list[Paragraph]], marked: int | None) -> list[list[Paragraph]]:
    """The English of two versions, by the remark, else by their words; both where neither is known to be French."""
    if len(versions) < 2:
        return versions
    if marked is not None:
        return [versions[marked]]
    french = [is_french(" ".join(paragraph.text for paragraph in version)) for version in versions]
    return versions if all(french) else [v for v, is_it in zip(versions, french, strict=True) if not is_it]
