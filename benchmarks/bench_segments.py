"""Index an engine in one segment and in several, here and on two Dask workers; train and rank where memory is short.

    python benchmarks/bench_segments.py COLLECTION FOLDER [--segments 8] [--limit 1000] [--queries 1000]
        [--trained 1000] [--kills 12] [--ways 1 2 3] [--engine ENGINE]
        [--results benchmarks/results]

COLLECTION is that of the stage make of bench_large.py. FOLDER is new, and gets engines, models and runs. Each row is a
process of its own. --limit is the memory of each worker that trains and ranks, in MB; --trained and --queries are
numbers of queries. --ways leaves rows out: 1 is one segment, 2 several in one process, 3 several on two workers. ENGINE
is one segment of the same collection that exists, and is not indexed again. At the end, `haybale index` gets --kills
SIGKILLs, as bench_kills.py deals them. Writes segments.json, where a collection of another size keeps its section, and
segments.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_kills import command, digest, killed
from bench_large import asked, clustered, whole
from provenance import (
    cell,
    clocked,
    cost,
    folder_sizes,
    in_a_process,
    mb,
    options,
    provenance,
    read_json,
    run_step,
    shown,
    table,
    write_json,
    write_page,
)

import haybale
from haybale.timing import record_timings

RANKERS = ("bm25-doc", "knn", "parm-vrrf", "svr")
SVR = {"n_bags": 8, "memory_budget": 1e9}  # a budget, since bags share other Gram matrices with another one
Record = dict[str, Any]


def index(collection: str, out: str, segments: int, n_workers: int) -> Record:
    """Build an engine with all its indexes, as ``haybale index`` does."""
    with clustered(n_workers) as used, clocked() as taken, record_timings() as seconds:
        built = haybale.Engine.build(haybale.open_collection(collection), out, segments=segments).write_indexes()
        there = used()
    counts = {"documents": built.collection.n_documents, "passages": built.collection.n_passages}
    return whole() | there | {"work": taken, "stages": seconds.seconds, "counts": counts}


def use(engine: str, out: str, trained: int, queries: int, n_workers: int, limit: float | None) -> Record:
    """Train svr on some queries, and rank others by all rankers."""
    opened, folder = haybale.Engine.open(engine), Path(out)
    folder.mkdir(parents=True)
    learned, judged = asked(opened.collection, "train", trained / opened.collection.split("train").queries.size)
    test, _ = asked(opened.collection, "test", queries / opened.collection.split("test").queries.size)
    seconds: dict[str, float] = {}
    with clustered(n_workers, limit) as used:
        with clocked() as taken:
            svr = haybale.SVR(**SVR).fit(opened, learned, judged)
            svr.save(folder / "svr")
        seconds["train"] = taken["wall"]
        for name in RANKERS:
            ranker = svr if name == "svr" else haybale.parse(name).fit(opened)
            with clocked() as taken:
                ranker.rank(test).to_trec(folder / f"{name}.trec")
            seconds[name] = taken["wall"]
        there = used()
    return whole() | there | {"seconds": seconds, "digest": digest(folder)}


STEPS: dict[str, Callable[..., Record]] = {step.__name__: step for step in (index, use)}


def in_own_process(step: str, given: Record) -> Record:
    return in_a_process(__file__, step, given)


HEAD = """
# Engines in segments

