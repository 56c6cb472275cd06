"""The same command again updates an engine of a folder: what changed is read, and the rest stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from haybale import BM25, Engine, InputError
from haybale.collections.readers.files import read_files
from haybale.collections.unread import sorted_parts
from haybale.engine.indexed_source import FILES
from haybale.engine.update import record_files, signatures, update


def built(source: Path, folder: Path) -> Engine:
    collection = read_files(source)
    engine = Engine.build(collection, folder, language="english", encoder="tfidf(min_df=1)")
    record_files(engine, signatures(source), source)
    return engine


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "sub").mkdir(parents=True)
    (folder / "dogs.txt").write_text("Dogs must be kept on a lead.")
    (folder / "cats.txt").write_text("Cats need no lead.")
    (folder / "sub" / "tax.csv").write_text("id,text\nr1,The dog tax is due in May.\nr2,The cat tax is due in June.\n")
    (folder / "broken.pdf").write_text("no pdf")
    with zipfile.ZipFile(folder / "old.zip", "w") as archive:
        archive.writestr("horses.txt", "Horses neigh.")
    return folder


def test_new_changed_and_deleted_files(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    engine = built(source, tmp_path / "engine")
    first = set(engine.collection.doc_ids.to_pylist())
    assert first == {"dogs.txt", "cats.txt", "r1", "r2", "old.zip/horses.txt"}
    assert update(engine, source)[:3] == (0, 0, 0)
    (source / "cats.txt").unlink()
    (source / "dogs.txt").write_text("Dogs may run in the park.")
    (source / "more.csv").write_text("id,text\nr1,Another r1 about parrots.\nr9,Parrots talk.\n")
    (source / "broken.pdf").unlink()
    (source / "empty.txt").write_text("")
    with zipfile.ZipFile(source / "old.zip", "w") as archive:
        archive.writestr("ponies.txt", "Ponies are small horses.")
    found = update(engine, source)
    assert found[:3] == (3, 1, 2)
    assert [part.file for part in engine.unread] == ["empty.txt"]
    whole = read_files(source)
    texts = dict(zip(engine.collection.doc_ids.to_pylist(), engine.collection.document_texts(), strict=True))
    assert sorted(texts.values()) == sorted(whole.document_texts())
    assert texts["dogs.txt"] == "Dogs may run in the park."
    (parrots,) = (doc_id for doc_id, text in texts.items() if "Another r1" in text)
    assert parrots.startswith("more.csv:")  # r1 is the id of another row
    for each in (engine, Engine.open(tmp_path / "engine")):
        run = BM25().fit(each).rank({"q": "parrots"})
        assert {name for name, _ in run["q"]} == {parrots, "r9"}
    assert update(Engine.open(tmp_path / "engine"), source)[:3] == (0, 0, 0)


def test_strict_refuses_an_update_before_anything_changes(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    engine = built(source, tmp_path / "engine")
    before = engine.collection.document_texts()
    (source / "dogs.txt").write_text("Dogs may run in the park.")
    with pytest.raises(InputError, match=r"broken\.pdf"):
        update(engine, source, strict=True)
    assert Engine.open(tmp_path / "engine").collection.document_texts() == before
    (source / "broken.pdf").unlink()
    assert update(engine, source, strict=True)[:3] == (0, 1, 0)


def test_metadata_of_all_documents_follows_its_file(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    engine = built(source, tmp_path / "engine")
    (source / "metadata.csv").write_text("path,court\ndogs.txt,BGH\n")
    update(engine, source)
    metadata = dict(zip(engine.collection.doc_ids.to_pylist(), engine.collection.metadata.to_pylist(), strict=True))
    assert metadata["dogs.txt"]["court"] == "BGH"
    assert metadata["cats.txt"]["court"] is None


def test_a_changed_metadata_file_reads_only_files_that_lost_a_value(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pypdfium2")
    (source / "broken.pdf").unlink()
    (source / "notes.md").write_text("---\ncourt: OLG\nyear: 2011\n---\n# Notes\n\nA note about hens.")
    path, read, has_text = source / "metadata.csv", list[str](), False
    path.write_text("path,court,year\ndogs.txt,BGH,2015\nnotes.md,AG,\n")
    engine = built(source, tmp_path / "engine")
    module = sys.modules["haybale.collections.readers.files"]
    whole = module.read_file
    monkeypatch.setattr(module, "read_file", lambda item, columns: (read.append(item.id), whole(item, columns))[1])
    for text, again in [
        ("path,court,year\ndogs.txt,LG,2016\ncats.txt,,2017\nnotes.md,AG,\n", []),
        ("path,court,year,topics\ndogs.txt,LG,2016,pets\ncats.txt,VG,2017,\nsub/tax.csv,FG,,\nnotes.md,VG,\n", []),
        (
            "path,court,year\ndogs.txt,LG,2016\ncats.txt,VG,soon\nsub/tax.csv,FG,\nnope.txt,LG,\n",
            ["dogs.txt", "notes.md"],
        ),
        ('path,court\ndogs.txt,"LG\n', ["cats.txt", "dogs.txt", "sub/tax.csv"]),
        ("path,decided\nold.zip/horses.txt,2015-03-01\n", []),
        (None, ["old.zip/horses.txt"]),
    ]:
        read.clear()
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
            has_text = has_text or "soon" in text
        found = update(engine, source)
        assert (sorted(read), found[:3]) == (again, (0, len(again) + ("sub/tax.csv" in again), 0))
        fresh = read_files(source)
        assert engine.unread == sorted_parts(fresh.unread)
        for each in (engine, Engine.open(tmp_path / "engine")):
            ours, theirs = each.documents_table(), fresh.documents_table()
            columns = [name for name in ours.column_names if name in theirs.column_names]
            assert set(theirs.column_names) == set(columns)
            assert all(not any(ours[name].to_pylist()) for name in set(ours.column_names) - set(columns))
            ours, theirs = (table.select(columns).sort_by("id").to_pylist() for table in (ours, theirs))
            if not has_text:
                assert ours == theirs
            # A column stays one of texts if it has had a text.
            assert [{name: str(v) for name, v in row.items()} for row in ours] == [
                {name: str(v) for name, v in row.items()} for row in theirs
            ]
        read.clear()
        assert update(engine, source)[:3] == (0, 0, 0)
        assert not read
    engine = Engine.open(tmp_path / "engine")
    assert [name for name, _ in BM25().fit(engine).rank({"q": "hens"}, where="court = 'OLG' and year = 2011")["q"]]


def test_only_what_changed_is_read(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pypdfium2")
    engine = built(source, tmp_path / "engine")
    (source / "cats.txt").write_text("Cats purr.")
    read: list[str] = []
    module = sys.modules["haybale.collections.readers.files"]
    whole = module.read_file
    monkeypatch.setattr(module, "read_file", lambda item, columns: (read.append(item.id), whole(item, columns))[1])
    assert update(engine, source)[:3] == (0, 1, 0)
    assert read == ["cats.txt"]


def test_the_command_updates(source: Path, tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    pytest.importorskip("pypdfium2")
    out = str(tmp_path / "engine")
    command = ["index", str(source), "--out", out, "--language", "english"]
    assert here(*command)[0] == 0
    (source / "new.txt").write_text("Cows moo.")
    status, _, said = here(*command)
    assert (status, "1 documents added" in said) == (0, True)
    status, _, said = here(*command[:-1], "german")
    assert (status, "'english'" in said) == (2, True)
    assert "new.txt" in Engine.open(out).collection.doc_ids.to_pylist()


@pytest.mark.parametrize(
    "delay", [0.02, *(pytest.param(delay, marks=pytest.mark.thorough) for delay in (0.0, 0.05, 0.1))]
)
def test_a_killed_update_leaves_the_old_or_the_new_engine(delay: float, source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    out = tmp_path / "engine"
    engine = built(source, out)
    old = sorted(engine.collection.document_texts())
    (source / "cats.txt").unlink()
    for number in range(200):
        (source / f"{number}.txt").write_text(f"A note with number {number}.")
    new = sorted(read_files(source).document_texts())
    before = (out / FILES).stat().st_mtime_ns
    process = subprocess.Popen(
        [sys.executable, "-m", "haybale", "index", str(source), "--out", str(out)], stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not (out / "1").exists() and (out / FILES).stat().st_mtime_ns == before:
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sorted(Engine.open(out).collection.document_texts()) in (old, new)
    update(Engine.open(out), source)
    assert sorted(Engine.open(out).collection.document_texts()) == new
