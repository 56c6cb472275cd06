"""Text to terms: what BM25 and TF-IDF count.

Lower-cased runs of two or more word characters, without stop words, reduced to Snowball stems: the analysis of
bm25s and of scikit-learn's vectorisers, shared here so that both see the same terms. Term numbers follow the
first occurrence, so equal texts give equal numbers in every process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from haybale.errors import UnknownNameError
from haybale.extras import require
from haybale.progress import track

_STOP_WORDS = {"english": "STOPWORDS_EN", "german": "STOPWORDS_GERMAN"}  # in bm25s.stopwords
LANGUAGES = tuple(_STOP_WORDS)
_WORD = re.compile(r"\b\w\w+\b")


class Terms(NamedTuple):
    """Analysed texts: ``ids[i]`` are the term numbers of text i in reading order, ``vocabulary[term]`` its number."""

    ids: list[list[int]]
    vocabulary: dict[str, int]


@dataclass(frozen=True)
class Analyzer:
    """Splits, drops stop words, stems.

    >>> Analyzer("english")(["Dogs and dog leads", "the lead"])
    Terms(ids=[[0, 0, 1], [1]], vocabulary={'dog': 0, 'lead': 1})
    >>> Analyzer("german").terms("Die Gerichte haben entschieden")
    ['gericht', 'entschied']
    """

    language: str = "english"

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise UnknownNameError("language", self.language, LANGUAGES)

    def terms(self, text: str) -> list[str]:
        """The terms of one text, in reading order, repeated as often as they occur."""
        terms = self([text])
        names = list(terms.vocabulary)
        return [names[i] for i in terms.ids[0]]

    def __call__(self, texts: Iterable[str], vocabulary: dict[str, int] | None = None) -> Terms:
        """Analyse texts; with a ``vocabulary``, terms outside it are dropped and none is added."""
        numbers: dict[str, int] = {} if vocabulary is None else vocabulary
        total = len(texts) if isinstance(texts, Sequence) else None
        return Terms(list(self.numbered(track(texts, "analysing", total), numbers, grow=vocabulary is None)), numbers)

    def numbered(self, texts: Iterable[str], numbers: dict[str, int], *, grow: bool = False) -> Iterator[list[int]]:
        """Term numbers of one text after the other; with ``grow``, unknown terms get the next number, else none."""
        stem = require("Stemmer").Stemmer(self.language).stemWord
        known: dict[str, int] = dict.fromkeys(stop_words(self.language), -1)  # word -> term number, -1: dropped
        for text in texts:
            row = []
            for word in _WORD.findall(text.lower()):
                number = known.get(word)
                if number is None:
                    term = stem(word)
                    number = numbers.setdefault(term, len(numbers)) if grow else numbers.get(term, -1)
                    known[word] = number
                if number >= 0:
                    row.append(number)
            yield row


@cache
def stop_words(language: str) -> frozenset[str]:
    """bm25s's stop words of one of the :data:`LANGUAGES`.

    >>> "nicht" in stop_words("german")
    True
    """
    return frozenset(getattr(require("bm25s.stopwords"), _STOP_WORDS[language]))


def char_ngrams(word: str, sizes: tuple[int, int]) -> list[str]:
    """The character n-grams of one word between boundary marks, of ``sizes[0]`` to ``sizes[1]`` characters.

    As scikit-learn's ``char_wb``: the marks are spaces; a word too short for a size counts once, as a whole.

    >>> char_ngrams("tax", (3, 4))
    [' ta', 'tax', 'ax ', ' tax', 'tax ']
    >>> char_ngrams("a", (3, 5))
    [' a ']
    """
    marked = f" {word} "
    grams = []
    for size in range(sizes[0], sizes[1] + 1):
        grams += [marked[i : i + size] for i in range(max(1, len(marked) - size + 1))]
        if len(marked) <= size:
            break
    return grams


def guess_language(texts: Iterable[str]) -> str:
    """The language whose stop words the texts have most of.

    >>> guess_language(["Die Berufung gegen ein Urteil ist nicht ausgeschlossen."])
    'german'
    """
    words = [word for text in texts for word in _WORD.findall(text.lower())]
    return max(LANGUAGES, key=lambda language: sum(map(stop_words(language).__contains__, words)))
