"""Convert texts to the terms that BM25 and TF-IDF count.

A term is a lower-cased run of two or more letters, digits and underscores between them, reduced to its Snowball stem;
stop words are dropped. Underscores around a word are no part of it, since they are emphasis in Markdown and plain text.
BM25 and TF-IDF share this analysis, so that both count the same terms. Terms are numbered in the order of their first
occurrence, so that equal texts give equal numbers in every process.

If no language is given, it is detected by stop words and by py3langid's model of 140 languages. Texts in a language
without a stemmer get a neutral analysis, with a :class:`LanguageWarning`.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.compounds import BY_DEFAULT, LINKS, Compounds
from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional
from haybale.normalisation import normalise, normalised_spans
from haybale.progress import track

NO_LANGUAGE = "none"  # neither stop words nor a stemmer
# As "none", but scripts without spaces become overlapping bigrams, as in Lucene's CJKAnalyzer.
CHARACTERS = "characters"
_STOP_WORD_LANGUAGES = (  # their stop words are in stop_words.txt
    *("german", "danish", "dutch", "french", "italian", "norwegian", "portuguese", "russian", "spanish", "swedish"),
    *("turkish", "english"),
)
_STEMMED_LANGUAGES = (  # languages with a stemmer, but without stop words
    *("arabic", "armenian", "basque", "catalan", "czech", "esperanto", "estonian", "finnish", "greek", "hindi"),
    *("hungarian", "indonesian", "irish", "lithuanian", "nepali", "persian", "polish", "romanian", "serbian"),
    *("sesotho", "tamil", "yiddish"),
)
LANGUAGES = (*_STOP_WORD_LANGUAGES, *_STEMMED_LANGUAGES, NO_LANGUAGE, CHARACTERS)
_LANGUAGE_CODES = """
ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish et:estonian
eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian
it:italian lt:lithuanian nb:norwegian ne:nepali nl:dutch nn:norwegian no:norwegian pl:polish pt:portuguese
ro:romanian ru:russian sr:serbian st:sesotho sv:swedish ta:tamil tr:turkish yi:yiddish
"""  # ISO 639
BY_CODE = dict(pair.split(":") for pair in _LANGUAGE_CODES.split())
# Languages recognised by their stop words alone; one of them is assumed for texts too short to classify.
_BY_STOP_WORDS = ("english", "german")
_MIN_STOP_WORD_SHARE = 0.1  # of the words; a language is recognised if no other has more than half as many stop words
_MIN_PROBABILITY = 0.9  # at which a detected language is accepted
# Scripts without spaces: Thai and Lao, Burmese, Khmer, kana, Chinese characters.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(r"[^\W_]\w*[^\W_]")
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}][^\W{_UNSPACED}]*[^\W_{_UNSPACED}]")
_TOKEN = re.compile(rf"{_WORD.pattern}|\S")
_RUN_OR_CHARACTER = re.compile(rf"{_RUN.pattern}|\S")
# A word of any length, a character of a script without spaces, or a sign that stands for a word.
_WORD_OR_SIGN = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}](?:[^\W{_UNSPACED}]*[^\W_{_UNSPACED}])?|[§¶%&@#$£¥€°]")
_MAX_CACHED_STEMS = 2**20  # words; a larger cache of stems is cleared

Tokenize = Callable[[str], Sequence[str]]


class LanguageWarning(UserWarning):
    """Texts are in a language without a stemmer or stop words; the message says how they are analysed."""


class Terms(NamedTuple):
    """Analysed texts: ``ids[i]`` are the term numbers of text i in order; ``vocabulary`` maps terms to numbers.

    With ``factors``, the numbers of a text are distinct, and ``factors[i]`` (n,) float32 says how much each counts.
    """

    ids: list[list[int]]
    vocabulary: dict[str, int]
    factors: list[NDArray[np.float32]] | None = None


@dataclass(frozen=True)
class Analyzer:
    """Split texts into words, drop stop words, and stem the others.

    Parameters
    ----------
    language : str, default "english"
        Language of the stemmer and the stop words, one of :data:`LANGUAGES`. ``"none"`` has neither. ``"characters"``
        has neither, and splits scripts without spaces into overlapping pairs of characters.
    stop_words : iterable of str, optional
        Words to drop; by default those of the language.
    compounds : Compounds, optional
        Splits compounds; their parts are terms, too. :meth:`learned` learns it from a collection. By default none.
    function : callable, optional
        A function from a text to its terms in reading order. It replaces the analysis above, requires the language
        ``"none"`` without stop words, and cannot be saved. Another combination raises :class:`InputError`.

    Examples
    --------
    >>> terms = Analyzer("english")(["Dogs and dog leads", "the lead"])
    >>> terms.ids, terms.vocabulary
    ([[0, 0, 1], [1]], {'dog': 0, 'lead': 1})
    >>> Analyzer("german", ["Gerichte"]).terms("Die Gerichte haben entschieden")
    ['die', 'hab', 'entschied']
    >>> Analyzer("none", function=str.split).terms("§ 1 BGB")
    ['§', '1', 'BGB']
    """

    language: str = "english"
    stop_words: Iterable[str] | None = None
    function: Tokenize | None = None
    compounds: Compounds | None = None

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise UnknownNameError("language", self.language, LANGUAGES)
        if isinstance(self.stop_words, str):
            raise InputError("stop_words: expected a list of words, found a single string; put it in a list")
        if self.stop_words is not None:
            words = {lowered(normalise(word), self.language) for word in self.stop_words}
            object.__setattr__(self, "stop_words", tuple(sorted(words)))
        if self.function is not None and not callable(self.function):
            raise InputError(f"analyzer: expected a language or a function, found {self.function!r}")
        if self.function is not None and (self.language != NO_LANGUAGE or self.stop_words is not None):
            raise InputError("an analyzer with a function must have the language 'none' and no stop words; set them")

    @property
    def whole_words(self) -> Analyzer:
        """The analyzer whose terms are whole words only, without the parts of compounds."""
        return self if self.compounds is None else replace(self, compounds=None)

    def terms(self, text: str) -> list[str]:
        """Return the terms of one text, in reading order and with repetitions."""
        terms = self([text])
        names = list(terms.vocabulary)
        return [names[i] for i in terms.ids[0]]

    def tokens(self, text: str) -> list[str]:
        """Return the words of one text in reading order, in lower case and unstemmed, and the characters between them.

        Stop words are words, too. Each other character that is not white space is a token of its own.

        >>> Analyzer("english").tokens("Of dogs (and 1 Dog).")
        ['of', 'dogs', '(', 'and', '1', 'dog', ')', '.']
        """
        if self.function is not None:
            return list(self.function(normalise(text)))
        lower = lowered(normalise(text), self.language)
        if lower.isascii() or not _HAS_UNSPACED.search(lower):
            return _TOKEN.findall(lower)
        return [token for run in _RUN_OR_CHARACTER.findall(lower) for token in _words(run, self.language) or [run]]

    def is_word(self, token: str) -> bool:
        """Return whether a token is a word, from which terms are made.

        >>> [Analyzer("english").is_word(token) for token in ("dogs", "1", ".", "租")]
        [True, False, False, True]
        """
        return self.function is not None or bool(_words(token, self.language))

    def term_spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return the terms of a text as :meth:`terms` does, each with its start and end in the text as given.

        A ``function`` is applied to one run of characters without white space at a time. The parts of a compound stand
        where the compound stands.

        >>> Analyzer("english").term_spans("the o\\ufb03ces of Bu\\u0308rger")
        [('offic', 4, 9), ('bürger', 13, 20)]
        """
        (spans,) = self.spans([text])
        return spans

    def spans(self, texts: Iterable[str]) -> Iterator[list[tuple[str, int, int]]]:
        """Yield the :meth:`term_spans` of each text. A word that several texts have is stemmed once."""
        numbers: dict[str, int] = {}
        names: list[str] = []
        cache = _TermCache(self, numbers, grow=True)
        parts = _PartCache(self.compounds)
        for text in texts:
            normalised, origins = normalised_spans(text)
            words: Iterable[tuple[str, int, int]] = _word_spans(normalised, self.language)
            if self.function is not None:
                runs = re.finditer(r"\S+", normalised)
                words = [(word, *run.span()) for run in runs for word in self.function(run[0])]
            numbered_parts = [
                (cache[part], start, end)
                for word, start, end in words
                for part in ((word,) if self.compounds is None else parts[word])
            ]
            names += list(islice(numbers, len(names), None))
            starts, ends = origins[:, 0].tolist(), origins[:, 1].tolist()
            yield [(names[n], starts[start], ends[end - 1]) for n, start, end in numbered_parts if n >= 0]

    def phrase_terms(self, text: str) -> list[str]:
        """Return the terms of a text for phrases: of all words, also those that are no terms of an index.

        Single letters and digits, stop words, and the signs §, ¶, %, &, @, #, ° and those of currencies count as they
        are written, after ``=``. The characters of scripts without spaces are terms of their own, and compounds are not
        split. A ``function`` gives its own terms.

        >>> Analyzer("english").phrase_terms("Exhibit B, the leases (§ 5)")
        ['exhibit', '=b', '=the', 'leas', '=§', '=5']
        """
        if self.function is not None:
            return self.terms(text)
        cache = _PhraseTermCache(self)
        return [cache[word] for word in _WORD_OR_SIGN.findall(lowered(normalise(text), self.language))]

    def phrase_spans(self, texts: Iterable[str]) -> Iterator[list[tuple[str, int, int]]]:
        """Yield the :meth:`phrase_terms` of each text, each with its start and end in the text as given.

        >>> next(Analyzer("english").phrase_spans(["Exhibit B"]))
        [('exhibit', 0, 7), ('=b', 8, 9)]
        """
        if self.function is not None:
            yield from self.spans(texts)
            return
        cache = _PhraseTermCache(self)
        for text in texts:
            normalised, origins = normalised_spans(text)
            starts, ends = origins[:, 0].tolist(), origins[:, 1].tolist()
            words = _WORD_OR_SIGN.finditer(lowered(normalised, self.language))
            yield [(cache[word[0]], starts[word.start()], ends[word.end() - 1]) for word in words]

    def has_phrase(self, texts: Iterable[str], terms: Sequence[str]) -> Iterator[bool]:
        """Yield whether each text has phrase terms next to each other, in this order.

        >>> list(Analyzer("english").has_phrase(["Exhibits B and C", "Exhibit C"], ["exhibit", "=b"]))
        [True, False]
        """
        cache, wanted = _PhraseTermCache(self), "\0".join(["", *terms, ""])
        literals = [] if self.function is not None else [term[1:] for term in terms if term.startswith("=")]
        for text in texts:
            if self.function is not None:
                text_terms = self.terms(text)
            else:
                lower = lowered(normalise(text), self.language)
                if not all(literal in lower for literal in literals):
                    yield False
                    continue
                text_terms = [cache[word] for word in _WORD_OR_SIGN.findall(lower)]
            yield wanted in "\0".join(["", *text_terms, ""])

    def __call__(self, texts: Iterable[str], vocabulary: dict[str, int] | None = None) -> Terms:
        """Analyse texts; with a ``vocabulary``, terms that are not in it are dropped."""
        refuse_single_text(texts)
        numbers: dict[str, int] = {} if vocabulary is None else vocabulary
        total = len(texts) if isinstance(texts, Sequence) else None
        return Terms(list(self.numbered(track(texts, "analysing", total), numbers, grow=vocabulary is None)), numbers)

    def numbered(self, texts: Iterable[str], numbers: dict[str, int], *, grow: bool = False) -> Iterator[list[int]]:
        """Yield the term numbers of each text; with ``grow``, unknown terms get new numbers, else they are dropped."""
        refuse_single_text(texts)
        cache = _TermCache(self, numbers, grow)
        split = self.function or partial(_words, language=self.language)
        parts = _PartCache(self.compounds)
        for text in texts:
            words = split(normalise(text))
            if isinstance(words, str):
                raise InputError(f"the analyzer function must return a list of terms, found the string {words[:40]!r}")
            if self.compounds is not None:
                words = [part for word in words for part in parts[word]]
            yield [number for number in map(cache.__getitem__, words) if number >= 0]
            if len(cache) > _MAX_CACHED_STEMS:
                cache = _TermCache(self, numbers, grow)

    def numbered_words(self, words: Iterable[str], numbers: dict[str, int]) -> Iterator[list[int]]:
        """Yield the term numbers of single words, as :meth:`numbered` numbers them with ``grow`` in a text.

        >>> list(Analyzer("english").numbered_words(["dogs", "and", "dog"], {}))
        [[0], [], [0]]
        """
        cache, parts = _TermCache(self, numbers, grow=True), _PartCache(self.compounds)
        for word in words:
            word_parts = (word,) if self.compounds is None else parts[word]
            yield [number for number in map(cache.__getitem__, word_parts) if number >= 0]

    def splits_like(self, other: Analyzer) -> bool:
        """Return whether another analyzer splits any text into the same words, of which each makes its own terms.

        >>> Analyzer("german").splits_like(Analyzer("none")), Analyzer("turkish").splits_like(Analyzer("none"))
        (True, False)
        """
        if any(analyzer.function is not None or analyzer.compounds is not None for analyzer in (self, other)):
            return False
        return (self.language == "turkish") == (other.language == "turkish")  # see lowered()

    def stemmer(self) -> Callable[[str], str]:
        """Return a function from a word to its term."""
        if self.language in (NO_LANGUAGE, CHARACTERS):
            return str
        try:
            # 0 turns PyStemmer's cache off: each word is stemmed only once, and the cache is slower than stemming.
            stem: Callable[[str], str] = import_optional("Stemmer").Stemmer(self.language, 0).stemWord
        except KeyError:
            message = f"the installed PyStemmer has no stemmer for {self.language!r}; update PyStemmer"
            raise InputError(message) from None
        return stem

    def describe(self) -> dict[str, Any]:
        """Return plain values that identify this analyzer; a function is identified by its name only."""
        if self.function is not None:
            name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            return {"function": f"{getattr(self.function, '__module__', None)}.{name}"}
        stopped = None if self.stop_words is None else list(self.stop_words)
        compounds = {} if self.compounds is None else {"compounds": self.compounds.counts}
        return {"language": self.language, "stop_words": stopped} | compounds

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for :meth:`from_dict`; an analyzer with a function raises :class:`InputError`."""
        if self.function is not None:
            name = self.describe()["function"]
            raise InputError(f"an analyzer with a function cannot be saved: {name}; use a language instead")
        return self.describe()

    @classmethod
    def from_dict(cls, described: Any) -> Analyzer:
        """Return the analyzer that ``to_dict`` described; anything else raises :class:`InputError`."""
        words = described.get("stop_words", "") if isinstance(described, dict) else ""
        valid = words is None or (isinstance(words, list) and all(isinstance(word, str) for word in words))
        names = set(described) - {"compounds"} if valid else set()
        if names != {"language", "stop_words"} or not isinstance(described["language"], str):
            raise InputError(f"analyzer: expected 'language' and 'stop_words', found {described!r:.80}")
        language, counts = described["language"], described.get("compounds")
        return cls(language, words, compounds=None if counts is None else Compounds.from_counts(language, counts))

    @classmethod
    def learned(cls, language: str, texts: Iterable[str], compounds: bool | None = None) -> Analyzer:
        """Return the analyzer that engines use for a collection: in some languages it splits compounds.

        The parts of a compound are terms beside the compound itself. The splitter is learned from the texts.

        Parameters
        ----------
        language : str
        texts : iterable of str
            The passages of the collection; not read unless compounds are split.
        compounds : bool, optional
            Whether compounds are split, which the languages of :data:`~haybale.compounds.LINKS` allow. By default,
            they are split in German. InputError is raised for True and another language.

        >>> texts = ["Der Vertrag.", "Ein Vertrag.", "Der Vertrag", *["Arbeit"] * 3, "Arbeitsvertrag"]
        >>> Analyzer.learned("german", texts).terms("den Arbeitsvertrag")
        ['arbeitsvertrag', 'arbeit', 'vertrag']
        """
        if not splits_compounds(language, compounds):
            return cls(language)
        words = (word for text in track(texts, "learning compounds") for word in _words(normalise(text), language))
        return cls.of_words(language, words)

    @classmethod
    def of_words(cls, language: str, words: Iterable[str]) -> Analyzer:
        """Return the analyzer that splits compounds, learned from all words of a collection or from their Counter."""
        return cls(language, compounds=Compounds.learn(language, words, without=stop_words(language)))


class _TermCache(dict[str, int]):
    """A cache from words to term numbers, or -1 for dropped words; each word is stemmed when it is first looked up."""

    def __init__(self, analyzer: Analyzer, numbers: dict[str, int], grow: bool) -> None:
        super().__init__()
        self._stem, self._numbers, self._grow = analyzer.stemmer(), numbers, grow
        self.update(dict.fromkeys(_dropped_words(analyzer), -1))

    def __missing__(self, word: str) -> int:
        term, numbers = self._stem(word), self._numbers
        number = numbers.setdefault(term, len(numbers)) if self._grow else numbers.get(term, -1)
        self[word] = number
        return number


class _PhraseTermCache(dict[str, str]):
    """A cache from words and signs to their terms in phrases; see :meth:`Analyzer.phrase_terms`."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__((word, f"={word}") for word in _dropped_words(analyzer))
        self._stem = analyzer.stemmer()

    def __missing__(self, word: str) -> str:
        is_literal = len(word) == 1 and not _HAS_UNSPACED.match(word)
        term = self[word] = f"={word}" if is_literal else self._stem(word)
        return term


