"""Markdown: front matter as metadata or as text, headings, and the text that people see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections import open_collection
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FILE_READERS, read_documents
from haybale.collections.files.front_matter import read_front_matter
from haybale.collections.files.markdown_marks import without_marks
from haybale.collections.unread import UnreadPart

BODY = "# Heading\n\nThe tenant pays.\n"


def read(text: str) -> tuple[FileDocument, list[UnreadPart]]:
    (document,), unread = read_documents(FILE_READERS["markdown"], text.encode(), {})
    return document, unread


def texts(document: FileDocument) -> list[str]:
    return [part.text for part in document.parts if part.text]


values = st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" :#&*@'\"01~"), max_size=12)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), values | st.lists(values, max_size=3), max_size=4))
def test_quoted_values_of_front_matter_are_read_as_they_are(entries: dict[str, Any]) -> None:
    written = yaml.safe_dump(entries, default_style='"', allow_unicode=True, width=1000)
    found = read_front_matter(f"---\n{written}---\n{BODY}") if entries else read_front_matter(BODY)
    assert found.entries == entries
    assert found.unread is None


@pytest.mark.parametrize(
    "value", ["NO", "on", "01234", "12:30", "1.10", "2015-02-30", "1_000", "0x1F", "R&D", "Smith & Jones", "1e3"]
)
def test_plain_values_keep_their_text(value: str) -> None:
    document, unread = read(f"---\ntitle: {value}\ncode: {value}\nnone: ~\nempty:\n---\n{BODY}")
    assert (document.title, unread) == (value, [])
    assert document.metadata == {"code": value, "none": None, "empty": None}


@pytest.mark.parametrize(
    "written",
    [
        "title: a: b",
        "title:\tLease",
        "title: @home",
        "title: [a",
        "a: 1\na: 2",
        "a: &x 1\nb: *x",
        "a: &x [*x]",
        "a: 'b",
    ],
)
def test_front_matter_that_is_no_yaml_is_told_and_read_as_text(written: str) -> None:
    document, (unread,) = read(f"---\n{written}\n---\n{BODY}")
    assert unread.part == "front matter"
    assert "YAML" in unread.reason
    assert texts(document) == [without_marks(written), "The tenant pays."] or texts(document)[0] == written
    assert document.metadata == {}


@pytest.mark.parametrize("text", ["---\nA paragraph.\n---\nMore.\n", "---\n- a\n- b\n---\nMore.\n"])
def test_a_paragraph_between_rules_is_no_front_matter(text: str) -> None:
    document, unread = read(text)
    shown = " ".join([*texts(document), *(part.heading or "" for part in document.parts)])
    assert not unread
    assert "More." in shown
    assert ("paragraph" in shown) == ("paragraph" in text)


def test_front_matter_without_a_body_and_with_spaces_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("--- \ntitle: Lease\n---  \nText.", encoding="utf-8")
    (tmp_path / "b.md").write_text("---\ncourt: BGH\n---", encoding="utf-8")
    (tmp_path / "word.txt").write_text("Body", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"b\.md"):
        collection = open_collection(tmp_path)
    assert collection.passages.texts.to_pylist() == ["Lease\nText.", "Body"]
    assert [str(part) for part in collection.unread] == ["b.md: no text"]


words = st.text("abc", min_size=1, max_size=4)
marks = st.sampled_from(["*", "**", "***", "_", "__", "~~", ""])


@given(st.lists(st.tuples(marks, words), min_size=1, max_size=6))
def test_marks_of_emphasis_are_not_seen(marked: list[tuple[str, str]]) -> None:
    assert without_marks(" ".join(f"{mark}{word}{mark}" for mark, word in marked)) == " ".join(w for _, w in marked)


@given(words, words, st.sampled_from(["*", "**", "***", "~~"]))
def test_emphasis_within_a_word_does_not_split_it(before: str, after: str, mark: str) -> None:
    assert without_marks(f"{before}{mark}{after}{mark}{before}") == f"{before}{after}{before}"
    assert without_marks(f"{before}_{after}_{before}") == f"{before}_{after}_{before}"


@given(st.text("ab*_~`#.!-\\ \n"))
def test_escaped_signs_are_seen_as_they_are(text: str) -> None:
    escaped = "".join(f"\\{character}" if character in "*_~`#.!-\\" else character for character in text)
    assert without_marks(escaped) == text


def test_code_is_seen_as_it_is() -> None:
    code = "`a_b*c* \\_`\n\n```\n*a* \\_ # b\n```\n\n"
    assert without_marks(f"{code}*c* \\_") == f"{code}c _"


def test_headings_without_text_under_them_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# *Part* one\n\n## Chapter\\_1\n\nText.\n\n# Last", encoding="utf-8")
    collection = open_collection(tmp_path)
    assert collection.passages.texts.to_pylist() == ["Part one\nChapter_1\nText.", "Last"]
    assert collection.doc_titles.to_pylist() == ["Part one"]
