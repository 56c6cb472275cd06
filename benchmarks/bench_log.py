"""Measure what the log of a service costs a search, and how long lines, states of documents and checks take.

python benchmarks/bench_log.py FOLDER [--searches 400] [--lines 100000]
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from provenance import options, provenance, shown, table, timed, write_page

from haybale import Engine, open_collection, parse
from haybale.engine.earlier_documents import DocumentStates
from haybale.review import JudgementStore
from haybale.service import Workspace
from haybale.service.serving import _SWITCH_SECONDS

N_THREADS = 20


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder")
    for name, default in (("--searches", 400), ("--lines", 100_000)):
        parser.add_argument(name, type=int, default=default)
    a = parser.parse_args()
    collection = open_collection(a.folder)
    engine = Engine(collection, encoder="tfidf")
    ranker = parse("bm25-doc").fit(engine)
    queries = collection.queries.texts(range(min(a.searches, collection.n_queries)))
    sys.setswitchinterval(_SWITCH_SECONDS)  # as the service does
    with ExitStack() as block:
        folder = Path(block.enter_context(tempfile.TemporaryDirectory()))
        store = block.enter_context(JudgementStore(folder / "cases.sqlite"))
        workspace = Workspace(engine, {"bm25-doc": ranker}, store)
        first = timed(lambda: DocumentStates(engine).state(engine.snapshot()))[0]
        plain = Workspace(engine, {"bm25-doc": ranker}, block.enter_context(JudgementStore()))
        workspace.log.change(is_on=True, user="")
        block.enter_context(checkpointing(workspace))
        for searched in (plain, workspace):
            searched.search(queries[0], judge="Ada")
        off, on = medians_of_searches(plain, workspace, queries)
        rows = [(f"{k} hits", *percentiles(costs_of_lines(workspace, queries, k, a.searches))) for k in (10, 100)]
        rows.append(
            (f"10 hits, {N_THREADS} threads at once", *percentiles(costs_of_threads(workspace, queries, a.searches)))
        )
        n = max(0, a.lines - workspace.log.n_entries())
        for number in range(n):
            workspace.log.record("open", {"doc_id": f"document {number}", "text": "0" * 16, "part": "text"}, user="Ada")
        check, result = timed(workspace.log.check)
        assert result.is_whole
        load = os.getloadavg()[1]
        size = sum(len(line) for line in workspace.log.lines())
        workspace.close()
    lines = [
        "# The log of a service",
        "",
        f"{collection.n_documents:,} documents, {collection.n_passages:,} passages; {len(queries):,} searches.",
    ]
    lines += table("a line with | ms of the processor, median | ms by the clock, median | ms by the clock, 95 %", rows)
    lines += [
        "",
        f"A search takes {1e3 * off:.2f} ms of the processor without the log and {1e3 * on:.2f} ms with it (medians of",
        f"searches in turns). The load of the machine was {load:.1f}.",
        f"The digests of the ids and texts of all documents take {first:.2f} s, once after the service has started;",
        "when documents are added, only theirs are computed.",
        f"{result.n_lines:,} lines, of {size / result.n_lines:.0f} bytes on average, are checked in {check:.1f} s.",
        "",
    ]
    write_page(a.results / "log.md", [*lines, provenance(shown("bench_log.py", sys.argv[1:]))])


def medians_of_searches(plain: Workspace, logged: Workspace, queries: list[str]) -> tuple[float, float]:
    """Return the seconds of the processor of a search without and with the log; each begins half of the times."""
    off: list[float] = []
    on: list[float] = []
    for number, query in enumerate(queries):
        sides = [(plain, off), (logged, on)]
        for workspace, spent in sides if number % 2 else reversed(sides):
            spent.append(cost_of(partial(workspace.search, query, judge="Ada")).cpu)
    return median(off), median(on)


@contextmanager
def checkpointing(workspace: Workspace) -> Iterator[None]:
    """Do each second, in the block, what the service does with the file."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(1.0):
            workspace.matter.checkpoint()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class Cost(NamedTuple):
    """Seconds by the clock, and of the thread's own work, which does not depend on what else the machine does."""

    wall: float
    cpu: float


def cost_of(work: Callable[[], Any]) -> Cost:
    wall, cpu = time.perf_counter(), time.thread_time()
    work()
    return Cost(time.perf_counter() - wall, time.thread_time() - cpu)


def costs_of_lines(workspace: Workspace, queries: list[str], k: int, n: int) -> list[Cost]:
    """Return what the log adds to a search: the state of the documents, twice, and the line."""
    doc_ids = workspace.engine.collection.doc_ids[:k].to_pylist()

    def write(query: str) -> None:
        before = workspace.logged.documents()
        documents = before, workspace.logged.documents()
        workspace.logged.searched(query, doc_ids, "bm25-doc", documents, "Ada", k=k, offset=0)

    return [cost_of(lambda number=number: write(queries[number % len(queries)])) for number in range(n)]


def costs_of_threads(workspace: Workspace, queries: list[str], n: int) -> list[Cost]:
    """Return the same of several threads, each of which pauses half a second before a search."""
    spent: list[Cost] = []

    def work() -> None:
        rng = np.random.default_rng(threading.get_ident())
        for _ in range(n // N_THREADS):
            time.sleep(rng.uniform(0, 1))
            spent.extend(costs_of_lines(workspace, queries, 10, 1))

    threads = [threading.Thread(target=work) for _ in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return spent


def percentiles(costs: list[Cost]) -> tuple[float, float, float]:
    walls = [1e3 * cost.wall for cost in costs]
    return 1e3 * median(cost.cpu for cost in costs), median(walls), float(np.percentile(walls, 95))


if __name__ == "__main__":
    main()
