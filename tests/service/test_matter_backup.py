"""Backups of a matter: whole, of one moment, restored elsewhere, and never half restored."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from support.commands import haybale as command
from support.decisions import decisions
from support.matter import make_matter, state_of
from support.served import Served, judge_together

from haybale import Engine, parse
from haybale.errors import HaybaleError, InputError, OutputExistsError, StoreError
from haybale.review import Judgement, JudgementStore
from haybale.service import Workspace, backup_matter, matter_backup, restore_matter
from haybale.service.matter_files import engine_files

OLD_JUDGEMENTS = Path(__file__).parents[1] / "data" / "judgements-3.sql"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two matters in one folder, the name of one of which begins with that of the other: copy the folder."""
    folder = tmp_path_factory.mktemp("matters")
    make_matter(folder)
    make_matter(folder, "smith-2")
    (folder / "smith-files").mkdir()  # the files that the engine was built from
    (folder / "smith-files" / "letter.txt").write_text("Dear Ada")
    (folder / "smith-notes.txt").write_text("of somebody")
    return folder


@pytest.fixture
def smith(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "here")
    return tmp_path / "here" / "smith"


def files_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, without those that SQLite makes when a database is opened."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def names_in(backup: Path) -> set[str]:
    return set(json.loads((backup / "backup.json").read_text())["files"])


@pytest.mark.parametrize("name", ["copy", "copy.zip"])
def test_a_matter_is_restored_on_another_machine(smith: Path, tmp_path: Path, name: str) -> None:
    before, state = files_of(smith.parent), state_of(smith)
    written = backup_matter(smith, tmp_path / name, with_engine=True)
    assert written.n_rows == 2
    assert files_of(smith.parent) == before
    shutil.rmtree(smith.parent)
    there = tmp_path / "there" / "jones"
    restored = restore_matter(tmp_path / name, there)
    assert restored == (2, [], True)
    assert state_of(there) == state
    assert sorted(path.name for path in there.parent.iterdir()) == [
        "jones", "jones-judgements-models", "jones-judgements.sqlite", "jones-judgements.sqlite.queries",
        "jones-searches.sqlite",
    ]  # fmt: skip
    engine = Engine.open(there)
    with JudgementStore(there.with_name("jones-judgements.sqlite")) as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        assert workspace.rankers[0] != "bm25"  # the trained ranker that was accepted
        assert workspace.search("dogs that bite").hits[0].doc_id.startswith("dog/")
        assert store.owner is not None
        assert store.owner.folder == str(there)


def test_a_backup_has_nothing_of_another_matter(smith: Path, tmp_path: Path) -> None:
    backup_matter(smith, tmp_path / "again")
    restore_matter(tmp_path / "again", smith)  # sets the old files aside
    backup_matter(smith, tmp_path / "copy", with_engine=True)
    tops = {name.partition("/")[0] for name in names_in(tmp_path / "copy")}
    assert tops == {
        "engine",
        "engine-searches.sqlite",
        "judgements.sqlite",
        "judgements.sqlite.queries",
        "judgements-models",
    }
    assert state_of(smith)["searches"] == ["of smith"]
    queries = [path.read_text() for path in (tmp_path / "copy" / "judgements.sqlite.queries").iterdir()]
    assert queries == ["The long query of smith."]
    shutil.rmtree(smith.with_name("smith-2"))  # its judgements are still there
    backup_matter(smith, tmp_path / "without")
    assert {name.partition("/")[0] for name in names_in(tmp_path / "without")} == tops - {"engine"}
    with pytest.raises(StoreError, match="another one"):
        backup_matter(smith, tmp_path / "wrong", smith.with_name("smith-2-judgements.sqlite"))


def test_files_elsewhere_are_found_and_restored_by_their_options(smith: Path, tmp_path: Path) -> None:
    state, data = state_of(smith), tmp_path / "data"
    data.mkdir()
    os.replace(smith.with_name("smith-judgements.sqlite"), data / "j.db")
    os.replace(smith.with_name("smith-judgements-models"), tmp_path / "models")
    backup_matter(smith, tmp_path / "copy", data / "j.db", tmp_path / "models")
    assert "judgements-models/accepted.json" in names_in(tmp_path / "copy")
    restore_matter(tmp_path / "copy", smith)
    restored = state_of(smith)
    assert (restored["judgements"], restored["accepted"]) == (state["judgements"], state["accepted"])


