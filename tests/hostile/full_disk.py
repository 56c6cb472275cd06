"""A disk that is full at any byte of any file: the output must be complete, absent or resumable."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from hostile.target import CORRECT, REJECTED, Cases, Target, shell

import haybale
from haybale import Engine
from haybale.errors import HaybaleError


def full_disk(target: Target, rng: random.Random) -> Cases:
    engine, data = str(target.folder / "engine"), str(target.data)
    jobs: dict[str, Callable[[Path], Any]] = {
        "engine": lambda folder: Engine.build(target.collection, folder).prepare(),
        "bm25": lambda folder: target.rankers["bm25-doc"].save(folder),
        "svr": lambda folder: target.rankers["svr(n_bags=4)"].save(folder),
        "store": lambda folder: haybale.embed(target.collection, target.encoder, folder, rows_per_chunk=16),
        "index": lambda folder: haybale.PassageIndex(target.vectors).save(folder),
        "compare": lambda folder: shell("compare", engine, "--rankers", "bm25,knn", "--out", str(folder)),
        "rank": lambda folder: shell("rank", engine, "dev", "--out", f"{folder}.trec"),
        "train": lambda folder: shell("train", engine, "--ranker", "bm25", "--out", str(folder)),
        "tune": lambda folder: shell("tune", data, "--split", "dev", "--out", f"{folder}.json"),
        "embed": lambda folder: shell("embed", data, "--encoder", "lsa(2)", "--out", str(folder)),
    }
    for number in count():
        name = rng.choice(list(jobs))
        yield f"{name} {number}", partial(with_full_disk, target, name, jobs[name], int(2 ** rng.uniform(0, 17)))


def with_full_disk(target: Target, name: str, job: Callable[[Path], Any], size: int) -> str:
    """Run a job in a process whose files are limited to ``size`` bytes, and check its output."""
    folder = target.new()
    outcome = run_in_child(job, folder, size)
    assert outcome in (REJECTED, CORRECT), outcome
    if name in ("engine", "store"):  # the same job resumes
        job(folder)
        assert target.results(name, folder).shape[1]
    elif name in ("bm25", "svr", "index") and folder.exists():
        assert target.results(name, folder).shape[1], "half a folder"
    return outcome


def run_in_child(job: Callable[[Path], Any], folder: Path, size: int) -> str:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            done = job(folder)
            outcome = CORRECT if not isinstance(done, tuple) or done[0] == 0 else REJECTED
        except (HaybaleError, OSError):
            outcome = REJECTED
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"[:200]
        os.write(write, outcome.encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    outcome = os.read(read, 400).decode()
    os.close(read)
    assert status == 0, f"died of {status}"
    return outcome