def _dropped_words(analyzer: Analyzer) -> Iterable[str]:
    return stop_words(analyzer.language) if analyzer.stop_words is None else analyzer.stop_words


class _PartCache(dict[str, tuple[str, ...]]):
    """A cache from words to the word itself and, for a compound, its parts."""

    def __init__(self, compounds: Compounds | None) -> None:
        super().__init__()
        self._compounds = compounds

    def __missing__(self, word: str) -> tuple[str, ...]:
        assert self._compounds is not None
        parts = self[word] = (word, *self._compounds.split(word))
        return parts


def splits_compounds(language: str, compounds: bool | None) -> bool:
    """Return whether an engine splits compounds; raise :class:`InputError` for a language without them."""
    if compounds and language not in LINKS:
        raise InputError(f"compounds needs one of the languages {', '.join(LINKS)}, found {language!r}; omit it")
    return language in BY_DEFAULT if compounds is None else compounds


def refuse_single_text(texts: object) -> None:
    """Raise :class:`InputError` for a string in place of a sequence of texts; its letters would become texts."""
    if isinstance(texts, str):
        raise InputError(f"expected a sequence of texts, found a single string, {texts[:40]!r}; put it in a list")


def as_analyzer(given: Analyzer | Tokenize | str) -> Analyzer:
    """Return an analyzer, given as one, as the name of a language, or as a function from a text to its terms."""
    if isinstance(given, Analyzer):
        return given
    return Analyzer(given) if isinstance(given, str) else Analyzer(NO_LANGUAGE, function=given)


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language; the set is empty for a language without a list."""
    return _stop_word_lists().get(language, frozenset())


@cache
def _stop_word_lists() -> dict[str, frozenset[str]]:
    lines = Path(__file__).with_name("stop_words.txt").read_text("utf-8").splitlines()
    named = (line.partition(":") for line in lines if not line.startswith("#"))
    return {language: frozenset(words.split()) for language, _, words in named}


def guess_language(texts: Iterable[str]) -> str:
    """Detect the language of texts and return one of :data:`LANGUAGES`.

    English and German are recognised by their stop words if these are frequent, and all other languages by py3langid
    (Lui & Baldwin 2012, "langid.py: An off-the-shelf language identification tool"). For a language without a stemmer
    the result is ``"none"``, or ``"characters"`` if its script has no spaces, with a :class:`LanguageWarning`. Texts
    too short to classify count as English, or as German if they have more German stop words.

    >>> guess_language(["Die Berufung gegen ein Urteil ist nicht ausgeschlossen."])
    'german'
    >>> guess_language(["Le bail est résilié de plein droit lorsque le locataire ne paie pas le loyer convenu."])
    'french'
    """
    refuse_single_text(texts)
    texts = list(texts)
    words = Counter(word for text in texts for word in _words(normalise(text), NO_LANGUAGE))
    counts = {language: sum(words[word] for word in stop_words(language)) for language in _STOP_WORD_LANGUAGES}
    first, second = sorted(counts, key=lambda language: (-counts[language], language != "english", language))[:2]
    if first in _BY_STOP_WORDS and counts[first] >= max(_MIN_STOP_WORD_SHARE * words.total(), 2 * counts[second]):
        return first
    code, probability = _detector().classify("\n".join(texts))
    if probability >= _MIN_PROBABILITY and code in BY_CODE:
        return BY_CODE[code]
    unspaced = sum(len(run) for text in texts for run in _RUN.findall(text) if _is_unspaced(run))
    if 2 * unspaced > sum(map(len, texts)):
        how, neutral = "each pair of neighbouring characters becomes a term", CHARACTERS
    elif probability >= _MIN_PROBABILITY:
        how, neutral = "words become terms without stemming", NO_LANGUAGE
    else:
        return max(_BY_STOP_WORDS, key=counts.__getitem__)
    message = f"the texts seem to be in {code!r}, a language that has no stemmer: {how}; set language= or analyzer="
    warnings.warn(message, LanguageWarning, stacklevel=2)
    return neutral


@cache
def _detector() -> Any:
    # norm_probs: probabilities that do not depend on the length of the text
    langid = import_optional("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def lowered(text: str, language: str) -> str:
    """Return a normalised text in lower case, with as many characters as before.

    The capital İ becomes i without a dot of its own. In Turkish, the capital I becomes ı.

    >>> lowered("İSTANBUL IĞDIR", "turkish"), lowered("İSTANBUL IT", "english")
    ('istanbul ığdır', 'istanbul it')
    """
    if language == "turkish":
        text = text.replace("I", "ı")
    return text.lower() if text.isascii() else text.replace("İ", "i").lower()


def _words(text: str, language: str) -> list[str]:
    """Return words of two or more characters, and in scripts without spaces all pairs of neighbouring characters.

    >>> _words("租约终止 on _31_ May", "none")
    ['租约', '约终', '终止', 'on', '31', 'may']
    """
    text = lowered(text, language)
    if text.isascii() or not _HAS_UNSPACED.search(text):
        return _WORD.findall(text)
    words: list[str] = []
    for run in _RUN.findall(text):
        if _is_unspaced(run) and len(run) > 1:
            words += map("".join, pairwise(run))
        else:
            words.append(run)
    return words


def _word_spans(text: str, language: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of :func:`_words`, each with its start and end in the text.

    >>> list(_word_spans("租约终止 on", "none"))
    [('租约', 0, 2), ('约终', 1, 3), ('终止', 2, 4), ('on', 5, 7)]
    """
    lower = lowered(text, language)
    if not _HAS_UNSPACED.search(lower):
        yield from ((word[0], *word.span()) for word in _WORD.finditer(lower))
        return
    for run in _RUN.finditer(lower):
        start, end = run.span()
        pairs = _is_unspaced(run[0]) and end - start > 1
        for first, last in pairwise(range(start, end)) if pairs else [(start, end - 1)]:
            yield lower[first : last + 1], first, last + 1


def _is_unspaced(run: str) -> bool:
    return _RUN.fullmatch(run[0]) is not None  # in other scripts, a single character does not match