def test_a_restore_keeps_what_was_there(smith: Path, tmp_path: Path) -> None:
    state = state_of(smith)
    backup_matter(smith, tmp_path / "copy", with_engine=True)
    with JudgementStore(smith.with_name("smith-judgements.sqlite")) as store:
        store.add(store.topics()[0], Judgement("road/3", "judged", 1))
    (smith.with_name("smith-judgements-models") / "accepted.json").write_text('{"accepted": []}')
    later, engine = state_of(smith), files_of(smith)
    restored = restore_matter(tmp_path / "copy", smith)
    assert not restored.engine_is_restored
    assert files_of(smith) == engine
    assert state_of(smith) == state
    assert len(restored.set_aside) == 4
    for path in restored.set_aside:
        original, _, _ = path.name.partition(".20")
        os.replace(path, tmp_path / original)
    (tmp_path / "smith").mkdir()
    assert state_of(tmp_path / "smith") == later | {"engine": False}
    assert files_of(smith.with_name("smith-files"))


def test_modes_and_owners_stay(smith: Path, tmp_path: Path) -> None:
    judgements, models = smith.with_name("smith-judgements.sqlite"), smith.with_name("smith-judgements-models")
    judgements.chmod(0o640)
    is_root = os.getuid() == 0
    if is_root:
        os.chown(judgements, 1234, 1234)
        os.chown(models, 1234, 1234)
    for name in ("copy", "copy.zip"):
        backup_matter(smith, tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    restore_matter(tmp_path / "copy", smith)
    assert judgements.stat().st_mode & 0o777 == 0o640
    owners = {path.stat().st_uid for path in (judgements, models, models / "accepted.json")}
    assert owners == ({1234} if is_root else {os.getuid()})


def test_a_backup_is_of_one_moment_over_all_databases(smith: Path, tmp_path: Path) -> None:
    """A writer adds a judgement, then a search: a moment never has a search whose judgement is missing."""
    is_over, has_begun = threading.Event(), threading.Event()

    def write() -> None:
        with (
            JudgementStore(smith.with_name("smith-judgements.sqlite")) as store,
            closing(sqlite3.connect(smith.with_name("smith-searches.sqlite"), timeout=60)) as searches,
        ):
            topic = store.topics()[0]
            for number in range(2, 10**6):
                store.add(topic, Judgement(f"dog/{number}", "judged", 1))
                with searches:
                    searches.execute("INSERT INTO searches (name) VALUES (?)", [str(number)])
                has_begun.set()
                if is_over.is_set():
                    return

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert has_begun.wait(60)
        for number in range(4):
            backup_matter(smith, tmp_path / f"copy{number}")
    finally:
        is_over.set()
        writing.join()
    counts = []
    for number in range(4):
        there = tmp_path / f"there{number}" / "smith"
        shutil.copytree(smith, there)
        restore_matter(tmp_path / f"copy{number}", there)
        state = state_of(there)
        counts.append(len(state["judgements"]))
        assert len(state["judgements"]) - len(state["searches"]) in (1, 2)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_copy_begins_again_if_a_segment_is_merged_meanwhile(
    smith: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_calls = 0

    def changing(folder, manifest):
        nonlocal n_calls
        n_calls += 1
        yield from engine_files(folder, manifest)
        if n_calls == 1:
            yield "1/collection/manifest.json", folder / "1" / "collection" / "manifest.json"  # merged since

    monkeypatch.setattr(matter_backup, "engine_files", changing)
    backup_matter(smith, tmp_path / "copy", with_engine=True)
    assert n_calls == 2
    assert Engine.open(tmp_path / "copy" / "engine").identity == Engine.open(smith).identity


def test_engines_grow_while_they_are_copied(smith: Path, tmp_path: Path) -> None:
    engine = Engine.open(smith)
    for number in range(12):  # of which ten are merged to one
        engine.add({f"whale/{number}": f"A whale is no fish, says number {number}."})
    backup_matter(smith, tmp_path / "copy", with_engine=True)
    restore_matter(tmp_path / "copy", tmp_path / "there" / "smith")
    restored = Engine.open(tmp_path / "there" / "smith")
    assert restored.collection.n_documents == engine.collection.n_documents == 24
    query = {"q": "whales and dogs"}
    assert parse("rrf(bm25,knn)").fit(restored).rank(query) == parse("rrf(bm25,knn)").fit(engine).rank(query)


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_damaged_backup_is_refused_before_anything_is_touched(smith: Path, tmp_path: Path, kind: str) -> None:
    good = tmp_path / f"copy.{kind}"
    backup_matter(smith, good, with_engine=True)
    there = tmp_path / "there" / "smith"
    make_matter(there.parent)  # another engine of the same name
    with pytest.raises(StoreError, match="engine"):
        restore_matter(good, there)
    shutil.rmtree(there.parent)
    there.parent.mkdir()
    shutil.copytree(smith, there)
    with JudgementStore(there.with_name("smith-judgements.sqlite")) as store:
        store.add_topic("new")
    before = files_of(there.parent)
    bad = tmp_path / f"bad.{kind}"
    n_damages = 0
    for damaged in _damaged_copies(good, bad):
        n_damages += 1
        with pytest.raises(HaybaleError):
            restore_matter(bad, there)
        assert files_of(there.parent) == before, damaged
        assert not list(there.parent.glob(".*")), damaged
    assert n_damages >= 8
    restore_matter(good, there)


def _damaged_copies(good: Path, bad: Path):
    """Damage a copy of a backup in several ways, one after the other, and yield what was damaged."""
    if good.is_dir():
        names = sorted(names_in(good))
        for name in ["backup.json", names[0], names[-1], "judgements.sqlite", "engine/engine.json"]:
            for how in ("changed", "shortened", "removed"):
                shutil.copytree(good, bad)
                content = bytearray((bad / name).read_bytes())
                content[len(content) // 2] ^= 1
                if how == "removed":
                    (bad / name).unlink()
                else:
                    (bad / name).write_bytes(content if how == "changed" else content[: len(content) // 2])
                yield f"{name} {how}"
                shutil.rmtree(bad)
        return
    content = good.read_bytes()
    for size in (len(content) // 3, len(content) - 30):
        bad.write_bytes(content[:size])
        yield f"the first {size} bytes"
    with zipfile.ZipFile(good) as zipped:
        stored = [file for file in zipped.infolist() if file.compress_size > 100]
    for file in stored[:: len(stored) // 8]:
        at = file.header_offset + 30 + len(file.filename) + 20 + file.compress_size // 2  # within what is compressed
        changed = bytearray(content)
        changed[at] ^= 255
        bad.write_bytes(changed)
        yield f"the byte {at}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("version", 2), ("format", "another"), ("files", {"../outside": {"size": 0, "sha256": "0"}}), ("files", {"x": 1})],
)
def test_a_backup_of_another_kind_is_refused(smith: Path, tmp_path: Path, name: str, value: object) -> None:
    from haybale.manifest import with_checksum

    backup_matter(smith, tmp_path / "copy")
    path = tmp_path / "copy" / "backup.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | {name: value})))
    before = files_of(smith.parent)
    with pytest.raises(HaybaleError):
        restore_matter(tmp_path / "copy", smith)
    assert files_of(smith.parent) == before


KILLED = """
import json, os, shutil, sys
from pathlib import Path
from support.matter import state_of
from haybale.service import restore_matter

backup, origin, work = map(Path, sys.argv[1:4])
states, os.fsync = [], lambda descriptor: None  # no disk fails here
for n in range(0, 1000, int(sys.argv[4])):
    there = work / str(n)
    shutil.copytree(origin, there)
    child = os.fork()
    if not child:
        n_calls = 0
        def killing(call):
            def counted(*arguments, **how):
                global n_calls
                if n_calls == n:
                    os._exit(9)
                n_calls += 1
                return call(*arguments, **how)
            return counted
        for name in ("rename", "replace", "unlink", "fsync", "mkdir"):
            setattr(os, name, killing(getattr(os, name)))
        restore_matter(backup, there / "smith")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), code
    states.append(state_of(there / "smith"))
    states.append(state_of(there / "smith"))
    restore_matter(backup, there / "smith")  # it can be done again
    assert not [path for path in there.iterdir() if ".restor" in path.name], list(there.iterdir())
    states.append(state_of(there / "smith"))
    shutil.rmtree(there)
    if not code:
        break
print(json.dumps(states))
"""


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.thorough), 7])
def test_killed_at_any_moment_the_old_state_or_the_new_one_is_there(smith: Path, tmp_path: Path, step: int) -> None:
    backup_matter(smith, tmp_path / "copy", with_engine=True)
    new = state_of(smith)
    origin = tmp_path / "origin"
    shutil.copytree(smith.parent, origin)
    shutil.rmtree(origin / "smith")
    with JudgementStore(origin / "smith-judgements.sqlite") as store:
        store.add(store.topics()[0], Judgement("road/3", "judged", 1))
    shutil.rmtree(origin / "smith-judgements.sqlite.queries")
    (origin / "smith-judgements-models" / "accepted.json").unlink()
    old = state_of(origin / "smith")
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "copy", origin, tmp_path / "work", str(step)],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout)
    assert all(state in (old, new) for state in states), [state for state in states if state not in (old, new)]
    assert states[0] == old
    assert states[-1] == new
    assert all(state == new for state in states[2::3])
    assert [state == new for state in states[::3]].count(False) * step > 20
    assert [state == new for state in states[::3]].count(True) * step > 7


USER = """
import sqlite3, sys
searches = sqlite3.connect(sys.argv[1])
print(len(searches.execute("SELECT * FROM searches").fetchall()), flush=True)
sys.stdin.read()
"""


def test_what_is_in_use_or_another_is_refused(smith: Path, tmp_path: Path) -> None:
    backup_matter(smith, tmp_path / "copy")
    judgements = smith.with_name("smith-judgements.sqlite")
    with JudgementStore(judgements), pytest.raises(StoreError, match="uses"):
        restore_matter(tmp_path / "copy", smith)
    command_of_user = [sys.executable, "-c", USER, smith.with_name("smith-searches.sqlite")]
    with subprocess.Popen(command_of_user, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline()
        with pytest.raises(StoreError, match="uses"):
            restore_matter(tmp_path / "copy", smith)
        user.communicate()
    with pytest.raises(StoreError, match="another one"):
        restore_matter(tmp_path / "copy", smith.with_name("smith-2"))
    with pytest.raises(InputError, match="with-engine"):
        restore_matter(tmp_path / "copy", tmp_path / "nowhere" / "smith")
    for wrong in (tmp_path / "none", smith, judgements):
        with pytest.raises(HaybaleError):
            restore_matter(wrong, smith)
    for taken in (tmp_path / "copy", judgements.rename(tmp_path / "a.zip")):
        with pytest.raises((OutputExistsError, InputError)):
            backup_matter(smith, taken, tmp_path / "a.zip")
    with pytest.raises(InputError, match="judgements"):
        backup_matter(smith, tmp_path / "new")
    assert backup_matter(smith, tmp_path / "new", with_engine=True).n_rows == 0
    with pytest.raises(HaybaleError):
        backup_matter(tmp_path, tmp_path / "newer", with_engine=True)


def test_a_backup_of_an_older_version_is_restored_with_the_tables_of_today(smith: Path, tmp_path: Path) -> None:
    judgements = smith.with_name("smith-judgements.sqlite")
    judgements.unlink()
    with closing(sqlite3.connect(judgements)) as connection:
        connection.executescript(OLD_JUDGEMENTS.read_text().replace("IDENTITY", Engine.open(smith).identity))

    def version(path: Path) -> int:
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])

    backup_matter(smith, tmp_path / "copy")
    assert version(judgements) == version(tmp_path / "copy" / "judgements.sqlite") == 3  # a backup upgrades nothing
    restored = restore_matter(tmp_path / "copy", smith)
    assert version(judgements) > 3
    (old,) = [path for path in restored.set_aside if path.name.startswith(f"{judgements.name}.20")]
    assert version(old) == 3
    with JudgementStore(judgements) as store:
        rows = [(row.doc_id, row.kind, row.grade, row.judge) for row in store.judgements(store.topic("bites"))]
        assert rows == [
            ("dog/1", "judged", 1, "Ada"),
            ("tax/2", "judged", 0, "Ben"),
            ("dog/5", "judged", 1, "Ada"),
            ("dog/5", "undone", None, "Ada"),
            ("road/3", "skipped", None, "Ben"),
        ]
        store.add(store.topic("rent"), Judgement("lease/4", "judged", 1, details={"reason": "of today"}))


