"""What a service costs to run: disk, memory, opening, first search, adding, backup and restore, at a given size.

    python benchmarks/bench_operation.py COLLECTION [--copies 2] [--judgements 10000] [--processes 2]
        [--folder FOLDER] [--results benchmarks/results]

The engine has each document of the collection several times, under ids of its own, over TF-IDF with all indexes. The
file of judgements has rows in twenty topics. Backups and restores are processes of their own, as the commands are, and
are made while the service runs; files were written shortly before, so they are in the page cache. Writes operation.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench_serving import disk
from provenance import (
    clocked,
    cost,
    folder_sizes,
    in_a_process,
    mb,
    options,
    provenance,
    run_step,
    shown,
    table,
    timed,
    write_page,
)

sys.path.append(str(Path(__file__).parents[1] / "tests"))

TOPICS = 20
ADDED = 1000  # documents
SEARCHES = 20  # after the first one
OPENED = 3  # processes that open the engine
MAX_QUERY = 1000  # characters
WAIT = 0.05  # seconds between two looks whether something is ready
Record = dict[str, Any]


def build(collection: str, copies: int, engine: str) -> Record:
    """An engine with all its indexes, of copies of a collection's documents; its queries are left out."""
    import haybale
    from haybale.collections import CollectionBuilder

    whole = haybale.open_collection(collection)
    builder = CollectionBuilder(whole.name)
    texts, offsets = whole.passages.texts.to_pylist(), whole.passages.doc_offsets.tolist()
    for copy in range(copies):
        for number, doc_id in enumerate(whole.doc_ids.to_pylist()):
            builder.add_document(f"{doc_id}/{copy}", texts[offsets[number] : offsets[number + 1]])
    united = builder.build()
    with clocked() as taken:
        built = haybale.Engine.build(united, engine, language=whole.language, encoder="tfidf").prepare().collection
    return taken | {"documents": built.n_documents, "passages": built.n_passages, "name": whole.name}


def open_engine(engine: str) -> Record:
    """Opening alone."""
    import haybale

    with clocked() as opened:
        haybale.Engine.open(engine)
    return opened


