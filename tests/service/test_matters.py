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
from support.matters import build_matter, matters_of

from haybale import Engine
from haybale.errors import InputError
from haybale.service.matters import matter as matter_module
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter import Matter
from haybale.service.matters.matter_folders import MatterFolders
from haybale.service.matters.opened_matter import OpenedMatter


@pytest.fixture
def folder(matter_engines: Path, tmp_path: Path) -> Path:
    """Return a folder with the engines plover and heron."""
    return Path(shutil.copytree(matter_engines, tmp_path / "matters"))


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
    shutil.copytree(folder / "plover", folder / ".hidden")
    assert list(MatterFolders([folder]).latest) == ["heron", "plover"]
    assert list(MatterFolders([folder / "plover"]).latest) == ["plover"]
    assert list(MatterFolders([folder / "heron", folder / "plover" / "..", folder]).latest) == ["heron", "plover"]


def test_two_matters_of_one_name_or_of_one_engine_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "plover", tmp_path / "other" / "plover")
    (folder / "alias").symlink_to(folder / "plover")
    plover = folder / "plover"
    for folders in ([plover, tmp_path / "other"], [folder], [folder / "none"], [plover / "engine.json"]):
        with pytest.raises(InputError):
            MatterFolders(folders)


def test_engines_that_come_later_are_reported_once_if_they_cannot_be_matters(folder: Path) -> None:
    folders = MatterFolders([folder])
    (folder / "alias").symlink_to(folder / "plover")
    (folder / "line\nbreak").mkdir()
    shutil.copy(folder / "plover" / "engine.json", folder / "line\nbreak")
    assert len(folders.look()) == 2
    assert folders.look() == []
    assert list(folders.latest) == ["alias", "heron"]


