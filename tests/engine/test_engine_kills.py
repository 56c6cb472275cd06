"""Kill builds and additions at random moments: the next attempt resumes, and the final files are identical."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pandas as pd
import pytest
from support.engines import UNTRAINED, assert_same, runs_of, tree, tree_of_build
from support.nursery import Nursery
from support.topics import topic_collection

from haybale import Engine
from haybale.errors import StoreError

KILLS = 12  # for each job: half of them before a file is touched, half at a random moment
ENCODERS: dict[str, dict[str, Any]] = {"tfidf": {}, "lsa": {"encoder": "lsa(n_components=6)", "chunking": None}}

# Imports once, then forks a process for every line it reads. The process works on the engine; its parent kills it after
# some seconds, or it kills itself before it touches the engine's files for the n-th time.
NURSERY = """
import os, signal, sys, time, warnings
import pandas as pd
import zarr
from haybale import Engine
from haybale.collections import open_collection
from haybale.embeddings import embed
from support.topics import NEW, topic_collection

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
QRELS = pd.DataFrame({"query_id": ["new", "train0"], "doc_id": ["d01", "d02"], "relevance": 1})
topics = topic_collection()
for encoder in ("tfidf", "lsa(n_components=6)"):  # imports and compiles before the forks
    Engine(topics, encoder=encoder).prepare().add(NEW)

def work(job, encoder, folder, kill):
    touched = 0
    def hook(event, args):
        nonlocal touched
        if event in EVENTS and str(args[0]).startswith(folder):
            touched += 1
            if touched == kill:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    start = time.perf_counter()
    if job == "build":
        settings = {"tfidf": {}, "lsa": {"encoder": "lsa(n_components=6)"}}
        settings["segments"] = {"segments": 3, "language": "german"}  # whose compounds are learned
        Engine.build(topics, folder, **settings[encoder]).prepare()
    elif job == "replace":
        Engine.open(folder).prepare().replace({"d01": "newword", **NEW})
    elif job == "judge":
        Engine.open(folder).judge(QRELS.assign(relevance=2), {"new": "newword"})
    else:
        engine = Engine.open(folder).prepare()
        if engine.collection.n_documents == topics.n_documents:
            engine.add(NEW)
    return touched, time.perf_counter() - start

for line in sys.stdin:
    job, encoder, folder, kill, seconds = line.rstrip("\\n").split("\\t")
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, ("%d %f" % work(job, encoder, folder, int(kill))).encode())
        os._exit(0)
    os.close(write)
    if float(seconds):
        time.sleep(float(seconds))
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(status, os.read(read, 100).decode(), flush=True)
    os.close(read)
