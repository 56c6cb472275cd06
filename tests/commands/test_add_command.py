"""``haybale add`` takes the formats of ``haybale index``, with the ids that the engine's other documents have."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from haybale import BM25, Engine

Call = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.filterwarnings("ignore:bm25 finds no document")


@pytest.fixture
def engine(tmp_path: Path, here: Call) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "dogs.txt").write_text("Dogs must be kept on a lead.")
    (folder / "tax.csv").write_text("id,text,year\nr1,The dog tax is due in May.,2015\n")
    assert here("index", str(folder), "--out", str(tmp_path / "engine"), "--language", "english")[0] == 0
    return tmp_path / "engine"


def found(engine: Path, query: str) -> list[str]:
    return [name for name, _ in BM25().fit(Engine.open(engine)).rank([query])["0"]]


def test_all_formats_of_a_folder(engine: Path, tmp_path: Path, here: Call) -> None:
    new = tmp_path / "new"
    (new / "folder").mkdir(parents=True)
    (new / "folder" / "swans.md").write_text("# Swans\n\nSeven swans swim.")
    (new / "owls.txt").write_text("Owls hoot.")
    (new / "rows.csv").write_text("number;content;year\n7;Parrots talk.;2017\n")
    (new / "more.jsonl").write_text('{"id": "j1", "text": "Cows moo.", "year": 2019}\n')
    (new / "broken.pdf").write_text("no pdf")
    with zipfile.ZipFile(new / "old.zip", "w") as archive:
        archive.writestr("horses.txt", "Horses neigh.")
    status, out, said = here("add", str(engine), *map(str, sorted(new.iterdir())), "--text", "content")
    assert status == 0, said
    assert "4 documents" in out  # --text names a column that more.jsonl lacks
    assert {line.split()[1] for line in said.splitlines() if line.startswith("skipped")} == {
        "broken.pdf:",
        "more.jsonl:",
    }
    status, out, said = here("add", str(engine), str(new / "more.jsonl"))
    assert status == 0, said
    table = Engine.open(engine).documents_table()
    (record,) = (doc_id for doc_id in table["id"].to_pylist() if doc_id.startswith("rows.csv:"))
    for query, doc_id in (
        ("swan", "swans.md"),
        ("owl", "owls.txt"),
        ("parrot", record),
        ("horse", "old.zip/horses.txt"),
        ("cow", "j1"),
    ):
        assert found(engine, query) == [doc_id]
    assert dict(zip(table["id"].to_pylist(), table["year"].to_pylist(), strict=True))[record] == 2017


def test_documents_are_replaced_only_on_demand(engine: Path, tmp_path: Path, here: Call) -> None:
    (tmp_path / "dogs.txt").write_text("Dogs may run.")
    (tmp_path / "tax.csv").write_text("id,text\nr1,The dog tax is gone.\n")
    files = [str(tmp_path / "dogs.txt"), str(tmp_path / "tax.csv")]
    status, _, said = here("add", str(engine), *files)
    assert (status, "--replace" in said) == (2, True)
    assert found(engine, "lead") == ["dogs.txt"]
    status, out, said = here("add", str(engine), *files, "--replace")
    assert (status, "2 replaced" in out) == (0, True), said
    assert (found(engine, "lead"), found(engine, "gone")) == ([], ["r1"])


def test_a_file_of_records_is_replaced_as_a_whole(engine: Path, tmp_path: Path, here: Call) -> None:
    path = tmp_path / "birds.csv"
    path.write_text("text\nOwls hoot.\nParrots talk.\n")
    assert here("add", str(engine), str(path))[0] == 0
    (owls,) = found(engine, "owls")
    path.write_text("text\nSwans swim.\nOwls hoot.\n")
    assert here("add", str(engine), str(path))[0] == 2  # the owls are there already
    status, out, said = here("add", str(engine), str(path), "--replace")
    assert (status, "1 removed" in out) == (0, True), said
    assert (found(engine, "owls"), found(engine, "parrots"), len(found(engine, "swans"))) == ([owls], [], 1)


def test_strict_adds_nothing_if_a_file_cannot_be_read(engine: Path, tmp_path: Path, here: Call) -> None:
    (tmp_path / "owls.txt").write_text("Owls hoot.")
    (tmp_path / "empty.txt").write_text("")
    files = [str(tmp_path / "owls.txt"), str(tmp_path / "empty.txt")]
    status, _, said = here("add", str(engine), *files, "--strict")
    assert (status, "empty.txt" in said) == (2, True)
    assert found(engine, "owl") == []
    status, _, said = here("add", str(engine), files[1])
    assert (status, "empty" in said) == (2, True)
    assert here("add", str(engine), *files)[0] == 0
    assert found(engine, "owl") == ["owls.txt"]
