"""Splitters: what each makes a paragraph, that no word is lost or moved, and long texts."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections import (
    SPLITTERS,
    find_splitter,
)
from haybale.collections.paragraphs.sentence_ends import sentences
from haybale.errors import InputError, UnknownNameError


def split(name: str, text: str, **options: object) -> dict[str, str]:
    found = find_splitter(name, **options)(text)
    labels = [paragraph.label for paragraph in found]
    assert len(set(labels)) == len(labels)
    return {paragraph.label: paragraph.text for paragraph in found}


# every splitter -------------------------------------------------------------------------------------------

TOKENS = ["wort", "Word", "v.", "No.", "e.g.", "Ende.", "?", "été", "[1]", "[2]", "[3]", "1", "2.", "II.", "§", "FACTS"]
TOKENS += ["Summary:", "#", "===", "---", "Art.", "5", "\u00a0", "\t", "\r", "\n", "\n", "\n\n"]
texts = st.lists(st.sampled_from(TOKENS), max_size=60).map(" ".join)
# What "numbered" and "headings" are documented to drop.
NUMBER = re.compile(r"\[[0-9]+\]|[0-9]+\.?|Summary:|\W+")
SIGNS = re.compile(r"#+|[=\-~^*+]{3,}")


@pytest.mark.parametrize("name", SPLITTERS)
@given(text=texts)
def test_no_word_is_lost_but_what_is_said_to_be(name: str, text: str) -> None:
    found = find_splitter(name, **({"french": "keep"} if name == "numbered" else {}))(text)
    kept = [word for paragraph in found for word in paragraph.text.split()]
    lost = Counter(text.split()) - Counter(kept)
    dropped = {"numbered": NUMBER, "headings": SIGNS}.get(name, re.compile(r"(?!)"))
    assert all(dropped.fullmatch(word) for word in lost)
    words = iter(text.split())
    assert all(word in words for word in kept)  # in their order
    assert all(paragraph.text == paragraph.text.strip() != "" for paragraph in found)
    assert len({paragraph.label for paragraph in found}) == len(found)


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("text", ["", " \n\t\u00a0\n\n "])
def test_nothing_is_no_paragraph(name: str, text: str) -> None:
    assert find_splitter(name)(text) == []


HARD = {
    "one line": lambda n: "word " * n,
    "blank lines": lambda n: "word" + "\n" * n + "word",
    "blanks": lambda n: "# " + " " * n + "x\n[1]" + " " * n + "x",
    "many paragraphs": lambda n: "".join(f"[{i}]\nWords of it. And more\n\n" for i in range(1, n // 6)),
    "one number": lambda n: "[1]\nword\n" * (n // 2),
    "one heading": lambda n: "# Facts\nword\n" * (n // 2),
    "rules": lambda n: "=" * n + "\n" + "===\n" * n,
    "brackets": lambda n: "[" * n + "<" * n + "A" * n,
    "stops": lambda n: "A." * n + " " + ". " * n,
}


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("make", HARD.values(), ids=HARD.keys())
def test_long_texts_come_to_an_end(name: str, make) -> None:
    """About a second each; in quadratic time it would be many minutes, which no one would overlook."""
    text = make(163_000)
    found = find_splitter(name)(text)
    assert sum(len(paragraph.text.split()) for paragraph in found) <= len(text.split())


def test_unknown_names_options_and_values_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown splitter 'pages'; known: lines, blank-lines, numbered"):
        find_splitter("pages")
    with pytest.raises(InputError, match="'sentences' knows no option 'length'; it takes words"):
        find_splitter("sentences", length=3)
    with pytest.raises(InputError, match="'lines' knows no option 'text'; it takes none"):
        find_splitter("lines", text="x")
    for words in (0, -1, "many", 2.5):
        with pytest.raises(InputError, match="at least 1, found"):
            find_splitter("sentences", words=words)
    with pytest.raises(InputError, match="french must be one of drop, keep, found 'maybe'"):
        find_splitter("numbered", french="maybe")


def test_lines_and_blank_lines() -> None:
    assert split("lines", " a b\r\n\n c\n") == {"0": "a b", "1": "c"}
    assert split("blank-lines", " a\r\n b\r\n\r\n \n c\n") == {"0": "a b", "1": "c"}


# sentences ------------------------------------------------------------------------------------------------


@given(texts, st.integers(1, 12))
def test_sentences_fill_the_budget_and_never_pass_it(text: str, words: int) -> None:
    found = [paragraph.text.split() for paragraph in find_splitter("sentences", words=words)(text)]
    assert all(len(paragraph) <= words for paragraph in found)
    # Slow oracle: word by word, what does not fit begins a new paragraph, whole sentences where they can.
    expected: list[list[str]] = [[]]
    for sentence in sentences(text):
        if len(expected[-1]) + len(sentence) > words and expected[-1]:
            expected.append([])
        for word in sentence:
            if len(expected[-1]) == words:
                expected.append([])
            expected[-1].append(word)
    assert found == [paragraph for paragraph in expected if paragraph]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rained. It snowed.", 2),
        ("A line without a stop\nThe next", 2),
        ("He asked (twice!) Nobody came? So be it.", 3),
        ("See Smith v. Jones, No. 12, Art. 5 Abs. 2 Nr. 3 and S. 7.", 1),
        ("B.P. Jeevan Reddy, J. dismissed it. I agree.", 2),
        ("It costs 3.50 a day, e.g. on Sundays, i.e. seldom.", 1),
        ("Das gilt seit dem 3. Mai 2010. Der Kläger, vgl. BGH, z.B. Urt. v. 4. Juni, irrt.", 2),
        ("Nach § 12 Abs. 2 BGB i.V.m. Art. 3 GG. Dies genügt.", 2),
        ('"Why?" she asked. "No reason." They left.', 3),
        ("It ended … and began again.", 1),
        ("See para. 7 and seq. and so on. end", 1),
    ],
)
def test_sentence_ends(text: str, expected: int) -> None:
    found = list(sentences(text))
    assert len(found) == expected, found


# headings -------------------------------------------------------------------------------------------------


def test_headings_of_all_kinds() -> None:
    text = (
        "before\n# Facts #\nIt rained.\n\nA lot.\nTitle\n=====\nunder it\n----\nOver\n----\nboth\n"
        "§ 12\nlaw\n§ 13a Der Name\nlaw\nArt. 5.\nlaw\nArticle 6 Scope\nlaw\nII. Facts\nfacts\nA. Background\n"
        "2.1 Method\nhow\nTHE ISSUE:\nwhich\n# Facts\nagain"
    )
    assert split("headings", text) == {
        "0": "before",
        "Facts": "Facts\nIt rained. A lot.",
        "Title": "Title\nunder it",
        "Over": "Over\nboth",
        "§ 12": "§ 12\nlaw",
        "§ 13a Der Name": "§ 13a Der Name\nlaw",
        "Art. 5.": "Art. 5.\nlaw",
        "Article 6 Scope": "Article 6 Scope\nlaw",
        "II. Facts": "II. Facts\nfacts",
        "2.1 Method": "A. Background\n2.1 Method\nhow",  # a heading without text stands before the next
        "THE ISSUE:": "THE ISSUE:\nwhich",
        "Facts (2)": "Facts\nagain",
    }


@pytest.mark.parametrize(
    "line",
    [
        "§ 12 BGB is applied here.",
        "§ 12 des Gesetzes",
        "Article 5 was breached.",
        "I think so",
        "1. the list goes on",
        "3.5 per cent",
        "JFK",
        "(2) [CITATION] .)",
        "THIS COURT ORDERS THAT the application be dismissed",
        "#hashtag",
        "12 Angry Men",
        "A very long title that is underlined\n===",
    ],
)
def test_what_is_no_heading(line: str) -> None:
    assert set(split("headings", f"# Real\ntext\n{line}\nmore")) == {"Real"}


def test_a_text_without_headings_is_split_at_blank_lines() -> None:
    assert split("headings", "a\nb\n\nc") == {"0": "a b", "1": "c"}
