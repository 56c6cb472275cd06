"""The store of judgements: rows are added and never changed, and none is lost by a kill, a thread or a process."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from haybale import InputError, StoreError, UnknownNameError
from haybale.review import Judgement, JudgementStore
from haybale.review import judgement_store as module


def test_rows_come_back_as_they_were_added(tmp_path: Path) -> None:
    given = Judgement("ä:1", "judged", 2, "Ada", 3.5, 'a "note"\nof two lines', "p1", "The text.", 4, "learner", "ff")
    with JudgementStore(tmp_path / "deep" / "store.sqlite") as store:
        topic = store.add_topic("leases", "When does a lease end?", {"random_state": 3})
        other = store.add_topic("pets")
        first, second = store.add(topic, given, Judgement("b", "skipped"))
        store.add(other, Judgement("b", "judged", 0))
    with JudgementStore(tmp_path / "deep" / "store.sqlite") as store:
        assert [each.name for each in store.topics()] == ["leases", "pets"]
        topic = store.topic("leases")
        assert (topic.text, topic.settings) == ("When does a lease end?", {"random_state": 3})
        one, two = store.judgements(topic)
        assert (one.number, two.number) == (first, second)
        assert one.time == two.time > "2000"
        assert [getattr(one, name) for name in module._ROW_COLUMNS if name != "time"] == [
            getattr(given, name) for name in module._ROW_COLUMNS if name != "time"
        ]
        assert store.judgements(topic, after=first) == [two]


def test_rows_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with JudgementStore(path) as store:
        store.add(store.add_topic("t"), Judgement("a", "judged", 1))
    connection = sqlite3.connect(path)
    for change in ("UPDATE judgements SET grade = 0", "DELETE FROM judgements"):
        with pytest.raises(sqlite3.IntegrityError, match="never change"):
            connection.execute(change)
    connection.close()


@pytest.mark.parametrize(
    "row",
    [
        Judgement("a", "judged"),
        Judgement("a", "judged", -1),
        Judgement("a", "judged", 1.5),  # type: ignore[arg-type]
        Judgement("a", "skipped", 1),
        Judgement("a", "liked"),  # type: ignore[arg-type]
        Judgement("a\0", "judged", 1),
        Judgement("a", "undone"),
        Judgement("a", "undone", undoes=77),
        Judgement("a", "judged", 1, seconds=-1.0),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_with_those_beside_it(row: Judgement) -> None:
    with JudgementStore() as store:
        topic = store.add_topic("t")
        with pytest.raises((InputError, StoreError)):
            store.add(topic, Judgement("b", "judged", 1), row)
        assert store.judgements(topic) == []


def test_a_row_is_undone_once() -> None:
    with JudgementStore() as store:
        topic = store.add_topic("t")
        (number,) = store.add(topic, Judgement("a", "judged", 1))
        store.add(topic, Judgement("a", "undone", undoes=number))
        with pytest.raises(InputError):
            store.add(topic, Judgement("a", "undone", undoes=number))


def test_topics_keep_their_text() -> None:
    with JudgementStore() as store:
        store.add_topic("t", "one text")
    with pytest.raises(StoreError, match="closed"):
        store.topics()
    with JudgementStore() as store:
        store.add_topic("t", "one text")
        assert store.add_topic("t").text == "one text"
        with pytest.raises(InputError, match="one text"):
            store.add_topic("t", "another")
        store.add_topic("long", 100 * "the same " + "to the end")
        with pytest.raises(InputError, match=r"to the end.*to the middle"):
            store.add_topic("long", 100 * "the same " + "to the middle")
        with pytest.raises(InputError):
            store.add_topic("  ")
        with pytest.raises(UnknownNameError):
            store.topic("u")


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, database, later = tmp_path / "a.txt", tmp_path / "b.sqlite", tmp_path / "c.sqlite"
    text.write_text("no database " * 100)
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    JudgementStore(later).close()
    connection = sqlite3.connect(later)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path in (text, database, later, tmp_path):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(StoreError) as found:
            JudgementStore(path)
        assert str(path) in str(found.value)
        assert not path.is_file() or path.read_bytes() == before


VERSION_3 = """
    ALTER TABLE judgements DROP COLUMN details;
    DROP TABLE topic_events;
    PRAGMA user_version = 3;
