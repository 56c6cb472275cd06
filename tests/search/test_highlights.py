"""Highlights are at the right characters of a text, whatever its Unicode form; phrases are adjacent terms."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import Engine, parse
from haybale.analysis import Analyzer
from haybale.search.highlights import MAX_TERMS, merged, sentence_spans, term_highlights
from haybale.search.phrases import parse_phrases, phrase_spans
from haybale.search.snippets import Snippet

ODD = st.sampled_from(
    "aé\u0301\u0308\ufb01\ufb03\u00ad\u200b\u200d\ufeff\uff21\u064b\u0640\u0628\u0643\u1100\u1161\u11a8\uac00"
    "\u3099か\uff9eｶ½²\u0345ßİΣ租约终 ."
)
TEXTS = st.one_of(st.text(), st.text(ODD))
WORDS = st.lists(st.sampled_from(["Bürger", "final", "office", "كتاب", "Vertrag", "naïve", "租约", "x"]), min_size=1)


@given(TEXTS, st.sampled_from(["english", "german", "arabic", "characters"]))
def test_terms_are_those_of_the_analysis_each_where_it_is(text: str, language: str) -> None:
    analyzer = Analyzer(language)
    located = analyzer.term_spans(text)
    assert [term for term, _, _ in located] == analyzer.terms(text)
    for term, start, end in located:
        again = analyzer.terms(text[start:end])
        assert term.replace("ς", "σ") in [each.replace("ς", "σ") for each in again]  # a final sigma depends on context


def test_the_parts_of_a_compound_are_where_it_is() -> None:
    texts = ["Der Vertrag.", "Ein Vertrag.", "Der Vertrag", *["Arbeit"] * 3, "Arbeitsvertrag"]
    analyzer = Analyzer.learned("german", texts)
    text = "Jeder Arbeits\u00advertrag!"
    assert [term for term, _, _ in analyzer.term_spans(text)] == analyzer.terms(text)
    assert term_highlights([text], [{analyzer: {"vertrag": 1.0}}]) == [[(6, 21)]]


@given(TEXTS)
def test_terms_of_a_function_are_located(text: str) -> None:
    analyzer = Analyzer("none", function=str.split)
    located = analyzer.term_spans(text)
    assert [term for term, _, _ in located] == analyzer.terms(text)
    assert all(analyzer.terms(text[start:end])[-1:] for _, start, end in located)


def obscured(word: str, form: str) -> str:
    """Return a word as a PDF may have it: decomposed, with ligatures, soft hyphens, marks of direction or vowels."""
    if form == "decomposed":
        return unicodedata.normalize("NFD", word)
    if form == "ligatures":
        return word.replace("ffi", "\ufb03").replace("fi", "\ufb01")
    if form == "full-width":
        return "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in word)
    between = {"hyphens": "\u00ad", "zero-width": "\u200b", "vowels": "\u064b"}[form]
    return between.join(word)


@given(WORDS, st.sampled_from(["decomposed", "ligatures", "full-width", "hyphens", "zero-width", "vowels"]), st.data())
def test_a_word_is_highlighted_whole_in_every_form(words: list[str], form: str, data: st.DataObject) -> None:
    chosen, analyzer = data.draw(st.sampled_from(words)), Analyzer("none")
    written = [obscured(word, form) for word in words]
    text = " ".join(written)
    (found,) = term_highlights([text], [{analyzer: dict.fromkeys(analyzer.terms(chosen), 1.0)}])
    expected = [each for word, each in zip(words, written, strict=True) if word == chosen and len(chosen) > 1]
    assert [text[start:end] for start, end in found] == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5))))
def test_merged_spans_cover_the_same_and_do_not_overlap(given_spans: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in given_spans]
    found = merged(spans)
    assert {i for a, b in found for i in range(a, b)} == {i for a, b in spans for i in range(a, b)}
    assert all(before[1] <= after[0] for before, after in pairwise(found))


def test_the_terms_with_the_largest_weights_are_highlighted() -> None:
    words = [f"word{number:02d}" for number in range(MAX_TERMS + 5)]
    weights = {word: float(number) for number, word in enumerate(words)}
    text = " ".join(words)
    (found,) = term_highlights([text], [{Analyzer("none"): weights}])
    assert [text[start:end] for start, end in found] == words[5:]


@given(TEXTS)
def test_sentences_have_all_words(text: str) -> None:
    spans = sentence_spans(text)
    assert " ".join(" ".join(text[start:end].split()) for start, end in spans) == " ".join(text.split())


@given(TEXTS, st.lists(st.integers(0, 40)), st.integers(8, 60))
def test_an_excerpt_is_a_part_of_the_text(text: str, starts: list[int], width: int) -> None:
    highlights = merged((start, start + 3) for start in starts if start + 3 <= len(text))
    pieces = Snippet("p", text, highlights).excerpt(width)
    shown = "".join(piece for piece, _ in pieces)
    body = shown.removeprefix("… ") if len(text) > width else shown
    body = body.removesuffix(" …") if len(text) > width else body
    flat = "".join(" " if each.isspace() else each for each in text)
    assert body in flat
    assert len(body) <= width
    assert not set(shown) & set("\n\r\t\v")
    if len(text) <= width:
        assert [piece for piece, marked in pieces if marked] == [flat[a:b] for a, b in joined(highlights)]


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that touch, as an excerpt does."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


@pytest.mark.parametrize(
    ("text", "bare", "phrases"),
    [
        ('the "burden of proof" here', "the burden of proof here", ["burden of proof"]),
        ("„Treu und Glauben“ «bonne foi» “good faith”", "Treu und Glauben bonne foi good faith", None),
        ("nach »Art. 6« und", "nach Art. 6 und", ["Art. 6"]),
        ('a 5" pipe', 'a 5" pipe', []),
        ('nothing in "" or " "', "nothing in  or  ", []),
    ],
)
def test_phrases_of_a_query(text: str, bare: str, phrases: list[str] | None) -> None:
    assert parse_phrases(text) == (
        bare,
        ["Treu und Glauben", "bonne foi", "good faith"] if phrases is None else phrases,
    )


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
def test_phrases_are_found_as_by_hand(terms: list[str], phrase: list[str]) -> None:
    located = [(term, 2 * at, 2 * at + 1) for at, term in enumerate(terms)]
    expected = [
        (2 * at, 2 * (at + len(phrase)) - 1) for at in range(len(terms)) if terms[at : at + len(phrase)] == phrase
    ]
    assert phrase_spans(located, phrase) == expected


PHRASE_WORDS = ["ba", "ko", "b", "6", "§", "the"]  # terms, single characters, a sign and a stop word


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.sampled_from(PHRASE_WORDS), min_size=1, max_size=6), min_size=1, max_size=6),
    st.lists(st.sampled_from(PHRASE_WORDS), min_size=1, max_size=3),
)
def test_exactly_the_documents_with_the_phrase_are_found(texts: list[list[str]], phrase: list[str]) -> None:
    documents = {f"d{n}": [" ".join(text)] for n, text in enumerate(texts)}
    engine = Engine(documents | {"other": ["an indexed term"]}, language="english")
    found = parse("bm25").fit(engine).search(f'"{" ".join(phrase)}"', k=10)
    spaced = f" {' '.join(phrase)} "
    assert {hit.doc_id for hit in found} == {f"d{n}" for n, text in enumerate(texts) if spaced in f" {' '.join(text)} "}
    assert all(spaced.strip() in hit.snippets[0].text for hit in found)
