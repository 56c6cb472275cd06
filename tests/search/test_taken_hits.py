"""Hits of a search are taken along as Word, CSV and JSON, with what is needed to cite and find them again."""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import docx
import pytest
from support.commands import haybale

from haybale import Engine, open_collection, parse
from haybale.errors import InputError
from haybale.search.taken_hits import HIT_COLUMNS
from haybale.word_document import WordDocument

DOCUMENTS: dict[str, dict[str, Any]] = {
    "a.pdf": {
        "text": ["The keeper of a dog pays for its damage.", "A second passage about a dog \x07 & <cats>."],
        "title": "=HYPERLINK(1)",
        "Gericht": "BGH",
        "date": date(2015, 1, 31),
        "Aktenzeichen": "VI ZR 1/14",
        "url": "https://example.org/a?x=1&y=2",
        "note": "+1 dog",
        "topics": ["tort", "dogs"],
    },
    "b": {"text": "A dog barked.", "title": "Dogs", "authors": "Doe, J.", "year": 2020, "doi": "10.1000/x"},
    "c": {"text": "כלב dog נבח", "title": "כלבים", "note": "plain"},
    "d": {"text": "Cats purr.", "title": "Cats"},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("taken") / "engine"
    return Engine.build(DOCUMENTS, folder, language="english", encoder="tfidf(min_df=1)")


@pytest.fixture(scope="module")
def results(engine: Engine) -> Any:
    return parse("bm25").fit(engine).search("Which dog?")


def test_a_table_has_how_each_hit_is_cited_and_all_metadata(results: Any) -> None:
    rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(results.to_csv()))}
    assert set(rows) == {"a.pdf", "b", "c"}
    first = rows["a.pdf"]
    assert tuple(first)[: len(HIT_COLUMNS)] == HIT_COLUMNS
    assert (first["citation"], first["court"]) == ("BGH, 2015-01-31, VI ZR 1/14", "BGH")
    assert (first["docket"], first["date"]) == ("VI ZR 1/14", "2015-01-31")
    assert first["link"] == "https://example.org/a?x=1&y=2"
    assert first["Gericht"] == "BGH"
    assert first["topics"] == "tort; dogs"
    assert "date_2" not in first  # the metadata's own column date has the same values
    assert rows["b"]["link"] == "https://doi.org/10.1000/x"
    assert rows["b"]["citation"] == "Doe, J. (2020). Dogs."
    assert "dog" in first["snippet"]


def test_no_cell_is_a_formula(results: Any) -> None:
    for row in csv.reader(io.StringIO(results.to_csv())):
        assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in row)
    assert "'=HYPERLINK(1)" in results.to_csv()


def test_a_word_file_is_read_by_word_readers(results: Any, tmp_path: Path) -> None:
    results.write(tmp_path / "hits.docx")
    document = docx.Document(str(tmp_path / "hits.docx"))
    styles = {paragraph.text: paragraph.style.name for paragraph in document.paragraphs}
    assert styles["Which dog?"] == "Title"
    headings = [text for text, style in styles.items() if style == "Heading 2"]
    assert headings == [f"{hit.rank}. {hit.title}" for hit in results]
    head = document.paragraphs[1].text
    for part in ("Which dog?", "3 of 4 documents", results.ranker, results.searched.collection):
        assert part in head
    marked = {
        run.text.lower() for paragraph in document.paragraphs for run in paragraph.runs if run.font.highlight_color
    }
    assert marked == {"dog"}
    targets = {part.target_ref for part in document.part.rels.values() if part.is_external}
    assert targets == {"https://example.org/a?x=1&y=2", "https://doi.org/10.1000/x"}
    assert document.core_properties.title == "Which dog?"


def test_haybale_reads_the_files_that_it_has_written(results: Any, tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()
    results.write(folder / "hits.docx")
    read = open_collection(folder)
    texts = read.passages.texts.to_pylist()
    assert any("The keeper of a dog pays for its damage." in text for text in texts)
    assert any("כלב" in text for text in texts)
    (folder / "hits.docx").unlink()
    results.write(folder / "hits.csv")
    assert (folder / "hits.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    table = open_collection(folder)
    assert table.n_documents == 3


def test_json_is_written_and_other_names_are_refused(results: Any, tmp_path: Path) -> None:
    results.write(tmp_path / "hits.json")
    assert json.loads((tmp_path / "hits.json").read_text()) == results.to_dict()
    with pytest.raises(InputError, match=r"\.docx, \.csv or \.json"):
        results.write(tmp_path / "hits.pdf")


def test_the_command_writes_them(engine: Engine, tmp_path: Path) -> None:
    found = haybale("search", str(engine.folder), "dog", "--ranker", "bm25", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(found.stdout)))) == 3
    for name in ("hits.docx", "hits.csv", "hits.json"):
        done = haybale("search", str(engine.folder), "dog", "--ranker", "bm25", "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).stat().st_size > 500
    refused = haybale("search", str(engine.folder), "dog", "--out", str(tmp_path / "hits.pdf"))
    assert refused.returncode != 0
    assert ".docx" in refused.stderr


def test_odd_texts_are_a_whole_word_file() -> None:
    document = WordDocument("\x00 \ud800 ]]> </w:t> &amp; \ufffe")
    document.heading("a\nb")
    document.paragraph("one\r\ntwo\rthree")
    document.link("no link", "javascript:alert(1)")
    document.link("too long", "https://example.org/" + "a" * 3000)
    document.values([("empty", ""), ("name", "=1+1")])
    read = docx.Document(io.BytesIO(document.to_bytes()))
    assert [paragraph.text for paragraph in read.paragraphs[1:]] == [
        "a b", "one\ntwo\nthree", "no link", "too long", "name: =1+1",
    ]  # fmt: skip
    assert not [part for part in read.part.rels.values() if part.is_external]