def judge(engine: str, judgements: str, n: int) -> Record:
    """Rows of judgements, in transactions of a hundred, since only their number counts here."""
    import haybale
    from haybale.review import Judgement, JudgementStore
    from haybale.review.engine_of_judgements import bind

    opened = haybale.Engine.open(engine)
    ids = opened.collection.doc_ids.to_pylist()
    with JudgementStore(judgements) as store:
        bind(store, opened)
        for number in range(TOPICS):
            topic = store.add_topic(f"topic {number}", f"what is looked for, number {number}")
            of_topic = range(number, min(n, TOPICS * len(ids)), TOPICS)
            for start in range(0, len(of_topic), 100):
                rows = (
                    Judgement(ids[row // TOPICS], "judged", row % 3 % 2, "Ada", note="a note of a usual length")
                    for row in of_topic[start : start + 100]
                )
                store.add(topic, *rows)
        return {"rows": store.n_rows()}


def add(engine: str, n: int) -> Record:
    """Open the engine, and add documents with the words of others, as ``haybale add`` does."""
    import haybale

    with clocked() as taken:
        opened = haybale.Engine.open(engine)
        passages = opened.collection.passages
        texts = passages.texts[: passages.doc_offsets[n]].to_pylist()
        offsets = passages.doc_offsets.tolist()
        opened.add(
            {f"added-{i}": [f"{text} added{i}" for text in texts[offsets[i] : offsets[i + 1]]] for i in range(n)}
        )
    return taken


def back_up(engine: str, out: str, with_engine: bool) -> Record:
    """A backup, as ``haybale backup`` makes it."""
    from haybale.service import backup_matter

    with clocked() as taken:
        written = backup_matter(engine, out, with_engine=with_engine)
    path = Path(out)
    size = path.stat().st_size if path.is_file() else sum(folder_sizes(path).values())
    return taken | {"rows": written.n_rows, "size": size}


def put_back(backup: str, engine: str) -> Record:
    """A restore, as ``haybale restore`` makes it."""
    from haybale.service import restore_matter

    with clocked() as taken:
        restored = restore_matter(backup, engine)
    return taken | {"rows": restored.n_rows}


STEPS: dict[str, Callable[..., Record]] = {step.__name__: step for step in (build, judge, add, back_up, put_back)}
STEPS["open"] = open_engine


def cpu_seconds(served: Any) -> float:
    """Return the seconds that the processes that search have computed until now.

    Those of the service itself are left out: it prepares reviews meanwhile.
    """
    stats = [Path(f"/proc/{number}/stat").read_text() for number in served.children]
    ticks = sum(int(tick) for stat in stats for tick in stat.rpartition(")")[2].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def clocked_service(served: Any) -> Iterator[Record]:
    """Yield what becomes the seconds by the clock, and those that the processes that search computed."""
    taken: Record = {}
    start, cpu = time.perf_counter(), cpu_seconds(served)
    yield taken
    taken |= {"wall": time.perf_counter() - start, "cpu": cpu_seconds(served) - cpu}


def waited(is_done: Callable[[], bool], seconds: float = 900) -> float:
    """Return the seconds until something is done."""
    start = time.perf_counter()
    while not is_done():
        if time.perf_counter() - start > seconds:
            raise TimeoutError("expected the service to be done by now; see its log")
        time.sleep(WAIT)
    return time.perf_counter() - start


def is_found(served: Any, query: str) -> bool:
    """Return whether a search finds something; one that takes a minute is refused."""
    try:
        return bool(served.ask(f"/api/search?{urlencode({'q': query})}", timeout=120)["hits"])
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return False


def is_ready(served: Any) -> bool:
    """Return whether the processes that search are ready."""
    processes = served.ask("/health").get("search_processes", {"ready": 0, "wanted": 0})
    return bool(processes["ready"] == processes["wanted"])


def measured(collection: str, copies: int, n_judgements: int, processes: int, folder: Path) -> Record:
    """Measure all of it in a new folder."""
    from support.served import Served

    def ask(step: str, **given: Any) -> Record:
        print(f"  {step}", *given.values(), flush=True)
        return in_a_process(__file__, step, given)

    engine = folder / "engine"
    judgements = folder / "engine-judgements.sqlite"
    load = os.getloadavg()[0]
    record = {"build": ask("build", collection=collection, copies=copies, engine=engine)}
    record["judge"] = ask("judge", engine=engine, judgements=judgements, n=n_judgements)
    record["open"] = [ask("open", engine=engine) for _ in range(OPENED)]
    record["disk"] = folder_sizes(engine)
    start, served = timed(lambda: Served(engine, processes=processes))
    with served:
        queries = queries_of(collection)
        record["service"] = {"answers": start}
        with clocked_service(served) as record["service"]["first"]:
            waited(lambda: is_found(served, queries[0]))
        with clocked_service(served) as record["service"]["ready"]:
            waited(lambda: is_ready(served))
        seconds = []
        with clocked_service(served) as warm:
            for query in queries[1:]:
                taken, _ = timed(lambda query=query: waited(lambda: is_found(served, query)))
                seconds.append(taken)
        record["service"]["later"] = {"wall": statistics.median(seconds), "cpu": warm["cpu"] / len(seconds)}
        record["service"]["memory"] = served.memory()
        for name, out, with_engine in (
            ("judgements, a folder", "copy", False),
            ("with the engine, a folder", "whole", True),
            ("with the engine, a zip file", "whole.zip", True),
        ):
            record[f"backup {name}"] = ask("back_up", engine=engine, out=folder / out, with_engine=with_engine)
        record["add"] = ask("add", engine=engine, n=ADDED)
        with clocked_service(served) as record["found"]:
            waited(lambda: is_found(served, f"added{ADDED - 1}"))
        record["memory after adding"] = served.memory()
    record["disk after adding"] = folder_sizes(engine)
    shutil.copytree(engine, folder / "there" / "engine")
    record["restore judgements, a folder"] = ask("put_back", backup=folder / "copy", engine=folder / "there" / "engine")
    for name, out in (("with the engine, a folder", "whole"), ("with the engine, a zip file", "whole.zip")):
        there = folder / f"there-{out}" / "engine"
        record[f"restore {name}"] = ask("put_back", backup=folder / out, engine=there)
    return record | {"load": (load, os.getloadavg()[0])}


def queries_of(collection: str) -> list[str]:
    """Queries of the collection, as the address of a search can have them: short, and without quotes of phrases."""
    import haybale

    queries = haybale.open_collection(collection).queries
    texts = [text.replace('"', " ")[:MAX_QUERY] for text in queries.texts(range(min(len(queries), 2 * SEARCHES)))]
    return [text for text in dict.fromkeys(texts) if text.strip()][: SEARCHES + 1]


def page(record: Record, copies: int, processes: int) -> list[str]:
    build, service = record["build"], record["service"]
    own, searching = service["memory"]
    own_later, searching_later = record["memory after adding"]
    n_rows = record["judge"]["rows"]
    opened = {what: statistics.median(one[what] for one in record["open"]) for what in ("wall", "cpu")}
    kinds = "judgements, a folder", "with the engine, a folder", "with the engine, a zip file"
    return [
        f"# What a service of {build['passages']:,} passages costs to run",
        "",
        f"{build['documents']:,} documents in {build['passages']:,} passages: those of {build['name']} {copies} times."
        f" {n_rows:,} rows of judgements in {TOPICS} topics. Vectors are TF-IDF; the ranker is that of `haybale serve`."
        " Seconds are by the clock, in parentheses those of all cores that computed. Files are in the page cache."
        f" The load average of the machine was {record['load'][0]:.1f} before and {record['load'][1]:.1f} at the end."
        " Where it is above the number of cores, other work slowed this down, and the seconds in parentheses are those"
        " to go by.",
        *table(
            "engine|s|memory, MB",
            [
                ("build, all indexes", cost(build), mb(build["peak"])),
                ("import and open", cost(opened), mb(record["open"][-1]["peak"])),
                (f"import, open and add {ADDED:,} documents", cost(record["add"]), mb(record["add"]["peak"])),
            ],
        ),
        *table("on disk|MB|after adding", disk(record)),
        "",
        f"The service; its client is on the same cores, and it prepares reviews meanwhile. Processes that search:"
        f" {processes}; in parentheses the seconds that these computed.",
        *table(
            "|s",
            [
                ("from its start to its address", service["answers"]),
                ("the first search, at once", cost(service["first"])),
                ("from then until the processes that search are ready", cost(service["ready"])),
                (f"a later search, the median of {SEARCHES}; in parentheses the mean", cost(service["later"])),
                (f"until {ADDED:,} documents that were added are found", cost(record["found"])),
            ],
        ),
        *table(
            "memory, MB|service|all processes that search",
            [
                ("after these searches", mb(own), mb(searching)),
                (f"{ADDED:,} documents later", mb(own_later), mb(searching_later)),
            ],
        ),
        "",
        "Pages of files that processes share are counted in each.",
        "",
        "Backups are made while the service runs; a restore checks everything before it changes anything:",
        *table(
            "backup|s|MB|memory, MB|restore, s|memory, MB",
            (
                (name, cost(made), mb(made["size"]), mb(made["peak"]), cost(back), mb(back["peak"]))
                for name in kinds
                for made, back in [(record[f"backup {name}"], record[f"restore {name}"])]
            ),
        ),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", nargs="?", help="pydocs, or a folder")
    parser.add_argument("--copies", type=int, default=2, help="of each document")
    parser.add_argument("--judgements", type=int, default=10_000, help="rows")
    parser.add_argument("--processes", type=int, default=2, help="that search")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where to work")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one measurement, in this process
    a = parser.parse_args()
    if a.step:
        run_step(STEPS, a.step)
        return
    with tempfile.TemporaryDirectory(prefix="operation-", dir=a.folder) as folder:
        record = measured(a.collection, a.copies, a.judgements, a.processes, Path(folder))
    same = {record[name]["rows"] for name in record if name.startswith(("backup", "restore"))}
    assert same == {record["judge"]["rows"]}, same
    lines = page(record, a.copies, a.processes)
    write_page(a.results / "operation.md", [*lines, "", provenance(shown("bench_operation.py", sys.argv[1:]))])


if __name__ == "__main__":
    main()