def test_a_folder_that_cannot_be_read_for_a_moment_keeps_its_matters(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = MatterFolders([folder])

    def failing(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", failing)
    assert len(folders.look()) == 1
    assert list(folders.latest) == ["heron", "plover"]


def test_a_matter_is_opened_once_however_many_ask(matters: Matters) -> None:
    plover, openings = matters.get("plover"), []
    assert plover is not None
    assert plover.status == "closed"

    async def ask_at_once() -> list[OpenedMatter | None]:
        async def ask() -> OpenedMatter | None:
            async with plover.use(30) as opened:
                openings.append(plover.status)
                return opened

        return await asyncio.gather(*(ask() for _ in range(20)))

    assert len({id(opened) for opened in asyncio.run(ask_at_once())}) == 1
    assert set(openings) == {"open"}
    heron = matters.get("heron")
    assert heron is not None
    assert heron.status == "closed"


def test_an_idle_matter_is_closed_and_what_it_held_is_gone(matters: Matters, clock: Clock) -> None:
    plover = matters.get("plover")
    assert plover is not None
    held = used(plover, lambda opened: list(map(weakref.ref, (opened, opened.workspace, opened.workspace.engine))))
    topic = used(plover, lambda opened: opened.workspace.create_topic("lease").id)
    n_threads = threading.active_count()
    clock.now = 59
    matters.look()
    assert plover.status == "open"
    clock.now = 120
    until(lambda: matters.look() or plover.status == "closed")
    gc.collect()
    assert [part() for part in held] == [None] * 3
    assert threading.active_count() < n_threads
    assert used(plover, lambda opened: [summary.id for summary in opened.workspace.topics()]) == [topic]


def test_a_matter_in_which_something_is_unfinished_stays_open(matters: Matters, clock: Clock) -> None:
    plover = matters.get("plover")
    assert plover is not None

    def begin(opened: OpenedMatter) -> OpenedMatter:
        topic = opened.workspace.create_topic("zebra").id
        assert opened.workspace.next(topic, judge="Ada")
        clock.now = 100
        matters.look()
        assert plover.status == "open"  # this request is running
        return opened

    opened = used(plover, begin)
    clock.now = 200
    until(lambda: "open" in (opened.workspace.unfinished() or ""))  # Ada has a document open for ten minutes
    matters.look()
    assert plover.status == "open"
    clock.now = 10_000
    for offers in opened.workspace._offers.values():
        offers._offers.clear()
    (opened.workspace._trainings.folder / "1").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("haybale.service.trainings._is_running", lambda folder: True)
        assert "training" in opened.workspace.unfinished()
        matters.look()
        assert plover.status == "open"
    until(lambda: matters.look() or plover.status == "closed")


def test_a_request_that_comes_while_a_matter_is_closed_opens_it_again(matters: Matters, clock: Clock) -> None:
    plover = matters.get("plover")
    assert plover is not None
    expected = used(plover, titles)
    for turn in range(1, 4):
        clock.now = 100.0 * turn
        until(lambda: matters.look() or plover.status != "open" or plover._changing is not None)
        assert used(plover, titles) == expected


def test_a_broken_matter_says_why_and_is_tried_again(matters: Matters, folder: Path, clock: Clock) -> None:
    plover, heron = matters.get("plover"), matters.get("heron")
    assert plover is not None
    assert heron is not None
    whole = (folder / "plover" / "engine.json").read_bytes()
    (folder / "plover" / "engine.json").write_text("{")
    assert used(plover, titles) is None
    assert (plover.status, "engine.json" in plover.problem) == ("broken", True)
    assert used(heron, titles)
    (folder / "plover" / "engine.json").write_bytes(whole)
    assert used(plover, titles) is None  # not yet tried again
    clock.now += matter_module.AGAIN_SECONDS
    assert used(plover, titles)
    assert plover.problem == ""


def test_the_judgements_of_another_matter_are_refused(matters: Matters, folder: Path, clock: Clock) -> None:
    """A file of judgements that was moved or copied to another matter belongs to the engine of before."""
    plover, heron = matters.get("plover"), matters.get("heron")
    assert plover is not None
    assert heron is not None
    used(plover, lambda opened: opened.workspace.create_topic("zebra"))
    clock.now = 1000
    until(lambda: matters.look() or plover.status == "closed")
    shutil.copy(folder / "plover-judgements.sqlite", folder / "heron-judgements.sqlite")
    assert used(heron, titles) is None
    assert "another engine" in heron.problem
    (folder / "heron-judgements.sqlite").unlink()
    clock.now += matter_module.AGAIN_SECONDS
    assert used(heron, lambda opened: opened.workspace.topics()) == []
    assert used(plover, lambda opened: [topic.name for topic in opened.workspace.topics()]) == ["zebra"]


def test_engines_come_and_go_without_a_restart(matters: Matters, folder: Path, tmp_path: Path) -> None:
    plover = matters.get("plover")
    assert plover is not None
    before = used(plover, titles)
    build_matter(tmp_path / "lark", "otter")
    shutil.move(tmp_path / "lark", folder / "lark")
    matters.look()
    assert [matter.name for matter in matters.all()] == ["heron", "lark", "plover"]
    lark = matters.get("lark")
    assert lark is not None
    assert used(lark, titles) == ["Otter 0"]

    # Another engine in the place of one: its matter is another one, too.
    shutil.move(folder / "lark", tmp_path / "gone")
    shutil.move(folder / "plover", tmp_path / "plover")
    (folder / "plover-judgements.sqlite").unlink()
    shutil.move(folder / "heron", folder / "plover")
    until(lambda: matters.look() or (lark._opened, plover._opened) == (None, None))
    assert [matter.name for matter in matters.all()] == ["plover"]
    again = matters.get("plover")
    assert again is not None
    assert (before, used(again, titles)) == (["Zebra 0"], ["Walrus 0"])
    assert used(plover, titles, seconds=0.05) is None


def test_documents_that_others_add_to_a_matter_are_found(matters: Matters, folder: Path) -> None:
    plover = matters.get("plover")
    assert plover is not None
    used(plover)
    Engine.open(folder / "plover").add({"new": {"text": "A lease of a zebra and a lease.", "title": "New"}})
    until(lambda: "New" in used(plover, titles))
