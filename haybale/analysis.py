"""Text to terms: what BM25 and TF-IDF count.

Lower-cased runs of two or more word characters, without stop words, reduced to Snowball stems: the analysis of
bm25s and of scikit-learn's vectorisers, shared here so that both see the same terms. Term numbers follow the
first occurrence, so equal texts give equal numbers in every process.

Where no language is given it is detected, by stop words and py3langid's model of 140 languages. Languages without a
stemmer get a neutral analysis, and a line that says so.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional
from haybale.progress import track

NO_LANGUAGE = "none"  # neither stop words nor a stemmer
CHARACTERS = (
    "characters"  # the same, and in scripts without spaces overlapping pairs of characters, as Lucene's CJK has
)
_STOPPED = (  # languages with stop words, in stop_words.txt
    *("german", "danish", "dutch", "french", "italian", "norwegian", "portuguese", "russian", "spanish", "swedish"),
    *("turkish", "english"),
)
_STEMMED_ONLY = (
    *("arabic", "armenian", "basque", "catalan", "czech", "esperanto", "estonian", "finnish", "greek", "hindi"),
    *("hungarian", "indonesian", "irish", "lithuanian", "nepali", "persian", "polish", "romanian", "serbian"),
    *("sesotho", "tamil", "yiddish"),
)
LANGUAGES = (*_STOPPED, *_STEMMED_ONLY, NO_LANGUAGE, CHARACTERS)
_CODES = """
ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish et:estonian
eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian
it:italian lt:lithuanian nb:norwegian ne:nepali nl:dutch nn:norwegian no:norwegian pl:polish pt:portuguese
ro:romanian ru:russian sr:serbian st:sesotho sv:swedish ta:tamil tr:turkish yi:yiddish
"""  # ISO 639
BY_CODE = dict(pair.split(":") for pair in _CODES.split())
_FIRST = ("english", "german")  # told by their stop words alone, and taken where nothing is told
_CLEAR = 0.1  # of all words are stop words of a language, and twice as many as of any other: it is that one
_CERTAIN = 0.9  # probability at which a detected language is believed
# Thai and Lao, Burmese, Khmer, kana, Chinese characters
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(r"\w{2,}")
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]{{2,}}")
_KNOWN_WORDS = 2**20  # whose terms are remembered while texts are analysed

Tokenize = Callable[[str], Sequence[str]]


class LanguageWarning(UserWarning):
    """Texts are in a language that has neither stemmer nor stop words here; the message says how they are analysed."""


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
        Of the stemmer and the stop words, one of :data:`LANGUAGES`; ``"none"`` has neither, ``"characters"`` makes
        terms of two characters in scripts without spaces.
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
    function: Tokenize | None = None

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
        split = self.function or (_pairs if self.language == CHARACTERS else _words)
        for text in texts:
            words = split(text)
            if isinstance(words, str):
                raise InputError(f"an analyzer's function must give a list of terms, found the string {words[:40]!r}")
            yield [number for number in map(known.__getitem__, words) if number >= 0]
            if len(known) > _KNOWN_WORDS:
                known = _Known(self, numbers, grow)

    def stemmer(self) -> Callable[[str], str]:
        """A word to its term."""
        if self.language in (NO_LANGUAGE, CHARACTERS):
            return str
        try:
            # Without its cache, which is slower than stemming: each word is stemmed once.
            stem: Callable[[str], str] = import_optional("Stemmer").Stemmer(self.language, 0).stemWord
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


def as_analyzer(given: Analyzer | Tokenize | str) -> Analyzer:
    """An analyzer as it is, of a language, or of a function from text to terms."""
    if isinstance(given, Analyzer):
        return given
    return Analyzer(given) if isinstance(given, str) else Analyzer(NO_LANGUAGE, function=given)


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of one of the :data:`LANGUAGES`; an empty set for a language without a list."""
    return _lists().get(language, frozenset())


@cache
def _lists() -> dict[str, frozenset[str]]:
    lines = Path(__file__).with_name("stop_words.txt").read_text("utf-8").splitlines()
    named = (line.partition(":") for line in lines if not line.startswith("#"))
    return {language: frozenset(words.split()) for language, _, words in named}


def guess_language(texts: Iterable[str]) -> str:
    """The language of texts: one of :data:`LANGUAGES`.

    English and German are told by their stop words where these are clear, all others by py3langid (Lui & Baldwin 2012,
    "langid.py: An off-the-shelf language identification tool"). A language without a stemmer is ``"none"``, or
    ``"characters"`` if it has no spaces, and :class:`LanguageWarning` says so. Texts too short to tell are English, or
    German if they have more of its stop words.

    >>> guess_language(["Die Berufung gegen ein Urteil ist nicht ausgeschlossen."])
    'german'
    >>> guess_language(["Le bail est résilié de plein droit lorsque le locataire ne paie pas le loyer convenu."])
    'french'
    """
    texts = list(texts)
    words = Counter(word for text in texts for word in _words(text))
    found = {language: sum(words[word] for word in stop_words(language)) for language in _STOPPED}
    first, second = sorted(found, key=lambda each: (-found[each], each != "english", each))[:2]
    if first in _FIRST and found[first] >= max(_CLEAR * words.total(), 2 * found[second]):
        return first
    code, probability = _detector().classify("\n".join(texts))
    if probability >= _CERTAIN and code in BY_CODE:
        return BY_CODE[code]
    unspaced = sum(len(run) for text in texts for run in _RUN.findall(text) if _is_unspaced(run))
    if 2 * unspaced > sum(map(len, texts)):
        how, neutral = "two neighbouring characters are a term", CHARACTERS
    elif probability >= _CERTAIN:
        how, neutral = "words are taken as they are", NO_LANGUAGE
    else:
        return max(_FIRST, key=found.__getitem__)
    message = f"the texts seem to be in a language without a stemmer ({code}): {how}; a language or an analyzer decides"
    warnings.warn(message, LanguageWarning, stacklevel=2)
    return neutral


@cache
def _detector() -> Any:
    """py3langid's; its probabilities do not depend on the length of the text."""
    langid = import_optional("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def _pairs(text: str) -> list[str]:
    """Words of two or more characters; of runs in scripts without spaces all pairs of neighbours.

    >>> _pairs("租约终止 on 31 May")
    ['租约', '约终', '终止', 'on', '31', 'may']
    """
    found: list[str] = []
    for run in _RUN.findall(text.lower()):
        if _is_unspaced(run) and len(run) > 1:
            found += map("".join, pairwise(run))
        else:
            found.append(run)
    return found


def _is_unspaced(run: str) -> bool:
    return _RUN.fullmatch(run[0]) is not None  # a single one of any other script is no run


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
