"""Kill workers, the scheduler and the command at random while an engine is trained on and ranks, and compare the bytes.

    python benchmarks/bench_kills.py ENGINE FOLDER [--kills 30] [--queries 2000] [--set n_bags=12]
        [--collection COLLECTION] [--results benchmarks/results]

A Dask scheduler and two workers of one thread run on this machine. `haybale train` (svr) and `haybale rank` work there.
One of the four processes gets SIGKILL every few seconds; it is started again, as a user would, and so is a command that
ended with an error. What the commands write is compared with what they write here, without a cluster and without kills.
After a kill that found no task finished since the one before, the pauses get longer, until a task finishes; without a
finished task for ten minutes, the script ends with an error. ENGINE is not changed; --queries are of its split train.

With --collection, `haybale index` indexes it in segments while one of the two workers is stopped and comes back late,
has a full disk, or has another version of haybale. Writes kills.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from provenance import options, provenance, shown, table, write_page

import haybale

HOST, PORT = "127.0.0.1", 8799
SECONDS = 3.0, 15.0  # between two kills, the least and the most
BUDGET = "memory_budget=2e9"  # here and on the cluster, since bags share other Gram matrices with another one
SLOWER = 1.5  # times as long are the pauses after a kill that found no task finished since the one before
PATIENCE = 600.0  # seconds without a finished task after which the script ends
STOPPED = 20.0  # seconds that a worker is stopped; the scheduler gives it up after 5
SMALL_FILES = 100_000  # bytes: a worker with a full disk cannot write larger files
WORKERS = ("worker 1", "worker 2")


class Cluster:
    """A scheduler and two workers, each a process that is started again when it has ended.

    ``how`` has arguments of Popen for some of them, by name.
    """

    def __init__(self, how: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.how = {} if how is None else how

    def start(self) -> None:
        """Start what does not run."""
        for name in ("scheduler", *WORKERS):
            found = self.processes.get(name)
            if found is None or found.poll() is not None:
                own = ["--host", HOST, "--port", str(PORT)] if name == "scheduler" else [f"tcp://{HOST}:{PORT}"]
                more = [] if name == "scheduler" else ["--nthreads", "1", "--no-nanny", "--death-timeout", "30"]
                kind = name.split()[0]
                command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *own, *more, "--no-dashboard"]
                how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | self.how.get(name, {})
                self.processes[name] = subprocess.Popen(command, **how)

    def kill(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        for each in self.processes.values():
            each.kill()
            each.wait()


def command(*arguments: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start the command haybale."""
    run = [sys.executable, "-m", "haybale", *arguments, "--quiet"]
    return subprocess.Popen(run, stdout=subprocess.DEVNULL, **how)


def digest(path: Path) -> str:
    """Return a digest of a file, or of all files of a folder, without what differs by definition.

    That is the random identity that a build gives an engine, and in a ranker the digest of the documents and their
    segments that it was fitted on.
    """
    sha256 = hashlib.sha256()
    for each in [path] if path.is_file() else sorted(path.rglob("*")):
        if each.is_file():
            sha256.update(f"{each.relative_to(path)}\0".encode() + _comparable(each))
    return sha256.hexdigest()


def _comparable(path: Path) -> bytes:
    content = path.read_bytes()
    if path.name not in ("engine.json", "ranker.json"):
        return content
    entries = {name: value for name, value in json.loads(content).items() if name not in ("identity", "sha256")}
    entries["fitted"] = [entry | {"digest": None} for entry in entries.get("fitted", ())]
    return json.dumps(entries).encode()


def finished(out: Path) -> set[str]:
    """Return the names of the finished tasks of a command that are in its folder or beside it."""
    kept = {path.name for path in out.parent.glob(f"{out.name}.*/*.safetensors") if not path.name.startswith(".")}
    parts = {str(path.relative_to(out)) for path in out.glob("0/parts/*/*") if not path.name.startswith(".")}
    return kept | parts


def is_whole(out: Path) -> bool:
    """Return whether train or rank has written its output, which a kill may follow; the command would refuse it."""
    return out.is_file() or (out / "ranker.json").is_file()


