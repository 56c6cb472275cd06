"""Join words that are divided at the ends of lines, and tell them from hyphens that belong to the text.

A hyphen at the end of a line has one of three reasons: the word is divided ("Ver-|trag"), the word has a hyphen
("long-|term"), or the hyphen stands for a part of a later word ("Miet-|und Pachtvertrag", a suspended hyphen). The
other words of the document tell them apart; where they do not, the shape of both parts and of the next word does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from haybale.analysis import LANGUAGES, stop_words

HYPHENS = ("-", "\u00ad", "\u2010")
_HYPHEN = re.escape("".join(HYPHENS))
_SOFT_HYPHEN = "\u00ad"
_MIN_WORDS = 200  # of a document whose languages are recognised by their function words
_SHARE_OF_BEST = 0.5  # of the function words of its best language, that another language of a document has
_MIN_FREQUENCY = 0.01  # of a function word in a document of any language
_MIN_SCORE = 3  # of a suspended hyphen
_MIN_PART = 4  # letters of a word that is a part of one with a hyphen, if nothing else says so
_VOWELS = set("aeiouyäöüåæøœáàâãéèêëíìîïóòôõúùûýőűăąęěůıаеёиоуыэюяієїαεηιουωάέήίόύώ")

_LAST_WORD = re.compile(rf"(?<![^\W_])([^\W_]+)[{_HYPHEN}]$")
_FIRST_WORD = re.compile(rf"([^\W_]+)([^\s{_HYPHEN}]*)([{_HYPHEN}]?\S*)")
_WORD = re.compile(r"[^\W\d_]+")
_COMPOUND = re.compile(rf"(?<![\w{_HYPHEN}])([^\W\d_]++)[-\u2010]([^\W\d_]+)(?![\w{_HYPHEN}])")
_DIVIDED = re.compile(rf"(?<![^\W\d_])([^\W\d_]++)[{_HYPHEN}]\n([^\W\d_]+)")
_SUSPENDED = re.compile(r"[^\W\d_][-\u2010] ([^\W\d_]+)")

Division = Literal["joined", "hyphenated", "suspended"]


@dataclass
class DocumentWords:
    """The words of a document that stand within its lines.

    ``words`` counts them as they are written, ``folded`` without regard to case; ``compounds`` counts pairs of words
    with a hyphen between them, ``first_parts`` and ``last_parts`` their parts; ``after_hyphens`` counts words after a
    hyphen and a space, which are conjunctions as a rule.
    """

    words: Counter[str] = field(default_factory=Counter)
    folded: Counter[str] = field(default_factory=Counter)
    compounds: Counter[str] = field(default_factory=Counter)
    first_parts: set[str] = field(default_factory=set)
    last_parts: set[str] = field(default_factory=set)
    after_hyphens: Counter[str] = field(default_factory=Counter)
    function_words: frozenset[str] = frozenset()

    @classmethod
    def of_lines(cls, lines: Sequence[str]) -> DocumentWords:
        """Count the words of lines, without the parts of words at their ends and beginnings."""
        counts, text = cls(), "\n".join(lines)
        counts.words.update(_WORD.findall(text))
        # The expressions take long, so that only the lines and tokens are searched that can have what they look for.
        is_divided = [line.endswith(HYPHENS) for line in lines]
        at_divisions = [
            line if ends_divided or begins_divided else ""
            for line, ends_divided, begins_divided in zip(lines, is_divided, [False, *is_divided], strict=False)
        ]
        counts.words.subtract(word for divided in _DIVIDED.findall("\n".join(at_divisions)) for word in divided)
        tokens = [token for token in text.split() if "-" in token or "\u2010" in token]
        for first, last in _COMPOUND.findall("\n".join(tokens)):
            counts.compounds[f"{first}-{last}".casefold()] += 1
            counts.first_parts.add(first.casefold())
            counts.last_parts.add(last.casefold())
        with_hyphens = [line for line in lines if "- " in line or "\u2010 " in line]
        counts.after_hyphens.update(word.casefold() for word in _SUSPENDED.findall("\n".join(with_hyphens)))
        for word, count in counts.words.items():
            counts.folded[word.casefold()] += count
        counts.function_words = _function_words(counts.folded)
        return counts

    def division(self, left: str, right: str, rest: str, following: str) -> Division:
        """Return why there is a hyphen between the last word of a line and the first one of the next line.

        Parameters
        ----------
        left, right : str
            Both words, without the hyphen.
        rest : str
            What follows ``right`` without a space, such as a comma.
        following : str
            The word after that; empty if there is none.

        Examples
        --------
        >>> words = DocumentWords.of_lines(["The long-term view of cooperation."])
        >>> words.division("co", "operation", "", "is"), words.division("long", "term", "", "loans")
        ('joined', 'hyphenated')
        >>> words.division("Miet", "und", "", "Pachtvertrag"), words.division("Sorgfalts", "pflicht", "", "beim")
        ('suspended', 'joined')
        """
        joined, compound = (f"{left}{mark}{right}".casefold() for mark in ("", "-"))
        if self.folded[joined] > self.compounds[compound]:
            return "joined"
        upper = len(left) > 1 and left.isupper() and right.isupper()
        if self.compounds[compound] or right[0].isdigit() or (right[0].isupper() and not upper):
            return "hyphenated"
        if self._suspended_score(left, right, rest, following) >= _MIN_SCORE:
            return "suspended"
        if len(left) == 1 or left[-1].isdigit():
            return "hyphenated"
        return "hyphenated" if self._has_both_parts(left, right) else "joined"

    def _has_both_parts(self, left: str, right: str) -> bool:
        """Return whether two words stand alone in the document, and are long, or parts of other words with hyphens."""
        first, last = left.casefold(), right.casefold()
        both = self.folded[first] > 0 and self.words[right] > 0
        return (both and min(len(first), len(last)) >= _MIN_PART) or (
            (first in self.first_parts and self.words[right] > 0)
            or (last in self.last_parts and self.folded[first] > 0)
        )

    def _suspended_score(self, left: str, right: str, rest: str, following: str) -> int:
        """Return how much speaks for a suspended hyphen: the right part is a word itself, and no end of one."""
        word, before, after = right.casefold(), left.casefold(), following.casefold()
        vowels = any(letter in _VOWELS for letter in word)
        if not after or (rest and vowels):  # a conjunction without an end; an abbreviation such as "bzw." may be one
            return 0
        if before + word in self.function_words:
            return 0
        score = 3 * (self.after_hyphens[word] > 0) + 2 * (word in self.function_words)
        score += 3 * (not vowels and word.isalpha()) + 3 * (len(word) == 1 and not rest)
        if score:
            if word[0] in _VOWELS:  # words are seldom divided before a vowel
                score += 1 if before[-1] in _VOWELS else 2
            score += left[0].isupper() and following[0].isupper() and len(word) >= 4  # nouns
            score += 2 * any(hyphen in after.rstrip("".join(HYPHENS)) for hyphen in HYPHENS)
            score -= 3 * (after in self.function_words)
        return score


def _function_words(counts: Counter[str]) -> frozenset[str]:
    """Return the function words of the languages of a document; of all languages if it is short."""
    by_language = {language: stop_words(language) for language in LANGUAGES if stop_words(language)}
    n_words = {language: sum(counts[word] for word in words) for language, words in by_language.items()}
    total = counts.total()
    least = _SHARE_OF_BEST * max(n_words.values()) if total >= _MIN_WORDS else 0
    of_languages = (by_language[language] for language, count in n_words.items() if count >= least)
    frequent = (word for word, count in counts.items() if total >= _MIN_WORDS and count >= _MIN_FREQUENCY * total)
    return frozenset(frequent).union(*of_languages)


def join_divided(lines: Sequence[str], words: DocumentWords) -> Iterator[str]:
    """Yield lines with the words joined that are divided at their ends; the end of a word moves to its beginning.

    Lines that had nothing but the end of a word are empty then, so that there are as many lines as before.

    >>> lines = ["The pre-", "mises of the short-", "and medium-term lease"]
    >>> list(join_divided(lines, DocumentWords.of_lines(lines)))
    ['The premises', 'of the short-', 'and medium-term lease']
    """
    carried = list(lines)
    for number, line in enumerate(carried):
        if not line.endswith(HYPHENS):
            yield line
            continue
        ahead = next((later for later in range(number + 1, len(carried)) if carried[later]), None)
        left = _LAST_WORD.search(line)
        right = None if ahead is None else _FIRST_WORD.match(carried[ahead])
        if left is not None and right is not None and ahead is not None:
            remainder = carried[ahead][right.end() :].lstrip()
            following = remainder.split(maxsplit=1)[0] if remainder else ""
            soft = line.endswith(_SOFT_HYPHEN)
            word, rest = right[1], right[2] + right[3]
            division = "joined" if soft else words.division(left[1], word, rest, following.strip(".,;:()"))
            if division != "suspended":
                line = (line[:-1] if division == "joined" else line) + right[0]
                carried[ahead] = remainder
                if not remainder and line.endswith(HYPHENS):  # a word on three lines
                    carried[ahead], line = line, ""
        yield line
