"""Split texts into paragraphs.

lines          each non-empty line, as in BEIR's layout
blank-lines    text between blank lines, as in plain text and Markdown
sentences      whole sentences, merged up to a number of words
headings       sections, recognised by the form of their headings
numbered       numbered paragraphs, as in cases of the Federal Court of Canada (COLIEE) and in patent claims
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from haybale.errors import UnknownNameError


class Paragraph(NamedTuple):
    """A paragraph and its label, such as ``"0"``, ``"S"`` or a heading; labels are unique in a document."""

    text: str
    label: str


Splitter = Callable[[str], list[Paragraph]]


def find_splitter(name: str) -> Splitter:
    r"""Return a splitter: a function from a text to its paragraphs.

    Parameters
    ----------
    name : str
        One of :data:`SPLITTERS`.

    Raises
    ------
    UnknownNameError
        There is no splitter of that name.

    Examples
    --------
    >>> [p.text for p in find_splitter("blank-lines")("a line\nbroken\n\nthe next")]
    ['a line broken', 'the next']
    """
    if name not in SPLITTERS:
        raise UnknownNameError("splitter", name, SPLITTERS)
    return SPLITTERS[name]


def split_or_whole(text: str, splitter: Splitter) -> list[Paragraph]:
    """Split a text; if the splitter finds no paragraph, return the whole text with the label 0."""
    return splitter(text) or ([Paragraph(text.strip(), "0")] if text.strip() else [])


def _numbered(texts: Iterable[str]) -> list[Paragraph]:
    """Label texts by their positions, from 0."""
    return [Paragraph(text, str(position)) for position, text in enumerate(texts)]


def _with_unique_labels(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    """Append a number to each repeated label: ``Facts``, ``Facts (2)``."""
    used: set[str] = set()
    times: Counter[str] = Counter()
    unique = []
    for text, label in paragraphs:
        times[label] += 1
        new = label
        while new in used:
            new = f"{label} ({times[label]})"
            times[label] += new in used
        used.add(new)
        unique.append(Paragraph(text, new))
    return unique


def split_lines(text: str) -> list[Paragraph]:
    """Return each non-empty line, without white space at its ends."""
    return _numbered(line.strip() for line in text.split("\n") if line.strip())


def split_blank_lines(text: str) -> list[Paragraph]:
    """Return the text between blank lines. Line breaks within a paragraph become spaces."""
    return _numbered(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> list[str]:
    """Join the lines between blank lines, with spaces."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.strip())
        elif blocks[-1]:
            blocks.append([])
    return [" ".join(block) for block in blocks if block]


_IN_ENGLISH = (
    "al app approx apr art arts assn aug bros ca cf cha chap cir cl co col corp ct dec dept div dr ed eds eg esq est "
    "etc ex exh feb ff fig figs fn gen gov hon ibid ie inc jan jr jul jun lt ltd messrs mr mrs ms no nos nov oct op "
    "ord para paras pp prof pt pts ref reg regs rev sec secs sep sept sess sr ss st supp vol vols viz vs"
)
_IN_GERMAN = (
    "abb abs abschn abw allg alt amtl anh anl anm aufl az bd bde begr bekl bem beschl bl bspw buchst bzgl bzw ders "
    "dgl dies dipl einschl entspr erg erl etw evtl ggf ggü gem halbs hrsg hs i.d.f i.d.r i.s.d i.v.m inkl insb insbes "
    "jur kap kl lit ltd m.w.n mind mio mrd mwst nr nrn o.g rd rdnr rn rspr rz sog std str tab teilw tz u.a u.u "
    "urt usw verf vgl vorl z.b z.t zit ziff zzgl"
)
_ABBREVIATIONS = frozenset((*_IN_ENGLISH.split(), *_IN_GERMAN.split()))
_OPENING, _CLOSING = "([{«»„“‘'\"–—*_", ")]}»«”“’'\"*_"
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]|[0-9]{1,2}|[IVXLC]+")


