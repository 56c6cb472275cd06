"""Test the analysis of texts, against scikit-learn, Snowball and bm25s, and language detection."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale import BM25Index
from haybale.analysis import LANGUAGES, Analyzer, LanguageWarning, guess_language, stop_words
from haybale.errors import InputError
from haybale.normalisation import normalise


def test_every_language_has_a_stemmer() -> None:
    stemmer = pytest.importorskip("Stemmer")
    variants = {"porter", "dutch_porter"}  # other stemmers of English and Dutch
    assert set(stemmer.algorithms()) - variants <= set(LANGUAGES)
    for language in set(stemmer.algorithms()) - variants | {"none"}:
        assert len(Analyzer(language).terms("xyzzy 1234")) == 2
    assert Analyzer("french").terms("les chevaux") == ["cheval"]
    assert Analyzer("none").terms("The dogs; a DOG") == ["the", "dogs", "dog"]
    with pytest.raises(InputError, match="stop_words"):
        Analyzer("english", "the")
    with pytest.raises(InputError, match="'none'"):
        Analyzer("english", function=str.split)


def test_stop_words_equal_those_of_bm25s() -> None:
    """Engines of version 0.2 were built with these lists."""
    peer = pytest.importorskip("bm25s.stopwords")
    for language in LANGUAGES:
        name = "STOPWORDS_EN" if language == "english" else f"STOPWORDS_{language.upper()}"
        assert stop_words(language) == set(getattr(peer, name, ())), language


@given(st.text(st.characters(max_codepoint=0xDFF), max_size=40))  # all letters of scripts with spaces
def test_words_match_the_pattern_of_scikit_learn(text: str) -> None:
    """They do without the underscores around words, and with an i for İ."""
    words = re.findall(r"(?u)\b\w\w+\b", normalise(text).replace("İ", "i").lower())
    assert Analyzer("none").terms(text) == [bare for word in words if len(bare := word.strip("_")) > 1]


@given(st.text("ab_ *~", max_size=20), st.text("ab", min_size=2, max_size=5), st.sampled_from(["_", "__", "*", "~~"]))
def test_marks_around_a_word_are_no_part_of_it(before: str, word: str, mark: str) -> None:
    analyzer = Analyzer("none")
    assert analyzer.terms(f"{before} {mark}{word}{mark}, and") == [*analyzer.terms(before), word, "and"]
    assert analyzer.terms(f"{word}_{word}") == [f"{word}_{word}"]
    located = analyzer.term_spans(f"{before} {mark}{word}{mark}")[-1]
    assert located == (word, len(before) + 1 + len(mark), len(before) + 1 + len(mark) + len(word))


@pytest.mark.parametrize("language", ["turkish", "english", "none", "characters"])
def test_turkish_capitals(language: str) -> None:
    analyzer = Analyzer(language)
    assert analyzer.terms("İSTANBUL") == analyzer.terms("istanbul") == analyzer.terms("i\u0307stanbul")
    assert analyzer.term_spans("x İzmir")[0][1:] == (2, 7)
    same = analyzer.terms("IĞDIR") == analyzer.terms("ığdır")
    assert same == (language == "turkish")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "english"),
        ("xylophone", "english"),
        (">>> a = la.norm(os.path) as None, os as la", "english"),  # a few stop words of other languages
        ("El tribunal ha decidido que la demanda no puede ser admitida porque el plazo no era ese.", "spanish"),
        ("De rechtbank oordeelt dat het beroep niet kan, omdat de termijn voor het geding om was.", "dutch"),
        ("Суд решил, что жалоба не может быть принята, потому что для её подачи уже было поздно, и они.", "russian"),
        ("Le contrat de bail est résilié de plein droit à défaut de paiement du loyer au terme convenu.", "french"),
        ("Sąd uznał, że powództwo nie zasługuje na uwzględnienie, ponieważ termin już upłynął.", "polish"),
    ],
)
def test_languages_are_detected(text: str, language: str) -> None:
    assert guess_language([text]) == language


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("Суд дійшов висновку, що скарга не підлягає задоволенню, оскільки строк уже минув.", "none", "uk"),
        ("法院认为，上诉人提出的请求没有事实和法律依据，应当予以驳回，维持原判。", "characters", "zh"),
    ],
)
def test_languages_without_a_stemmer_get_a_neutral_analysis_and_a_warning(text: str, language: str, code: str) -> None:
    with pytest.warns(LanguageWarning, match=f"'{code}'"):
        assert guess_language([text]) == language


def test_scripts_without_spaces_become_character_bigrams() -> None:
    chinese = Analyzer("characters")
    assert chinese.terms("上诉人。被") == ["上诉", "诉人", "被"]
    assert chinese.terms("上诉 the 2 dogs") == ["上诉", "the", "dogs"]
    index = BM25Index(
        ["法院驳回了上诉人的全部请求", "出租人应当返还押金", "合同自双方签字之日起生效"], language="characters"
    )
    assert index.search(["返还押金", "驳回上诉"], 1).passages.tolist() == [[1], [0]]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "M"], max_codepoint=0xDFF), max_size=40))
def test_other_scripts_are_split_into_words(text: str) -> None:
    assert Analyzer("characters").terms(text) == Analyzer("none").terms(text)


def test_terms_are_the_same_in_every_process() -> None:
    code = "from haybale.analysis import Analyzer; print(Analyzer('german')(['Die Häuser brennen', 'ein Haus brennt']))"
    run = partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len({run(env={"PYTHONHASHSEED": seed}).stdout for seed in "123"}) == 1