Collections are resampled from gesetze as [large.md](large.md) says, with TF-IDF vectors and the parts of
compounds. Every row is a process of its own, from its start to its end: seconds by the clock and, in parentheses, of
all cores that computed. Dask workers have one thread each; the process that uses them has one core. Memory is the peak
of the process, then of each worker.""".strip()


def measured(given: argparse.Namespace) -> tuple[int, list[str]]:
    """Return the number of passages, and the lines of their section."""
    n, folder, ask = given.segments, given.folder, in_own_process
    ways = {
        "one segment, one process": (1, 0),
        f"{n} segments, one process": (n, 0),
        f"{n} segments, two workers": (n, 2),
    }
    engines = {way: folder / f"engine-{number}" for number, way in enumerate(ways, 1)}  # as --ways numbers them
    ways = {way: of for number, (way, of) in enumerate(ways.items(), 1) if number in given.ways}
    built, used = {}, {}
    if given.engine:
        engines[next(iter(ways))] = given.engine
    for way, (segments, n_workers) in list(ways.items())[bool(given.engine) :]:
        print(f"  index, {way}", flush=True)
        about = {"collection": given.collection, "segments": segments, "n_workers": n_workers}
        built[way] = ask("index", about | {"out": engines[way]})
    first, *_ = built.values()
    rows = []
    for way, found in built.items():
        speed = "" if given.engine else f"{first['process'] / found['process']:.2f}"
        disk = sum(folder_sizes(engines[way]).values())
        rows.append([way, cost(total(found)), speed, memory(found), mb(disk)])
    if given.engine:
        rows.insert(0, ["one segment, indexed before", "", "", "", mb(sum(folder_sizes(given.engine).values()))])
    n_passages = first["counts"]["passages"]
    lines = [
        f"## {n_passages:,} passages",
        "",
        f"{first['counts']['documents']:,} documents. Index:",
        *table("how|s|times as fast|memory, MB|disk, MB", rows, show=str),
    ]
    if {2, 3} <= set(given.ways):
        lines += ["", f"Both engines in {n} segments have the same bytes: {yes(same(engines, list(ways)[-2:]))}."]
    for way, (_, n_workers) in ways.items():
        print(f"  use, {way}", flush=True)
        about = {"engine": engines[way], "trained": given.trained, "queries": given.queries, "n_workers": n_workers}
        used[way] = ask("use", about | {"out": folder / f"runs-{n_workers}-{way[:1]}", "limit": given.limit})
    expected = next(iter(used.values()))["digest"]
    names = ("train", *RANKERS)
    rows = [
        [way, *(cell(found["seconds"][name]) for name in names), memory(found), yes(found["digest"] == expected)]
        for way, found in used.items()
    ]
    lines += [
        "",
        f"Train and rank: `svr` with {SVR['n_bags']} bags is trained on {given.trained:,} queries, and all rankers rank"
        f" {given.queries:,}; seconds by the clock. Each worker has a limit of {given.limit:,.0f} MB. *Same* says"
        " whether the model, without the digest of the segments that it was trained on, and the runs have the bytes of"
        " those of one segment.",
        *table("how|" + "|".join(names) + "|memory, MB|same", rows, show=str),
    ]
    if not given.kills:
        return n_passages, [*lines, ""]
    how = ["index", str(given.collection), "--segments", str(n), "--out"]
    kills, starts, runs, equal = dict.fromkeys(("worker", "scheduler", "command"), 0), 0, 0, 0
    reference = folder / "reference"
    assert command(*how, str(reference)).wait() == 0
    random = np.random.default_rng(0)
    while sum(kills.values()) < given.kills:
        out = folder / f"killed-{runs}"
        found = killed([*how, str(out)], out, given.kills - sum(kills.values()), random)
        kills = {name: kills[name] + found.kills[name] for name in kills}
        starts, runs, equal = starts + found.starts, runs + 1, equal + same({"a": reference, "b": out}, ["a", "b"])
    columns = "workers|scheduler|command|starts of the command|engines|equal to the byte"
    row = [*kills.values(), starts, runs, equal]
    told = "SIGKILL while `haybale index` works, by what was killed:"
    return n_passages, [*lines, "", told, *table(columns, [row], words=0), ""]


def total(found: Record) -> Record:
    return {"wall": found["process"], "cpu": found["cpu"] + sum(each["cpu"] for each in found.get("workers", ()))}


def memory(found: Record) -> str:
    return " + ".join(mb(each["peak"]) for each in (found, *found.get("workers", ())))


def same(engines: dict[str, Path], names: list[str]) -> bool:
    """Return whether engines have the same bytes; identities and the lock of a killed writer do not count."""
    for name in names:
        (engines[name] / ".lock").unlink(missing_ok=True)
    return len({digest(engines[name]) for name in names}) == 1


def yes(value: bool) -> str:
    return "yes" if value else "no"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", nargs="?", type=Path)
    parser.add_argument("folder", nargs="?", type=Path, help="a new folder")
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--limit", type=float, default=1000.0, help="MB of a worker that trains and ranks")
    parser.add_argument("--queries", type=int, default=1000, help="to rank")
    parser.add_argument("--trained", type=int, default=1000, help="to train on")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--engine", type=Path, help="one segment of the collection")
    parser.add_argument("--ways", type=int, nargs="+", choices=(1, 2, 3), default=(1, 2, 3), help="rows of the tables")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one row, in this process
    given = parser.parse_args()
    if given.step:
        run_step(STEPS, given.step)
        return
    if given.engine and 1 not in given.ways:
        parser.error("--engine is the first row: add 1 to --ways")
    given.folder.mkdir(parents=True)
    about = provenance(shown("bench_segments.py", sys.argv[1:]), more=("scipy", "pyarrow", "distributed"))
    n_passages, lines = measured(given)
    path = given.results / "segments.json"
    sections: dict[str, list[str]] = read_json(path, {}) | {str(n_passages): [*lines, about]}
    write_json(path, sections, indent=2)
    by_size = [sections[size] for size in sorted(sections, key=int)]
    write_page(path.with_suffix(".md"), [HEAD, *(line for section in by_size for line in ("", *section))])


if __name__ == "__main__":
    main()