def split_sentences(text: str, words: int = 200) -> list[Paragraph]:
    """Merge sentences into paragraphs of at most ``words`` words; a longer sentence is cut between words.

    No word is dropped, and line breaks become spaces. Althammer et al. 2022 (PARM), section 4.1, split CaseLaw in
    this way.

    >>> [p.text for p in split_sentences("One two. Three four. Five six seven eight nine. Ten.", words=4)]
    ['One two. Three four.', 'Five six seven eight', 'nine. Ten.']
    """
    merged: list[list[str]] = []
    for sentence in sentences(text):
        if merged and len(merged[-1]) + len(sentence) <= words:
            merged[-1] += sentence
        else:
            merged += [sentence[start : start + words] for start in range(0, len(sentence), words)]
    return _numbered(" ".join(paragraph) for paragraph in merged)


def sentences(text: str) -> Iterator[list[str]]:
    """Yield the words of each sentence of an English or German text.

    A full stop, question mark, exclamation mark or ellipsis ends a sentence, unless the next word begins with a
    lower-case letter. A full stop does not end a sentence after an abbreviation, an initial (``J.``, ``z.B.``), a
    number of one or two digits (``am 3. Mai``) or a Roman numeral. A line break always ends a sentence.

    >>> list(sentences("See Smith v. Jones, No. 3. It holds!"))
    [['See', 'Smith', 'v.', 'Jones,', 'No.', '3.', 'It', 'holds!']]
    """
    for line in text.split("\n"):
        words = line.split()
        start = 0
        for end in range(1, len(words)):
            if _ends_sentence(words[end - 1], words[end]):
                yield words[start:end]
                start = end
        if words:
            yield words[start:]


def _ends_sentence(word: str, following: str) -> bool:
    """Return whether a sentence ends between two neighbouring words."""
    bare = word.rstrip(_CLOSING)
    if not bare.endswith((".", "!", "?", "…")) or following.lstrip(_OPENING)[:1].islower():
        return False
    if not bare.endswith(".") or bare.endswith(".."):
        return True
    stem = bare[:-1].lstrip(_OPENING)
    return not (stem.lower() in _ABBREVIATIONS or _INITIALS.fullmatch(stem))


_RULE = re.compile(r"([=\-~^#*+])\1{2,}")
_MARKDOWN = re.compile(r"#{1,6}\s+(?=\S)")
_LAW = re.compile(
    r"(?:§§?|Art\.|Article|Artikel|Section|Sec\.)\s*(?:[0-9]+[a-z]?|[IVXLC]+)\b[.:)]?(?:\s+(?P<title>.*))?"
)
_TITLED = re.compile(r"(?:(?:[IVXLC]+|[A-Z]|[0-9]{1,2})[.)]|[0-9]{1,2}(?:\.[0-9]{1,2})+\.?)\s+(?P<title>.*)")
_STOPS = (".", ";", ",", "!", "?")


def split_headings(text: str) -> list[Paragraph]:
    """Return each section as its heading, a line break, and its text in one line; the heading is also the label.

    These lines are headings:

    - a line that begins with ``#``;
    - a line that is underlined by one repeated character, over at least its length;
    - a short line that begins with ``§ 12``, ``Art. 5``, ``Article 5`` or ``Section 5``, that is numbered
      (``II. Facts``, ``2.1 Method``), or that is in capitals, unless it ends like a sentence.

    A heading without text is prepended to the next one. Text before the first heading has the label ``0``. A text
    without headings is split at blank lines.

    >>> split_headings("# Facts\\nIt rained.\\nA lot.\\n\\nII. Law\\nNone.")
    [Paragraph(text='Facts\\nIt rained. A lot.', label='Facts'), Paragraph(text='II. Law\\nNone.', label='II. Law')]
    """
    lines = [line.strip() for line in text.split("\n")]
    sections: list[tuple[list[str], list[str]]] = [([], [])]  # the headings and the lines of each section
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
    return _with_unique_labels(
        Paragraph("\n".join([*headings, " ".join(body)] if body else headings), headings[-1] if headings else "0")
        for headings, body in sections
    )


def _heading(lines: list[str], number: int) -> tuple[str | None, int]:
    """Return the heading that begins at a line, or None, and the number of lines that it takes."""
    line, below = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
    if _RULE.fullmatch(line):  # a title may have a rule above it and the same rule below it
        if below and not _RULE.fullmatch(below) and number + 2 < len(lines) and lines[number + 2] == line:
            return below, 3
        return None, 1
    if line and _RULE.fullmatch(below) and len(below) >= len(line):
        return line, 2
    if match := _MARKDOWN.match(line):
        words = line[match.end() :].split()
        closing = len(words) > 1 and not words[-1].strip("#")  # "# Facts #"
        return " ".join(words[:-1] if closing else words), 1
    return (line, 1) if _is_plain_heading(line) else (None, 1)


