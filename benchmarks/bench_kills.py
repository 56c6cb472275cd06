"""Kill workers, the scheduler and the command at random while an engine is trained on and ranks, and compare the bytes.

    python benchmarks/bench_kills.py ENGINE FOLDER [--kills 30] [--queries 2000] [--set n_bags=12]
        [--results benchmarks/results]

A Dask scheduler and two workers of one thread run on this machine. `haybale train` (svr) and `haybale rank` work there.
One of the four processes gets SIGKILL every few seconds; it is started again, as a user would, and so is a command that
ended with an error. What the commands write is compared with what they write here, without a cluster and without kills.
ENGINE is not changed; --queries are of its split train. Writes kills.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, provenance, shown, table, write_page

import haybale

HOST, PORT = "127.0.0.1", 8799
SECONDS = 3.0, 15.0  # between two kills, the least and the most
WORKERS = ("worker 1", "worker 2")


class Cluster:
    """A scheduler and two workers, each a process that is started again when it has ended."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start what does not run."""
        for name in ("scheduler", *WORKERS):
            found = self.processes.get(name)
            if found is None or found.poll() is not None:
                own = ["--host", HOST, "--port", str(PORT)] if name == "scheduler" else [f"tcp://{HOST}:{PORT}"]
                more = [] if name == "scheduler" else ["--nthreads", "1", "--no-nanny", "--death-timeout", "30"]
                kind = name.split()[0]
                command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *own, *more, "--no-dashboard"]
                self.processes[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        for each in self.processes.values():
            each.kill()
            each.wait()


def command(*arguments: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start the command haybale."""
    run = [sys.executable, "-c", "from haybale.cli import main; main()", *arguments, "--quiet"]
    return subprocess.Popen(run, stdout=subprocess.DEVNULL, **how)


def digest(path: Path) -> str:
    """Return a digest of a file, or of all files of a folder."""
    sha256 = hashlib.sha256()
    for each in [path] if path.is_file() else sorted(path.rglob("*")):
        if each.is_file():
            sha256.update(f"{each.relative_to(path)}\0".encode() + each.read_bytes())
    return sha256.hexdigest()


def killed(arguments: list[str], out: Path, n: int, random: np.random.Generator) -> tuple[Counter[str], int, float]:
    """Run a command on the cluster until its output is there, with at most n kills; return kills, starts, seconds."""
    cluster, kills, starts, begin = Cluster(), Counter[str](), 0, time.perf_counter()
    running: subprocess.Popen[bytes] | None = None
    try:
        cluster.start()
        following = time.perf_counter() + random.uniform(*SECONDS)
        while not (running is not None and running.poll() == 0 and out.exists()):
            cluster.start()
            if running is None or running.poll() is not None:
                starts += 1
                running = command(*arguments, "--dask", f"tcp://{HOST}:{PORT}", stderr=subprocess.DEVNULL)
            if kills.total() < n and time.perf_counter() > following:
                name = str(random.choice([*WORKERS, "scheduler", "command"], p=[0.35, 0.35, 0.1, 0.2]))
                if name == "command":
                    running.kill()
                    running.wait()
                else:
                    cluster.kill(name)
                kills[name.split()[0]] += 1
                following = time.perf_counter() + random.uniform(*SECONDS)
            time.sleep(0.1)
    finally:
        if running is not None:
            running.kill()
            running.wait()
        cluster.stop()
    return kills, starts, time.perf_counter() - begin


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("engine", type=Path)
    parser.add_argument("folder", type=Path, help="a new folder for what the commands write")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--queries", type=int, default=2000, help="to rank")
    parser.add_argument("--set", default="n_bags=24", help="a parameter of svr")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    engine = haybale.Engine.open(given.engine)
    collection, random = engine.collection, np.random.default_rng(0)
    chosen = collection.queries.take(collection.split("train").queries[: given.queries])
    queries = given.folder / "queries.jsonl"
    texts = chosen.texts(range(len(chosen)))
    lines = (json.dumps({"query_id": id, "text": text}) for id, text in zip(chosen.ids.to_pylist(), texts, strict=True))
    queries.write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder, model = str(given.engine), str(given.folder / "whole")
    work = {
        "train": (["train", folder, "--ranker", "svr", "--set", given.set, "--out"], "whole", "killed"),
        "rank": (["rank", folder, str(queries), "--model", model, "--out"], "whole.trec", "killed.trec"),
    }
    rows, left = [], given.kills
    for number, (name, (arguments, whole, other)) in enumerate(work.items()):
        start = time.perf_counter()
        assert command(*arguments, str(given.folder / whole)).wait() == 0
        alone = time.perf_counter() - start
        kills, starts, seconds = Counter[str](), 0, 0.0
        wanted = left if number == len(work) - 1 else left * 2 // 3
        runs = same = 0
        while kills.total() < wanted:
            out = given.folder / other
            found, n, taken = killed([*arguments, str(out)], out, wanted - kills.total(), random)
            kills, starts, seconds, runs = kills + found, starts + n, seconds + taken, runs + 1
            same += digest(out) == digest(given.folder / whole)
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        left -= kills.total()
        rows.append(
            (name, *(kills[who] for who in ("worker", "scheduler", "command")), starts, runs, same, seconds, alone)
        )
        print(rows[-1], flush=True)
    columns = (
        "command|workers|scheduler|command|starts of the command|outputs|equal to the byte|s|s, here, without kills"
    )
    page = [
        f"# SIGKILL on a cluster, {collection.name}",
        "",
        f"{collection.n_documents:,} documents, {collection.n_passages:,} passages. A scheduler and two workers of one "
        f"thread; `train` learns `svr` with {given.set} from {len(collection.split('train').queries):,} queries, and "
        f"`rank` ranks {len(chosen):,} by it. Kills by what was killed:",
        *table(columns, rows),
        "",
        provenance(shown("bench_kills.py", sys.argv[1:])),
    ]
    write_page(given.results / "kills.md", page)


if __name__ == "__main__":
    main()
