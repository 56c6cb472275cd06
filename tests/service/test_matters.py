"""Matters are found in folders, opened when they are asked for, and closed when nobody uses them."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.matters import WORDS, build_matter, matters_of

from haybale import Engine
from haybale.errors import InputError
from haybale.service.matters import matter as matter_module
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter import Matter
from haybale.service.matters.matter_folders import MatterFolders
from haybale.service.matters.opened_matter import OpenedMatter


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("built")
    for name, word in WORDS.items():
        build_matter(folder / name, word)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """Return a folder with the engines smith and jones."""
    return Path(shutil.copytree(built, tmp_path / "matters"))


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def matters(folder: Path, clock: Clock) -> Iterator[Matters]:
    """Return matters that are closed after a minute; they are looked at only where a test does so."""
    found = matters_of(folder, idle_seconds=60, clock=clock)
    yield found
    found.stop()


def until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def used(matter: Matter, work: Callable[[OpenedMatter], Any] = lambda opened: None, seconds: float = 30) -> Any:
    """Return what a function makes of an opened matter; None if the matter cannot be opened."""

    async def use() -> Any:
        async with matter.use(seconds) as opened:
            return None if opened is None else work(opened)

    return asyncio.run(use())


def titles(opened: OpenedMatter) -> list[str]:
    return [hit.title for hit in opened.workspace.search("lease")]


def test_matters_have_the_names_of_their_folders(folder: Path) -> None:
    (folder / "notes").mkdir()
    shutil.copytree(folder / "smith", folder / ".hidden")
    assert list(MatterFolders([folder]).latest) == ["jones", "smith"]
    assert list(MatterFolders([folder / "smith"]).latest) == ["smith"]
    assert list(MatterFolders([folder / "jones", folder / "smith" / "..", folder]).latest) == ["jones", "smith"]


def test_two_matters_of_one_name_or_of_one_engine_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "smith", tmp_path / "other" / "smith")
    (folder / "alias").symlink_to(folder / "smith")
    for folders in ([folder / "smith", tmp_path / "other"], [folder], [folder / "none"], [folder / "smith" / "engine.json"]):
        with pytest.raises(InputError):
            MatterFolders(folders)


def test_engines_that_come_later_are_reported_once_if_they_cannot_be_matters(folder: Path) -> None:
    folders = MatterFolders([folder])
    (folder / "alias").symlink_to(folder / "smith")
    (folder / "line\nbreak").mkdir()
    shutil.copy(folder / "smith" / "engine.json", folder / "line\nbreak")
    assert len(folders.look()) == 2
    assert folders.look() == []
    assert list(folders.latest) == ["alias", "jones"]


def test_a_folder_that_cannot_be_read_for_a_moment_keeps_its_matters(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = MatterFolders([folder])

    def failing(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", failing)
    assert len(folders.look()) == 1
    assert list(folders.latest) == ["jones", "smith"]


def test_a_matter_is_opened_once_however_many_ask(matters: Matters) -> None:
    smith, openings = matters.get("smith"), []
    assert smith is not None
    assert smith.status == "closed"

    async def ask_at_once() -> list[OpenedMatter | None]:
        async def ask() -> OpenedMatter | None:
            async with smith.use(30) as opened:
                openings.append(smith.status)
                return opened

        return await asyncio.gather(*(ask() for _ in range(20)))

    assert len({id(opened) for opened in asyncio.run(ask_at_once())}) == 1
    assert set(openings) == {"open"}
    jones = matters.get("jones")
    assert jones is not None
    assert jones.status == "closed"


def test_an_idle_matter_is_closed_and_what_it_held_is_gone(matters: Matters, clock: Clock) -> None:
    smith = matters.get("smith")
    assert smith is not None
    held = used(smith, lambda opened: [weakref.ref(part) for part in (opened, opened.workspace, opened.workspace.engine)])
    topic = used(smith, lambda opened: opened.workspace.create_topic("lease").id)
    n_threads = threading.active_count()
    clock.now = 59
    matters.look()
    assert smith.status == "open"
    clock.now = 120
    until(lambda: matters.look() or smith.status == "closed")
    gc.collect()
    assert [part() for part in held] == [None] * 3
    assert threading.active_count() < n_threads
    assert used(smith, lambda opened: [summary.id for summary in opened.workspace.topics()]) == [topic]


def test_a_matter_in_which_something_is_unfinished_stays_open(matters: Matters, clock: Clock) -> None:
    smith = matters.get("smith")
    assert smith is not None

    def begin(opened: OpenedMatter) -> OpenedMatter:
        topic = opened.workspace.create_topic("zebra").id
        assert opened.workspace.next(topic, judge="Ada")
        clock.now = 100
        matters.look()
        assert smith.status == "open"  # this request is running
        return opened

    opened = used(smith, begin)
    clock.now = 200
    until(lambda: "open" in (opened.workspace.unfinished() or ""))  # Ada has a document open for ten minutes
    matters.look()
    assert smith.status == "open"
    clock.now = 10_000
    opened.workspace._clock  # the workspace has a clock of its own
    for offers in opened.workspace._offers.values():
        offers._offers.clear()
    (opened.workspace._trainings.folder / "1").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("haybale.service.trainings._is_running", lambda folder: True)
        assert "training" in opened.workspace.unfinished()
        matters.look()
        assert smith.status == "open"
    until(lambda: matters.look() or smith.status == "closed")


def test_a_request_that_comes_while_a_matter_is_closed_opens_it_again(matters: Matters, clock: Clock) -> None:
    smith = matters.get("smith")
    assert smith is not None
    expected = used(smith, titles)
    for turn in range(1, 4):
        clock.now = 100.0 * turn
        until(lambda: matters.look() or smith.status != "open" or smith._changing is not None)
        assert used(smith, titles) == expected


def test_a_broken_matter_says_why_and_is_tried_again(matters: Matters, folder: Path, clock: Clock) -> None:
    smith, jones = matters.get("smith"), matters.get("jones")
    assert smith is not None
    assert jones is not None
    whole = (folder / "smith" / "engine.json").read_bytes()
    (folder / "smith" / "engine.json").write_text("{")
    assert used(smith, titles) is None
    assert (smith.status, "engine.json" in smith.problem) == ("broken", True)
    assert used(jones, titles)
    (folder / "smith" / "engine.json").write_bytes(whole)
    assert used(smith, titles) is None  # not yet tried again
    clock.now += matter_module.AGAIN_SECONDS
    assert used(smith, titles)
    assert smith.problem == ""


def test_the_judgements_of_another_matter_are_refused(matters: Matters, folder: Path, clock: Clock) -> None:
    """A file of judgements that was moved or copied to another matter belongs to the engine of before."""
    smith, jones = matters.get("smith"), matters.get("jones")
    assert smith is not None
    assert jones is not None
    used(smith, lambda opened: opened.workspace.create_topic("zebra"))
    clock.now = 1000
    until(lambda: matters.look() or smith.status == "closed")
    shutil.copy(folder / "smith-judgements.sqlite", folder / "jones-judgements.sqlite")
    assert used(jones, titles) is None
    assert "another engine" in jones.problem
    (folder / "jones-judgements.sqlite").unlink()
    clock.now += matter_module.AGAIN_SECONDS
    assert used(jones, lambda opened: opened.workspace.topics()) == []
    assert used(smith, lambda opened: [topic.name for topic in opened.workspace.topics()]) == ["zebra"]


def test_engines_come_and_go_without_a_restart(matters: Matters, folder: Path, tmp_path: Path) -> None:
    smith = matters.get("smith")
    assert smith is not None
    before = used(smith, titles)
    build_matter(tmp_path / "lee", "otter")
    shutil.move(tmp_path / "lee", folder / "lee")
    matters.look()
    assert [matter.name for matter in matters.all()] == ["jones", "lee", "smith"]
    lee = matters.get("lee")
    assert lee is not None
    assert used(lee, titles) == ["Otter 0"]

    # Another engine in the place of one: its matter is another one, too.
    shutil.rmtree(folder / "lee")
    shutil.move(folder / "smith", tmp_path / "smith")
    (folder / "smith-judgements.sqlite").unlink()
    shutil.move(folder / "jones", folder / "smith")
    until(lambda: matters.look() or (lee._opened, smith._opened) == (None, None))
    assert [matter.name for matter in matters.all()] == ["smith"]
    again = matters.get("smith")
    assert again is not None
    assert (before, used(again, titles)) == (["Zebra 0"], ["Walrus 0"])
    assert used(smith, titles, seconds=0.05) is None


def test_documents_that_others_add_to_a_matter_are_found(matters: Matters, folder: Path) -> None:
    smith = matters.get("smith")
    assert smith is not None
    used(smith)
    Engine.open(folder / "smith").add({"new": {"text": "A lease of a zebra and a lease.", "title": "New"}})
    until(lambda: "New" in used(smith, titles))