def _is_plain_heading(line: str) -> bool:
    """Return whether a line without markup has the form of a heading."""
    if not line or len(line) > 200 or len(line.split()) > 12:
        return False
    if match := _LAW.fullmatch(line):
        title = match["title"] or ""
        return not title[:1].islower() and not title.endswith(_STOPS)
    if line.endswith(_STOPS):
        return False
    if match := _TITLED.fullmatch(line):
        return match["title"][:1].isupper()
    return line.isupper() and line[0].isalpha() and sum(map(str.isalpha, line)) >= 4


_SUPPRESSED = re.compile(r"<[A-Z]{1,30}_SUPPRESSED>")
# Function words, without those that also occur in English, German or Latin: "on", "des", "du", "et", "est".
_FRENCH_WORDS = (
    "les dans pour par sur avec une aux au ce cette ces sont été être où elle ils elles pas leur leurs nous vous mais "
    "comme plus dont ont était avait qu que ainsi aussi selon entre sans sous fait peut doit l d le la de"
)
_ENGLISH_WORDS = (
    "the of and to in is that for was by with it not this be at from which or an are has have had were as its"
)
_FRENCH, _ENGLISH = frozenset(_FRENCH_WORDS.split()), frozenset(_ENGLISH_WORDS.split())
_ONLY_FRENCH = _FRENCH - {"l", "d", "le", "la", "de", "que", "qu"}  # these are also Italian or Spanish
_MAX_SKIPPED_NUMBERS = 9
# The styles of paragraph numbers; the second group is the rest of the line. "12.5 per cent" does not match.
_STYLES = (
    re.compile(r"\[[ ]?([0-9]{1,4})[ ]?\]\s*(.*)"),
    re.compile(r"([0-9]{1,4})()"),
    re.compile(r"([0-9]{1,4})\.(?:\s+(.*))?"),
)


class _Number(NamedTuple):
    """A number at the beginning of a line, with the rest of the line."""

    line: int
    value: int
    rest: str


def split_numbered(text: str) -> list[Paragraph]:
    """Return the introduction ``I``, the summary ``S`` (from ``Summary:`` to the first number), and the paragraphs.

    Althammer et al. 2022 (PARM), section 4.1, split the cases of COLIEE in this way. Line breaks within a paragraph
    become spaces. A heading between two paragraphs is appended to the first one. A text without numbers is split at
    blank lines, and its paragraphs are labelled from 0.

    The following text is dropped: the numbers; the word ``Summary:``; a summary that "contains no summary"; marks such
    as ``<FRAGMENT_SUPPRESSED>``; lines without a letter or digit; the French version of a case in two languages, where
    the numbers occur twice; and every other paragraph in French.

    >>> case = "Federal Court\\n\\nSummary:\\nA visa was refused.\\n[1]\\nThe officer\\nerred.\\n[2] I agree."
    >>> [(p.label, p.text) for p in split_numbered(case)]
    [('I', 'Federal Court'), ('S', 'A visa was refused.'), ('1', 'The officer erred.'), ('2', 'I agree.')]
    """
    lines = _clean_lines(text)
    chains = numbering(lines)
    if not chains:
        return _numbered(block for block in _blocks(lines) if not is_french(block))
    ends = [*(chain[0].line for chain in chains[1:]), len(lines)]
    versions = [_version(lines, chain, end) for chain, end in zip(chains, ends, strict=True)]
    english = [part for part in versions if not is_french(" ".join(paragraph.text for paragraph in part))]
    parts = [*_opening(lines[: chains[0][0].line]), *(paragraph for part in english or versions for paragraph in part)]
    return _with_unique_labels(part for part in parts if not is_french(part.text))