class Killed(NamedTuple):
    """What happened to a command until its output was there."""

    kills: Counter[str]
    starts: int
    idle: int  # kills that found no task finished since the kill before
    seconds: float


def killed(arguments: list[str], out: Path, n: int, random: np.random.Generator) -> Killed:
    """Run a command on the cluster until its output is there, with at most n kills."""
    cluster, kills, starts, idle, begin = Cluster(), Counter[str](), 0, 0, time.perf_counter()
    running: subprocess.Popen[bytes] | None = None
    known, since_kill, slower, last = set[str](), 0, 1.0, begin
    try:
        cluster.start()
        following = time.perf_counter() + random.uniform(*SECONDS)
        while not (running is not None and (running.poll() == 0 or (running.poll() is not None and is_whole(out)))):
            cluster.start()
            if running is None or running.poll() is not None:
                starts += 1
                running = command(*arguments, "--dask", f"tcp://{HOST}:{PORT}", stderr=subprocess.DEVNULL)
            now, new = time.perf_counter(), finished(out) - known
            if new:
                known, since_kill, last = known | new, since_kill + len(new), now
            elif now > last + PATIENCE:
                raise TimeoutError(f"{' '.join(arguments)}: no task finished within {PATIENCE:.0f} s")
            if kills.total() < n and now > following:
                name = str(random.choice([*WORKERS, "scheduler", "command"], p=[0.35, 0.35, 0.1, 0.2]))
                if name == "command":
                    running.kill()
                    running.wait()
                else:
                    cluster.kill(name)
                kills[name.split()[0]] += 1
                idle += not since_kill
                slower, since_kill = 1.0 if since_kill else slower * SLOWER, 0
                following = time.perf_counter() + random.uniform(*SECONDS) * slower
            time.sleep(0.1)
    finally:
        if running is not None:
            running.kill()
            running.wait()
        cluster.stop()
    return Killed(kills, starts, idle, time.perf_counter() - begin)


