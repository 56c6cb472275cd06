"""Near-duplicates in every script: one other character makes no other text, and different texts are no duplicates."""

from __future__ import annotations

import random

import pytest

from haybale import Engine
from haybale.review.minhash import _shingles, near_duplicates

pytest.importorskip("datasketch")
pytestmark = pytest.mark.filterwarnings("ignore::haybale.analysis.LanguageWarning")

# The first and the last character of each alphabet, the number of characters of a text, and whether it has spaces.
SCRIPTS = {
    "chinese": (0x4E00, 0x9FA5, 90, False),
    "chinese, rare": (0x20000, 0x2A6D0, 90, False),
    "hiragana": (0x3041, 0x3090, 120, False),
    "katakana": (0x30A1, 0x30F0, 120, False),
    "thai": (0x0E01, 0x0E2E, 120, False),
    "lao": (0x0E81, 0x0EB0, 160, False),
    "khmer": (0x1780, 0x17A2, 120, False),
    "burmese": (0x1000, 0x1020, 120, False),
    "tibetan": (0x0F40, 0x0F6C, 160, False),
    "korean without spaces": (0xAC00, 0xD7A3, 90, False),
    "latin without spaces": (0x61, 0x7A, 400, False),
    "korean": (0xAC00, 0xD7A3, 400, True),
    "latin": (0x61, 0x7A, 500, True),
    "greek": (0x3B1, 0x3C9, 500, True),
    "devanagari": (0x905, 0x939, 500, True),
    "arabic": (0x627, 0x64A, 500, True),
}


def text_of(script: str, rng: random.Random) -> str:
    first, last, n, has_spaces = SCRIPTS[script]
    letters = [chr(code) for code in range(first, last + 1) if chr(code).isalnum()]
    text = "".join(rng.choice(letters) for _ in range(n))
    if has_spaces:
        text = " ".join(text[at : at + 5] for at in range(0, n, 5))
    return text


@pytest.mark.parametrize("script", SCRIPTS)
def test_one_other_character_makes_a_near_duplicate(script: str) -> None:
    rng = random.Random(script)
    documents = {}
    for number in range(6):
        text = text_of(script, rng)
        places = [place for place, character in enumerate(text) if character.isalnum()]
        place = rng.choice(places)
        other = rng.choice([text[at] for at in places if text[at] != text[place]])
        documents[f"{number} a"], documents[f"{number} b"] = text, text[:place] + other + text[place + 1 :]
    engine = Engine(documents, language="none", encoder="tfidf(min_df=1)")
    assert near_duplicates(engine) == [[f"{number} a", f"{number} b"] for number in range(6)]


def test_texts_of_two_scripts_and_line_breaks() -> None:
    rng = random.Random(7)
    documents = {}
    for number in range(4):
        parts = [text_of(script, rng) for script in ("chinese", "latin", "thai", "korean")]
        documents[f"{number} a"] = " ".join(parts)
        documents[f"{number} b"] = "\n".join([parts[0][:40] + "\n" + parts[0][40:], *parts[1:]]) + "。"
    engine = Engine(documents, language="none", encoder="tfidf(min_df=1)")
    assert near_duplicates(engine) == [[f"{number} a", f"{number} b"] for number in range(4)]


def test_chinese_sentences() -> None:
    contract = (
        "承租人应当按照约定的期限支付租金。对支付租金的期限没有约定或者约定不明确，依据本法的规定仍不能确定，租赁期限不满一年的，"
        "应当在租赁期限届满时支付；租赁期限一年以上的，应当在每届满一年时支付，剩余期限不满一年的，应当在租赁期限届满时支付。"
    )
    other = (
        "出卖人应当按照约定的质量要求交付标的物。出卖人提供有关标的物质量说明的，交付的标的物应当符合该说明的质量要求。"
        "当事人对标的物的质量要求没有约定或者约定不明确的，适用本法的规定。"
    )
    engine = Engine(
        {"a": contract, "b": contract.replace("租金。", "租金！", 1).replace("一年以上", "二年以上"), "c": other}
    )
    assert near_duplicates(engine) == [["a", "b"]]


def test_short_texts() -> None:
    engine = Engine(
        {"a": "租约", "b": "租约", "c": "租期", "d": "租", "e": "rent", "f": "Rent!"},
        language="none",
        encoder="tfidf(min_df=1)",
    )
    assert near_duplicates(engine) == [["a", "b"], ["e", "f"]]
    assert _shingles("") == _shingles("。") == frozenset()


def test_words_of_scripts_with_spaces_stay_words() -> None:
    assert _shingles("Die Über-Miete, 2024 fällig") == {("die", "übermiete", "2024"), ("übermiete", "2024", "fällig")}
    assert _shingles("임대차 계약은 2024년 끝난다") == {("임대차", "계약은", "2024년"), ("계약은", "2024년", "끝난다")}