def _clean_lines(text: str) -> list[str]:
    """Normalise white space and remove marks; drop lines that have only other characters, but keep blank lines."""
    cleaned = []
    for line in text.split("\n"):
        rest = " ".join(_SUPPRESSED.sub(" ", line).split())
        if any(map(str.isalnum, rest)):
            cleaned.append(rest)
        elif not line.strip():
            cleaned.append("")
    return cleaned


def _version(lines: list[str], chain: list[_Number], end: int) -> list[Paragraph]:
    """Return the paragraphs of one chain of numbers; the last one ends before line ``end``."""
    stops = [*(number.line for number in chain[1:]), end]
    bodies = (
        " ".join(filter(None, [number.rest, *lines[number.line + 1 : stop]]))
        for number, stop in zip(chain, stops, strict=True)
    )
    return [Paragraph(body, str(number.value)) for body, number in zip(bodies, chain, strict=True) if body]


def _opening(lines: list[str]) -> list[Paragraph]:
    """Return the introduction and the summary, if they have text."""
    marks = [number for number, line in enumerate(lines) if line.lower() == "summary:"]
    first = marks[0] if marks else len(lines)
    introduction = " ".join(filter(None, lines[:first]))
    summary = " ".join(line for line in lines[first:] if line and line.lower() != "summary:")
    if "contains no summary" in summary.lower():
        summary = ""
    return [Paragraph(part, label) for part, label in ((introduction, "I"), (summary, "S")) if part]


def is_french(text: str) -> bool:
    """Return whether a text is French.

    A text is French if it has at least three distinct French function words that are not also Italian or Spanish, and
    if French function words make up at least 10 % of all words and outnumber the English ones.

    >>> is_french("La requête est accordée par le juge pour les motifs exposés dans cette décision.")
    True
    >>> is_french("The motion is granted. Les dépens."), is_french("Die Klage des Klägers wird abgewiesen.")
    (False, False)
    """
    words = [word.lower() for word in re.findall(r"[^\W\d_]+", text)]
    french = [word for word in words if word in _FRENCH]
    english = sum(word in _ENGLISH for word in words)
    return len(set(french) & _ONLY_FRENCH) >= 3 and 10 * len(french) >= len(words) and len(french) > english


def numbering(lines: list[str]) -> list[list[_Number]]:
    """Return the paragraph numbers as one chain, or as two chains for a case in two languages.

    For each style, the ascending chain with the highest score is found. A chain scores 2 for each of its numbers, minus
    1 for each number that it skips, counted from 1. A ``[23]`` that is cited after paragraph 7 therefore does not start
    a paragraph. Among chains of equal score, the one that begins first wins. Numbers in brackets, ``[12]``, take
    precedence over bare and dotted numbers, which may be page numbers or footnotes, unless these score more than twice
    as much. A second chain, after the first, must score at least half as much as the first.

    >>> [[n.value for n in chain] for chain in numbering(["[1] a", "[2]", "b", "[7] quoted", "1. c", "[3] d"])]
    [[1, 2, 3]]
    """
    scored_chains = []
    for style in _STYLES:
        matches = ((line, style.fullmatch(text)) for line, text in enumerate(lines))
        numbers = [_Number(line, int(match[1]), (match[2] or "").strip()) for line, match in matches if match]
        scored_chains.append((*_best_chain(numbers), numbers))
    brackets, *others = scored_chains
    best = max(others, key=lambda other: other[1])
    chain, score, numbers = brackets if brackets[1] and 2 * brackets[1] >= best[1] else best
    if not chain:
        return []
    second, second_score = _best_chain([number for number in numbers if number.line > chain[-1].line])
    return [chain, second] if second and 2 * second_score >= score else [chain]


def _best_chain(numbers: list[_Number]) -> tuple[list[_Number], int]:
    """Return the ascending chain with the highest score, and its score, in linear time."""
    nodes: list[tuple[_Number, int]] = []  # each number with the index of the previous node in its chain, or -1
    ends = {0: (0, -1)}  # for each value, the score and the last node of the best chain that ends there
    for number in numbers:
        before = [value for value in range(number.value - 1 - _MAX_SKIPPED_NUMBERS, number.value) if value in ends]
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


SPLITTERS: dict[str, Splitter] = {
    "lines": split_lines,
    "blank-lines": split_blank_lines,
    "numbered": split_numbered,
    "sentences": split_sentences,
    "headings": split_headings,
}
