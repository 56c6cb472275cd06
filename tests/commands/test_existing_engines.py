"""``haybale index`` for an engine that exists: each option is applied, or compared with the engine and refused."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from haybale import Engine
from haybale.commands.index import FOR_AN_EXISTING_ENGINE, index
from haybale.engine.indexed_source import FILES

Call = Callable[..., tuple[int, str, str]]
TABLE = "name,body,text,heading\nr1,dogs bark,cats purr,One\nr2,cows moo,hens cluck,Two\n"
# A value of each option that is compared with the engine, other than that of the engine.
OTHERS: dict[str, list[str]] = {
    "encoder": ["--encoder", "lsa(2)"],
    "store": ["--store", "vectors"],
    "language": ["--language", "german"],
    "compounds": ["--compounds"],
    "paragraphs": ["--paragraphs", "lines"],
    "pieces": ["--pieces", "3"],
    "stride": ["--pieces", "3", "--stride", "2"],
    "text": ["--text", "text"],
    "id": ["--id", "heading"],
    "title": ["--title", "heading"],
    "html": ["--html", "main-text"],
    "segments": ["--segments", "2"],
    "missing_judgements": ["--missing-judgements", "skip"],
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rows.csv").write_text(TABLE)
    (folder / "note.txt").write_text("a note about land")
    return folder


def ids(folder: Path) -> list[str]:
    return sorted(Engine.open(folder).whole.doc_ids.to_pylist())


def state(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("engine.json", FILES)}


def test_every_option_has_a_decision() -> None:
    assert set(FOR_AN_EXISTING_ENGINE) == set(inspect.signature(index).parameters)
    refused = {name for name, what in FOR_AN_EXISTING_ENGINE.items() if what in ("compared", "refused")}
    assert refused == set(OTHERS)


@pytest.mark.parametrize("option", OTHERS)
def test_other_values_are_refused(option: str, docs: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "e"
    built = ["index", str(docs), "--out", str(out), "--text", "body", "--language", "english"]
    assert here(*built)[0] == 0
    before = state(out)
    (docs / "new.txt").write_text("a new file")
    status, _, said = here("index", str(docs), "--out", str(out), *OTHERS[option])
    assert status == 2
    assert said.count("\n") <= 2
    assert state(out) == before
    assert here(*built)[0] == 0
    assert "new.txt" in ids(out)


def test_columns_that_were_given_once_are_kept(docs: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "e"
    assert here("index", str(docs), "--out", str(out), "--text", "body", "--id", "name")[0] == 0
    (docs / "rows.csv").write_text(TABLE.replace("bark", "howl"))
    assert here("index", str(docs), "--out", str(out))[0] == 0
    engine = Engine.open(out)
    assert [text for text in engine.whole.document_texts() if "dogs howl" in text]
    assert not [text for text in engine.whole.document_texts() if "cats" in text]
    assert here("index", str(docs), "--out", str(out), "--id", "name", "--strict", "--device", "cpu")[0] == 0


def test_another_folder_is_refused(docs: Path, tmp_path: Path, here: Call) -> None:
    out, other = tmp_path / "e", tmp_path / "other"
    assert here("index", str(docs), "--out", str(out))[0] == 0
    other.mkdir()
    (other / "letter.txt").write_text("a letter")
    before, documents = state(out), ids(out)
    for source in (other, other / "letter.txt"):
        status, _, said = here("index", str(source), "--out", str(out))
        assert (status, "--out" in said) == (2, True)
    assert here("index", "pydocs", "--out", str(out))[0] == 2
    assert (state(out), ids(out)) == (before, documents)


def test_a_folder_that_moved_is_the_same(docs: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "e"
    assert here("index", str(docs), "--out", str(out))[0] == 0
    shutil.move(docs, tmp_path / "moved")
    (tmp_path / "moved" / "new.txt").write_text("a new file")
    assert here("index", str(tmp_path / "moved"), "--out", str(out))[0] == 0
    assert "new.txt" in ids(out)
    (tmp_path / "moved" / "rows.csv").unlink()
    (tmp_path / "moved" / "note.txt").unlink()
    assert here("index", str(tmp_path / "moved"), "--out", str(out))[0] == 0
    assert ids(out) == ["new.txt"]


def test_files_over_an_engine_of_a_collection(data: Path, docs: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "e"
    assert here("index", str(data), "--out", str(out))[0] == 0
    documents = ids(out)
    assert here("index", str(docs), "--out", str(out))[0] == 2
    assert ids(out) == documents
    assert not (out / FILES).exists()


def test_add_does_not_ignore_columns(data: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "e"
    assert here("index", str(data), "--out", str(out))[0] == 0
    (tmp_path / "rows.jsonl").write_text('{"key": "new", "body": "a new row"}\n')
    assert here("add", str(out), str(tmp_path / "rows.jsonl"), "--text", "body", "--id", "key")[0] == 0
    assert "new" in ids(out)
    assert here("add", str(out), str(data), "--replace", "--text", "body")[0] == 2
