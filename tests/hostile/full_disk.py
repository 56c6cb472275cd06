"""A disk that is full at any byte of any file: one line, and what is there is whole or can be gone on with."""

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

from hostile.target import REFUSED, RIGHT, Cases, Target, shell

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
        yield f"{name} {number}", partial(filled, target, name, jobs[name], int(2 ** rng.uniform(0, 17)))


def filled(target: Target, name: str, job: Callable[[Path], Any], size: int) -> str:
    """Do a job in a process whose files may not exceed ``size`` bytes, then look at what it left."""
    folder = target.new()
    said = in_a_child(job, folder, size)
    assert said in (REFUSED, RIGHT), said
    if name in ("engine", "store"):  # the same job goes on
        job(folder)
        assert target.ask(name, folder).shape[1]
    elif name in ("bm25", "svr", "index") and folder.exists():
        assert target.ask(name, folder).shape[1], "half a folder"
    return said


def in_a_child(job: Callable[[Path], Any], folder: Path, size: int) -> str:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            done = job(folder)
            said = RIGHT if not isinstance(done, tuple) or done[0] == 0 else REFUSED
        except (HaybaleError, OSError):
            said = REFUSED
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:200]
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    said = os.read(read, 400).decode()
    os.close(read)
    assert status == 0, f"died of {status}"
    return said