def test_the_commands_copy_a_matter_and_put_it_back(smith: Path, tmp_path: Path) -> None:
    done = command("backup", str(smith), str(tmp_path / "copy.zip"), "--with-engine")
    assert done.returncode == 0, done.stderr
    done = command("restore", str(tmp_path / "copy.zip"), str(tmp_path / "there" / "smith"))
    assert done.returncode == 0, done.stderr
    assert state_of(tmp_path / "there" / "smith") == state_of(smith)
    done = command("backup", str(tmp_path / "none"), str(tmp_path / "other"))
    assert done.returncode == 2


@pytest.mark.thorough
def test_a_matter_is_copied_while_judges_judge(tmp_path: Path) -> None:
    """What was acknowledged before the backup began is in it, and the service never notices."""
    folder, acknowledged = tmp_path / "smith", []
    Engine.build(decisions(400), folder, language="english", encoder="tfidf(min_df=1)").prepare()
    with Served(folder) as served:
        topic = served.ask("/api/topics", {"text": "dogs that bite"})["id"]
        judges = judge_together(served, topic, 4, acknowledged)
        before: list[list[tuple[str, str, int]]] = []
        for number in range(5):
            before.append(list(acknowledged))
            assert command("backup", str(folder), str(tmp_path / f"copy{number}"), "--with-engine").returncode == 0
        served.kill()
        for judge in judges:
            judge.join()
    for number, rows in enumerate(before):
        there = tmp_path / str(number) / "smith"
        restore_matter(tmp_path / f"copy{number}", there)
        with JudgementStore(there.with_name("smith-judgements.sqlite")) as store:
            stored = [(row.doc_id, row.judge, row.grade) for row in store.judgements(store.topics()[0])]
        assert set(rows) <= set(stored)
        assert len(stored) == len(set(stored))
    assert len(before[0]) < len(before[-1])
