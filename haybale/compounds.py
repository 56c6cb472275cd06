"""Split compounds: in German, Dutch, Scandinavian languages, Finnish and Hungarian, words are written as one.

A query for *Verhältnis* should find *Mietverhältnis*. The words of a collection show how its compounds are made: a word
is split if its parts are words of the collection that are as frequent as the word itself, by their geometric mean
(Koehn & Knight 2003, "Empirical methods for compound splitting", section 3). Linking elements, such as the *s* in
*Arbeit-s-vertrag*, may stand between parts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from haybale.cached import cached_property
from haybale.errors import InputError

# Linking elements by language; a language that is not listed here has no compounds in this sense.
LINKS = {
    "german": ("", "s", "es", "n", "en", "er", "e", "ns", "ens"),
    "dutch": ("", "s", "e", "en", "er"),
    "swedish": ("", "s", "e", "u", "o"),
    "danish": ("", "s", "e"),
    "norwegian": ("", "s", "e"),
    "finnish": ("", "n"),
    "hungarian": ("",),
}
# Languages whose compounds are split by default: those in which it raised tuned BM25 (docs/findings.md).
BY_DEFAULT = ("german",)
_MIN_PART_LENGTH = 4  # characters of a part
_MAX_WORD_LENGTH = 40  # characters of a word that is split
_MAX_PARTS = 4  # of a word
_MAX_CACHED_SPLITS = 2**17  # words whose parts are kept in memory; searches analyse the same words again and again
_MIN_PART_COUNT = 3  # occurrences of a word that may be a part


class Compounds:
    """A compound splitter of one language, learned from the words of a collection.

    Parameters
    ----------
    language : str
        One of :data:`LINKS`.
    counts : mapping of str to int
        The occurrences of the words that may be parts, in lower case.

    Examples
    --------
    >>> words = ["vertrag"] * 5 + ["arbeit"] * 5 + ["arbeitsvertrag", "arbeitsverträge", "karte"]
    >>> compounds = Compounds.learn("german", words)
    >>> compounds.split("arbeitsvertrag"), compounds.split("vertrag")
    (('arbeit', 'vertrag'), ())
    """

    def __init__(self, language: str, counts: Mapping[str, int]) -> None:
        self.language, self.counts = language, dict(counts)
        self._known: dict[str, tuple[str, ...]] = {}  # the parts of words that were split before

    @cached_property
    def _logs(self) -> dict[str, float]:
        """The logarithms of the counts, which an opened index computes only when it first analyses a text."""
        return {word: math.log(count) for word, count in self.counts.items()}

    @cached_property
    def _longest(self) -> dict[str, int]:
        """The length of the longest known word with each beginning of :data:`_MIN_PART_LENGTH` characters."""
        lengths: dict[str, int] = {}
        for word in sorted(self.counts, key=len):
            lengths[word[:_MIN_PART_LENGTH]] = len(word)
        return lengths

    @classmethod
    def learn(cls, language: str, words: Iterable[str], without: Iterable[str] = ()) -> Compounds:
        """Learn from all words of a collection, with repetitions; stop words, ``without``, are no parts.

        The words may have been counted: a Counter stands for its words.
        """
        counts = Counter(words)
        for word in without:
            counts.pop(word, None)
        parts = (
            word
            for word, count in counts.items()
            if count >= _MIN_PART_COUNT and _MIN_PART_LENGTH <= len(word) <= _MAX_WORD_LENGTH and word.isalpha()
        )
        return cls(language, {word: counts[word] for word in sorted(parts)})

    def split(self, word: str) -> tuple[str, ...]:
        """Return the parts of a word, without linking elements; empty if it is no compound."""
        if not 2 * _MIN_PART_LENGTH <= len(word) <= _MAX_WORD_LENGTH:
            return ()
        parts = self._known.get(word)
        if parts is None:
            if len(self._known) >= _MAX_CACHED_SPLITS:
                self._known.clear()
            parts = self._known[word] = self._split(word)
        return parts

    def _split(self, word: str) -> tuple[str, ...]:
        best: dict[
            tuple[int, int], tuple[float, tuple[str, ...]]
        ] = {}  # splits of the rest, by its start and its number of parts
        sizes = range(1, _MAX_PARTS)
        for start in range(len(word) - _MIN_PART_LENGTH, -1, -1):
            if 0 < start < _MIN_PART_LENGTH:
                continue
            for end, part, log in self._parts(word, start):
                rests = {0: (0.0, ())} if end == len(word) else {n: best[end, n] for n in sizes if (end, n) in best}
                for n, (total, parts) in rests.items():
                    if (start, n + 1) not in best or log + total > best[start, n + 1][0]:
                        best[start, n + 1] = log + total, (part, *parts)
        splits = [best[0, n] for n in range(2, _MAX_PARTS + 1) if (0, n) in best]
        if not splits:
            return ()
        total, parts = max(splits, key=lambda split: split[0] / len(split[1]))
        return parts if total / len(parts) >= self._logs.get(word, 0.0) else ()

    def _parts(self, word: str, start: int) -> list[tuple[int, str, float]]:
        """Return the parts that may begin at ``start``, by their ends: the end, a word and the logarithm of its count.

        A part is a word of the collection, with a linking element unless the part is last. If several words give a part
        with the same end, the most frequent word is returned.
        """
        logs, last = self._logs, len(word)
        inner = last - _MIN_PART_LENGTH  # a part that is not the last one ends here or before
        best: dict[int, tuple[float, int, str]] = {}  # by end; of equally frequent words, that of the first link
        end_of_longest = min(last, start + self._longest.get(word[start : start + _MIN_PART_LENGTH], 0))
        for stem in range(start + _MIN_PART_LENGTH, end_of_longest + 1):
            if (start or stem < last) and (log := logs.get(word[start:stem])) is not None:
                for number, link in enumerate(LINKS[self.language] if stem <= inner else ("",)):
                    end = stem + len(link)
                    if (end <= inner or end == stem == last) and word.startswith(link, stem):
                        candidate = (log, -number, word[start:stem])
                        if end not in best or candidate > best[end]:
                            best[end] = candidate
        return [(end, part, log) for end, (log, _, part) in sorted(best.items())]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Compounds):
            return NotImplemented
        if self.language != other.language:
            return False
        if self.counts is not other.counts and self.counts == other.counts:
            other.counts = self.counts  # equal splitters share their counts, so that they are compared only once
        return self.counts is other.counts

    def __hash__(self) -> int:
        return hash((self.language, len(self.counts)))

    def __reduce__(self) -> Any:
        return _shared, (self.language, self.counts)  # without the caches

    def __repr__(self) -> str:
        return f"Compounds({self.language!r}, {len(self.counts):,} words)"

    @classmethod
    def from_counts(cls, language: str, counts: Any) -> Compounds:
        """Make a splitter of saved counts; :class:`InputError` for anything else."""
        valid = isinstance(counts, dict) and all(isinstance(n, int) and n > 0 for n in counts.values())
        if language not in LINKS or not valid:
            raise InputError(f"compounds: expected words with counts, found {counts!r:.80}")
        return cls(language, counts)


_last: list[Compounds | None] = [None]  # the splitter that was unpickled last


def _shared(language: str, counts: dict[str, int]) -> Compounds:
    """Return a splitter that was pickled; the tasks of a process share one, with the words that it has split before."""
    last, compounds = _last[0], Compounds(language, counts)
    if compounds == last:
        return last
    _last[0] = compounds
    return compounds