def faults(collection: str, folder: Path, segments: int) -> list[tuple[str, str, str, bool]]:
    """Index while one of two workers fails; return for each fault its name, the results, and whether bytes are equal.

    The results are what the command said at first, and what the same command did without the fault.
    """
    how = ["index", collection, "--segments", str(segments), "--out"]
    reference = folder / "index"
    assert command(*how, str(reference)).wait() == 0
    with tempfile.TemporaryDirectory() as versions:
        other = Path(versions) / "haybale-9.9.dist-info"
        other.mkdir()
        (other / "METADATA").write_text("Metadata-Version: 2.1\nName: haybale\nVersion: 9.9\n", encoding="utf-8")
        paths = os.pathsep.join(filter(None, [versions, os.environ.get("PYTHONPATH")]))
        limit = (SMALL_FILES, SMALL_FILES)
        given: dict[str, tuple[dict[str, Any], Callable[[Cluster, Path], None]]] = {
            "comes back late": (
                {"scheduler": {"env": os.environ | {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s"}}},
                stop_for_a_while,
            ),
            "has a full disk": (
                {WORKERS[1]: {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)}},
                lambda cluster, out: None,
            ),
            "has haybale 9.9": ({WORKERS[1]: {"env": os.environ | {"PYTHONPATH": paths}}}, lambda cluster, out: None),
        }
        rows = []
        for number, (fault, (started, then)) in enumerate(given.items()):
            out = folder / f"fault-{number}"
            said = [indexed([*how, str(out)], out, Cluster(each), act) for each, act in ((started, then), ({}, None))]
            for each in (reference, out):
                (each / ".lock").unlink(missing_ok=True)  # of a command that ended with an error
            rows.append((fault, *said, digest(out) == digest(reference)))
            print(rows[-1], flush=True)
    return rows


def indexed(arguments: list[str], out: Path, cluster: Cluster, then: Callable[[Cluster, Path], None] | None) -> str:
    """Run a command on a cluster, with ``then`` beside it; return its error, or what it did."""
    try:
        cluster.start()
        time.sleep(10)  # until both workers are there
        running = command(*arguments, "--dask", f"tcp://{HOST}:{PORT}", stderr=subprocess.PIPE, text=True)
        if then is not None:
            then(cluster, out)
        _, error = running.communicate(timeout=PATIENCE)
    finally:
        cluster.stop()
    line = (error.strip().splitlines() or [""])[-1].replace(str(out), "OUT")
    return "finishes" if running.returncode == 0 else re.sub(r"tcp://[\d.]+:\d+", "tcp://…", line)


def stop_for_a_while(cluster: Cluster, out: Path) -> None:
    """Stop a worker when it works, and let it go on when the scheduler has given it up and others do its task."""
    begin = time.perf_counter()
    while not finished(out) and time.perf_counter() < begin + PATIENCE:
        time.sleep(0.05)
    os.kill(cluster.processes[WORKERS[1]].pid, signal.SIGSTOP)
    time.sleep(STOPPED)
    os.kill(cluster.processes[WORKERS[1]].pid, signal.SIGCONT)


def fault_lines(given: argparse.Namespace) -> list[str]:
    """Return the lines of the page about workers that fail."""
    rows = [
        (fault, *said, "yes" if same else "no")
        for fault, *said, same in faults(given.collection, given.folder, given.segments)
    ]
    return [
        "",
        "## One of two workers fails",
        "",
        f"`index` in {given.segments} segments, and the same command again without the fault. Late: the worker is"
        f" stopped for {STOPPED:.0f} s when the first task has finished, and the scheduler gives it up after 5 s. Full"
        f" disk: the worker cannot write files of more than {SMALL_FILES / 1000:.0f} kB. *Same* says whether the engine"
        " has the bytes of one that was indexed here.",
        *table("the worker|the command|the same command again|same", rows, words=4, show=str),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("engine", type=Path)
    parser.add_argument("folder", type=Path, help="a new folder for what the commands write")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--queries", type=int, default=2000, help="to rank")
    parser.add_argument("--set", default="n_bags=12", help="a parameter of svr")
    parser.add_argument("--collection", help="to index while a worker comes back late, has a full disk, or is another")
    parser.add_argument("--segments", type=int, default=8, help="of the index")
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
        "train": (
            ["train", folder, "--ranker", "svr", "--set", given.set, "--set", BUDGET, "--out"],
            "whole",
            "killed",
        ),
        "rank": (["rank", folder, str(queries), "--model", model, "--out"], "whole.trec", "killed.trec"),
    }
    rows, left = [], given.kills
    for number, (name, (arguments, whole, other)) in enumerate(work.items()):
        start = time.perf_counter()
        assert command(*arguments, str(given.folder / whole)).wait() == 0
        alone = time.perf_counter() - start
        kills, starts, idle, seconds = Counter[str](), 0, 0, 0.0
        wanted = left if number == len(work) - 1 else left * 2 // 3
        runs = same = 0
        while kills.total() < wanted:
            out = given.folder / other
            found = killed([*arguments, str(out)], out, wanted - kills.total(), random)
            kills, starts, idle = kills + found.kills, starts + found.starts, idle + found.idle
            seconds, runs = seconds + found.seconds, runs + 1
            same += digest(out) == digest(given.folder / whole)
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        left -= kills.total()
        each = (kills[who] for who in ("worker", "scheduler", "command"))
        rows.append((name, *each, idle, starts, runs, same, seconds, alone))
        print(rows[-1], flush=True)
    columns = (
        "command|workers|scheduler|command|no task finished since the kill before|starts of the command|outputs|"
        "equal to the byte|s|s, here, without kills"
    )
    page = [
        f"# SIGKILL on a cluster, {collection.name}",
        "",
        f"{collection.n_documents:,} documents, {collection.n_passages:,} passages. A scheduler and two workers of one "
        f"thread; `train` learns `svr` with {given.set} and {BUDGET} from "
        f"{len(collection.split('train').queries):,} queries, and `rank` ranks {len(chosen):,} by it. "
        "Kills by what was killed:",
        *table(columns, rows),
        *(fault_lines(given) if given.collection else []),
        "",
        provenance(shown("bench_kills.py", sys.argv[1:])),
    ]
    write_page(given.results / "kills.md", page)


if __name__ == "__main__":
    main()
