"""Test a reader that is defined outside haybale, and what the class of a reader must define."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haybale import Engine
from haybale.collections import READERS, Collection, CollectionBuilder, FolderReader, Reader, open_collection
from haybale.errors import InputError


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in a layout that a class of this test reads: each line is a document id, a colon and a text."""

    class Notes(FolderReader):
        name = "notes"
        expected = "notes.txt"

        def add_documents(self, builder: CollectionBuilder, folder: Path) -> None:
            for line in (folder / self.expected).read_text().splitlines():
                doc_id, text = line.split(": ")
                builder.add_document(doc_id, [text])

        def add_queries(self, builder: CollectionBuilder, folder: Path) -> None:
            builder.add_query("q", ["dogs"])
            builder.add_judgement("dev", "q", "gone")

    (tmp_path / "notes.txt").write_text("a: dogs bark\nb: dogs sleep\n")
    yield tmp_path
    del READERS._known["notes"]


@pytest.mark.filterwarnings("default:.* judgements")
def test_a_new_reader_registers_itself(notes: Path, tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    with pytest.raises(InputError, match="'gone'"):
        open_collection(notes)
    with pytest.warns(UserWarning, match="1 of 1 judgements"):
        assert open_collection(notes, missing_judgements="skip").doc_ids.to_pylist() == ["a", "b"]
    status, _, said = here(
        "index", str(notes), "--out", str(tmp_path / "e"), "--layout", "notes", "--missing-judgements", "skip"
    )
    assert status == 0, said
    assert Engine.open(tmp_path / "e").collection.n_documents == 2


@pytest.mark.parametrize(
    ("base", "members", "message"),
    [
        (FolderReader, {"name": "x"}, "Odd .*add_documents, expected"),
        (Reader, {"name": "x", "expected": "x"}, "Odd .*read, recognises"),
        (FolderReader, {"add_documents": print}, "Odd .*name, expected"),
    ],
)
def test_an_incomplete_class_raises_an_error(base: type, members: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Odd", (base,), members)


def test_names_take_precedence_over_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pydocs: Collection
) -> None:
    (tmp_path / "pydocs").mkdir()
    (tmp_path / "pydocs" / "corpus.jsonl").write_text('{"_id": "a", "text": "b"}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("haybale.collections.readers.pydocs.read_pydocs", lambda: pydocs)
    assert open_collection("pydocs") is pydocs