"""


def run_job(
    nursery: Nursery, job: str, encoder: str, folder: Path, kill: int = 0, seconds: float = 0
) -> tuple[int, int, float]:
    """Return the exit status, the number of touched files and the seconds; 0 and 0.0 if the process was killed."""
    nursery.tell(job, encoder, folder, kill, seconds)
    status, *found = nursery.answer().split()
    return int(status), int(found[0]) if found else 0, float(found[1]) if found else 0.0


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    found = Nursery(NURSERY)
    yield found
    found.close()


def kill_repeatedly(nursery: Nursery, job: str, encoder: str, start: Callable[[Path], None], folder: Path) -> None:
    """Kill the job many times, and compare the final files with those of an undisturbed job."""
    whole = folder / "whole"
    start(whole)
    status, touches, seconds = run_job(nursery, job, encoder, whole)
    assert status == 0
    assert touches > 20
    expected, rng = tree_of_build(whole), random.Random(f"{job} {encoder}")
    here, kills, finished = folder / "here", 0, 0
    start(here)
    most = KILLS if encoder != "segments" else KILLS // 2
    while kills < most or not finished:
        how: dict[str, Any] = {}
        if kills < most:
            by_touch = kills % 2 == 0
            how = {"kill": rng.randint(1, touches)} if by_touch else {"seconds": rng.uniform(0.01, seconds)}
        status, *_ = run_job(nursery, job, encoder, here, **how)
        assert status in (0, -signal.SIGKILL)
        if status:
            kills += 1
            assert_opens_or_is_unfinished(here)
        else:
            finished += 1
            assert {name: content for name, content in tree_of_build(here).items() if name != ".lock"} == expected
            rmtree(here)
            start(here)


def assert_opens_or_is_unfinished(folder: Path) -> None:
    """Assert that the engine opens, or that opening it reports that it is not finished."""
    if not (folder / "engine.json").exists():
        with pytest.raises((StoreError, ValueError), match=r"not finished|saved engine"):
            Engine.open(folder)
        return
    assert Engine.open(folder).collection.n_documents in (42, 44)


@pytest.mark.parametrize("encoder", ["tfidf", "lsa", "segments"])
def test_killed_builds_resume(nursery: Nursery, tmp_path: Path, encoder: str) -> None:
    kill_repeatedly(nursery, "build", encoder, lambda folder: None, tmp_path)


@pytest.mark.parametrize("encoder", ["tfidf", "lsa"])
def test_killed_additions_are_repeated(nursery: Nursery, tmp_path: Path, encoder: str) -> None:
    status, *_ = run_job(nursery, "build", encoder, tmp_path / "built")
    assert status == 0
    kill_repeatedly(nursery, "add", encoder, lambda folder: copytree(tmp_path / "built", folder) and None, tmp_path)


def test_killed_replacements_leave_all_old_or_all_new_documents(nursery: Nursery, tmp_path: Path) -> None:
    run_job(nursery, "build", "tfidf", tmp_path / "built")
    copytree(tmp_path / "built", tmp_path / "whole")
    _, touches, _ = run_job(nursery, "replace", "tfidf", tmp_path / "whole")
    rng, found = random.Random(7), set[tuple[int, bool]]()
    for number, kill in enumerate([*(rng.randint(1, touches) for _ in range(8)), touches - 1, touches]):
        folder = copytree(tmp_path / "built", tmp_path / str(number))
        status, *_ = run_job(nursery, "replace", "tfidf", folder, kill=kill)
        assert status == -signal.SIGKILL
        documents = Engine.open(folder).whole
        text = documents.document_texts()[documents.document_numbers(["d01"])[0]]
        found.add((documents.n_documents, text == "newword"))
        status, *_ = run_job(nursery, "replace", "tfidf", folder)
        assert status == 0
        assert Engine.open(folder).whole.n_documents == 44
    assert found == {(42, False), (44, True)}


def test_killed_judgements_are_all_there_or_none(nursery: Nursery, tmp_path: Path) -> None:
    run_job(nursery, "build", "tfidf", tmp_path / "built")
    first = pd.DataFrame({"query_id": ["new", "train0"], "doc_id": ["d01", "d02"], "relevance": 1})
    for _ in range(2):  # the second is replaced by the job
        Engine.open(tmp_path / "built").judge(first, {"new": "newword"})
    copytree(tmp_path / "built", tmp_path / "whole")
    _, touches, _ = run_job(nursery, "judge", "tfidf", tmp_path / "whole")
    found = []
    for kill in sorted({*range(1, touches, max(1, touches // 5)), *range(touches - 6, touches + 1)}):
        folder = copytree(tmp_path / "built", tmp_path / str(kill))
        assert run_job(nursery, "judge", "tfidf", folder, kill=kill)[0] == -signal.SIGKILL
        qrels = Engine.open(folder).whole.qrels_frame("train")
        grades = qrels.set_index(["query_id", "doc_id"]).loc[[("new", "d01"), ("train0", "d02")], "relevance"]
        found.append(set(grades))
        assert run_job(nursery, "judge", "tfidf", folder)[0] == 0
        assert {name: data for name, data in tree(folder).items() if not name.startswith(("judgements/", ".lock"))} == {
            name: data
            for name, data in tree(tmp_path / "whole").items()
            if not name.startswith(("judgements/", ".lock"))
        }
    assert found == sorted(found, key=lambda grades: grades == {2})
    assert found[0] == {1}
    assert found[-1] == {2}


def test_killed_addition_leaves_the_engine_unchanged(nursery: Nursery, tmp_path: Path) -> None:
    """Other documents can be added afterwards."""
    run_job(nursery, "build", "tfidf", tmp_path / "engine")
    copytree(tmp_path / "engine", tmp_path / "other")
    _, touches, _ = run_job(nursery, "add", "tfidf", tmp_path / "other")
    status, *_ = run_job(nursery, "add", "tfidf", tmp_path / "engine", kill=touches - 3)
    assert status == -signal.SIGKILL
    assert (tmp_path / "engine" / "1").exists()
    engine, memory = Engine.open(tmp_path / "engine"), Engine(topic_collection())
    for _ in range(2):
        for name, run in runs_of(memory, names=UNTRAINED).items():
            assert_same(runs_of(engine, names=[name])[name], run)
        if engine.collection.n_documents == 42:
            for each in (engine, memory):
                each.add({"another": "not the ones whose addition was killed"})
