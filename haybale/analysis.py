"""Text to terms: what BM25 and TF-IDF count.

Lower-cased runs of two or more word characters, without stop words, reduced to Snowball stems: the analysis of
bm25s and of scikit-learn's vectorisers, shared here so that both see the same terms. Term numbers follow the
first occurrence, so equal texts give equal numbers in every process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from haybale.errors import InputError, UnknownNameError
from haybale.extras import require
from haybale.progress import track

NO_LANGUAGE = "none"  # neither stop words nor a stemmer
_STOP_WORDS = {  # in bm25s.stopwords
    language: f"STOPWORDS_{language.upper()}"
    for language in (
        *("german", "danish", "dutch", "french", "italian", "norwegian", "portuguese", "russian", "spanish", "swedish"),
        "turkish",
    )
} | {"english": "STOPWORDS_EN"}
_STEMMED_ONLY = (
    *("arabic", "armenian", "basque", "catalan", "czech", "esperanto", "estonian", "finnish", "greek", "hindi"),
    *("hungarian", "indonesian", "irish", "lithuanian", "nepali", "persian", "polish", "romanian", "serbian"),
    *("sesotho", "tamil", "yiddish"),
)
LANGUAGES = (*_STOP_WORDS, *_STEMMED_ONLY, NO_LANGUAGE)
_FIRST = ("english", "german")  # what a guess prefers
_WORD = re.compile(r"\w{2,}")
_KNOWN_WORDS = 2**20  # whose terms are remembered while texts are analysed

Split = Callable[[str], Sequence[str]]


class Terms(NamedTuple):
    """Analysed texts: ``ids[i]`` are the term numbers of text i in reading order, ``vocabulary[term]`` its number."""

    ids: list[list[int]]
    vocabulary: dict[str, int]


@dataclass(frozen=True)
class Analyzer:
    """Splits, drops stop words, stems.

    Parameters
    ----------
    language : str, default "english"
        Of the stemmer and the stop words, one of :data:`LANGUAGES`; ``"none"`` has neither.
    stop_words : iterable of str, optional
        In place of the language's own.
    function : callable, optional
        Text to its terms in reading order, in place of all this, with the language ``"none"``; it cannot be saved.

    Examples
    --------
    >>> Analyzer("english")(["Dogs and dog leads", "the lead"])
    Terms(ids=[[0, 0, 1], [1]], vocabulary={'dog': 0, 'lead': 1})
    >>> Analyzer("german", ["Gerichte"]).terms("Die Gerichte haben entschieden")
    ['die', 'hab', 'entschied']
    >>> Analyzer("none", function=str.split).terms("§ 1 BGB")
    ['§', '1', 'BGB']
    """

    language: str = "english"
    stop_words: Iterable[str] | None = None
    function: Split | None = None

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise UnknownNameError("language", self.language, LANGUAGES)
        if isinstance(self.stop_words, str):
            raise InputError("stop_words: expected several words, found a single string; put it in a list")
        if self.stop_words is not None:
            object.__setattr__(self, "stop_words", tuple(sorted({word.lower() for word in self.stop_words})))
        if self.function is not None and not callable(self.function):
            raise InputError(
                f"an analyzer is a language or a function from a text to its terms, found {self.function!r}"
            )
        if self.function is not None and (self.language != NO_LANGUAGE or self.stop_words is not None):
            raise InputError("an analyzer with a function has no stop words, and the language 'none'")

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
        known = _Known(self, numbers, grow)
        split = self.function or _words
        for text in texts:
            words = split(text)
            if isinstance(words, str):
                raise InputError(f"an analyzer's function must give a list of terms, found the string {words[:40]!r}")
            yield [number for number in map(known.__getitem__, words) if number >= 0]
            if len(known) > _KNOWN_WORDS:
                known = _Known(self, numbers, grow)

    def stemmer(self) -> Callable[[str], str]:
        """A word to its term."""
        if self.language == NO_LANGUAGE:
            return str
        try:
            # Without its cache, which is slower than stemming: each word is stemmed once.
            stem: Callable[[str], str] = require("Stemmer").Stemmer(self.language, 0).stemWord
        except KeyError:
            raise InputError(f"the PyStemmer that is installed has no stemmer for {self.language!r}") from None
        return stem

    def dropped(self) -> Iterable[str]:
        """The stop words."""
        return stop_words(self.language) if self.stop_words is None else self.stop_words

    def describe(self) -> dict[str, Any]:
        """Plain values that tell this analyzer from others; a function is told by its name alone."""
        if self.function is not None:
            name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            return {"function": f"{getattr(self.function, '__module__', None)}.{name}"}
        return {"language": self.language, "stop_words": None if self.stop_words is None else list(self.stop_words)}

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`from_dict` reads; a function is refused."""
        if self.function is not None:
            raise InputError(f"an analyzer that is a function cannot be saved: {self.describe()['function']}")
        return self.describe()

    @classmethod
    def from_dict(cls, described: Any) -> Analyzer:
        """The analyzer that ``to_dict`` described; :class:`InputError` for anything else."""
        words = described.get("stop_words", "") if isinstance(described, dict) else ""
        known = words is None or (isinstance(words, list) and all(isinstance(word, str) for word in words))
        if not known or set(described) != {"language", "stop_words"} or not isinstance(described["language"], str):
            raise InputError(f"an analyzer is a language and its stop words, found {described!r}")
        return cls(**described)


class _Known(dict[str, int]):
    """Word to term number, -1 for none; a word is stemmed where it is met first."""

    def __init__(self, analyzer: Analyzer, numbers: dict[str, int], grow: bool) -> None:
        super().__init__()
        self._stem, self._numbers, self._grow = analyzer.stemmer(), numbers, grow
        self.update(dict.fromkeys(analyzer.dropped(), -1))

    def __missing__(self, word: str) -> int:
        term, numbers = self._stem(word), self._numbers
        number = numbers.setdefault(term, len(numbers)) if self._grow else numbers.get(term, -1)
        self[word] = number
        return number


def as_analyzer(given: Analyzer | Split | str) -> Analyzer:
    """An analyzer as it is, of a language, or of a function from text to terms."""
    if isinstance(given, Analyzer):
        return given
    return Analyzer(given) if isinstance(given, str) else Analyzer(NO_LANGUAGE, function=given)


@cache
def stop_words(language: str) -> frozenset[str]:
    """bm25s's stop words of one of the :data:`LANGUAGES`; none where it has none."""
    name = _STOP_WORDS.get(language)
    return frozenset(getattr(require("bm25s.stopwords"), name)) if name else frozenset()


def guess_language(texts: Iterable[str]) -> str:
    """The language whose stop words the texts have most of: English or German, unless they clearly are of another.

    Another one needs more than twice as many stop words as these two, eight different ones among them: short
    texts, and those that quote code, hold a few of any language. Languages without stop words are never guessed.

    >>> guess_language(["Die Berufung gegen ein Urteil ist nicht ausgeschlossen."])
    'german'
    """
    words = Counter(word for text in texts for word in _words(text))
    found = {language: sum(words[word] for word in stop_words(language)) for language in _STOP_WORDS}
    first = max(_FIRST, key=found.__getitem__)
    other = max(sorted(set(_STOP_WORDS) - set(_FIRST)), key=found.__getitem__)
    is_clear = found[other] > 2 * found[first] and sum(word in words for word in stop_words(other)) >= 8
    return other if is_clear else first


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
