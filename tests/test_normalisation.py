"""What looks the same is the same, and positions lead back to the original text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.normalisation import normalise, normalised_spans

ODD = st.sampled_from(
    "aé\u0301\u0308\ufb01\ufb03\u00ad\u200b\u200d\ufeff\uff21\u064b\u0640\u0628\u1100\u1161\u11a8\uac00\u3099か\uff9eｶ½²\u0345\u0654\u0627ßiİ\u0307\u09be\u09c7\ufe7b\ufc60"
)
TEXTS = st.one_of(st.text(), st.text(ODD))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Bu\u0308rger", "Bürger"),
        ("\ufb01nal o\ufb03ce", "final office"),
        ("Ver\u00adtrag", "Vertrag"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("\uff21\uff22\uff23 \uff11", "ABC 1"),
        ("كِتَابٌ", "كتاب"),
        ("\u1100\u1161\u11a8", "각"),
        ("u\u00ad\u0308", "ü"),
        ("\u0633\u0648\u0654\u0627\u0644", "سؤال"),
        ("\u0627\u064e\u0654", "أ"),
        ("i\u0307\u0301", "í"),
    ],
)
def test_what_looks_the_same_is_the_same(text: str, same: str) -> None:
    assert normalise(text) == normalise(same) == same


@given(TEXTS)
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFKC", once)


@given(TEXTS)
def test_canonically_equivalent_texts_are_the_same(text: str) -> None:
    assert normalise(unicodedata.normalize("NFD", text)) == normalise(unicodedata.normalize("NFC", text))


@given(TEXTS)
def test_spans_lead_back_to_what_each_character_was_made_of(text: str) -> None:
    made, spans = normalised_spans(text)
    assert made == normalise(text)
    assert spans.shape == (len(made), 2)
    assert (spans[:, 0] < spans[:, 1]).all()
    assert (spans[1:] >= spans[:-1]).all()
    for i, (start, end) in enumerate(spans.tolist()):
        assert made[i] in normalise(text[start:end])