"""


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_version_3_is_upgraded_or_read(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "judgements.sqlite"
    with JudgementStore(path) as store:
        topic = store.add_topic("t")
        store.add(topic, Judgement("a", "judged", 1, judge="Ada"), Judgement("b", "skipped"))
        rows = store.judgements(topic)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_3)
    before = path.read_bytes()
    with JudgementStore(path, read_only=read_only) as store:
        assert store.judgements(topic) == rows
        assert store.events(topic) == []
        if not read_only:
            store.add(topic, Judgement("b", "judged", 0, details={"reason": "wrong design"}))
            store.record(topic, "criteria", "## Include", "Ada")
    assert (path.read_bytes() == before) is read_only
    with JudgementStore(path) as store:
        assert store.judgements(topic)[:2] == rows
        assert [row.details for row in store.judgements(topic)][2:] == (
            [] if read_only else [{"reason": "wrong design"}]
        )


def test_events_of_a_topic_are_kept_in_order() -> None:
    with JudgementStore() as store:
        topic, other = store.add_topic("t"), store.add_topic("u")
        first = store.record(topic, "criteria", {"text": "a"}, "Ada")
        store.record(other, "criteria", None)
        last = store.record(topic, "name", "b", "Ben")
        assert [(event.kind, event.value, event.judge) for event in store.events(topic)] == [
            ("criteria", {"text": "a"}, "Ada"),
            ("name", "b", "Ben"),
        ]
        assert [event.number for event in store.events(topic, after=first)] == [last]
        assert [event.value for event in store.events(topic, "criteria")] == [{"text": "a"}]


WRITER = """
import sys
from haybale.review import Judgement, JudgementStore
store = JudgementStore(sys.argv[1])
topic = store.add_topic("t")
number = int(sys.argv[2])
while True:
    store.add(topic, Judgement(f"{sys.argv[3]}-{number}", "judged", number % 2), Judgement(f"{number}", "skipped"))
    print(number, flush=True)
    number += 1
"""


def test_nothing_acknowledged_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    path, rng, acknowledged = tmp_path / "store.sqlite", random.Random(0), {"x": -1, "y": -1}
    for _ in range(2):
        writers = {
            name: subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), str(last + 1), name], stdout=subprocess.PIPE, text=True
            )
            for name, last in acknowledged.items()
        }
        for name, writer in writers.items():
            assert writer.stdout is not None
            acknowledged[name] = int(writer.stdout.readline())  # both have begun
        time.sleep(rng.uniform(0.01, 0.1))
        for name, writer in writers.items():
            os.kill(writer.pid, signal.SIGKILL)
            out, _ = writer.communicate()
            acknowledged[name] = max([acknowledged[name], *(int(line) for line in out.split("\n")[:-1])])
        with JudgementStore(path) as store:
            rows = store.judgements(store.topic("t"))
            judged = [row.doc_id for row in rows if row.kind == "judged"]
            for name, last in acknowledged.items():
                found = [int(doc_id.partition("-")[2]) for doc_id in judged if doc_id.startswith(name)]
                # All that was acknowledged, in order; at most one more, which was written and not acknowledged.
                assert found[: last + 1] == list(range(last + 1))
                assert len(found) <= last + 2
                acknowledged[name] = len(found) - 1
            assert len(rows) == 2 * len(judged)  # the two rows of a call are written together


def test_threads_share_a_store(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        topic = store.add_topic("t")

        def write(name: int) -> None:
            for number in range(20):
                store.add(topic, Judgement(f"{name}-{number}", "judged", 1))

        threads = [threading.Thread(target=write, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = store.judgements(topic)
        assert len({row.doc_id for row in rows}) == 80
        assert [row.number for row in rows] == sorted(row.number for row in rows)


def test_processes_make_one_store_at_once(tmp_path: Path) -> None:
    for trial in range(12):
        path, start, children = tmp_path / f"{trial}.sqlite", time.monotonic() + 0.02, []
        for name in "abcd":
            child = os.fork()
            if not child:
                try:
                    while time.monotonic() < start:
                        pass
                    store = JudgementStore(path)
                    store.add(store.add_topic("t"), Judgement(name, "judged", 1))
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        with JudgementStore(path) as store:
            assert len(store.topics()) == 1
            assert {row.doc_id for row in store.judgements(store.topic("t"))} == set("abcd")
