"""What a service bears for long: its memory over many requests, and its judgements while it is killed.

    python benchmarks/bench_endurance.py ENGINE [--model FOLDER] [--processes N] [--requests 5000] [--kills 5]
        [--results benchmarks/results]

The engine, the model and the processes are those of bench_service.py. Every tenth request is a search, the others are
pages of the interface that a judge opens. Memory is that of the service and of its processes that search; pages that
these share are counted for each. Writes endurance.md.
"""

from __future__ import annotations

import http.client
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import numpy as np
from bench_service import JUDGES, Watch, size_of, started, together
from provenance import options, provenance, shown, table, write_page

if TYPE_CHECKING:
    from support.served import Served

CLIENTS = 2


def memory(served: Served, queries: list[str], doc_ids: list[str], n: int) -> list[tuple[int, float, float]]:
    """Ask n times, every tenth time for a search; return the MB of the service and its processes at eleven moments."""
    watch, found, done = Watch(), [], 0
    topic = f"/api/topics/{served.ask('/api/topics', {'text': queries[0]})['id']}"

    def path(number: int) -> str:
        if number % 10 == 0:
            return f"/api/search?{urlencode({'q': queries[number // 10 % len(queries)]})}"
        document = f"/api/documents/{quote(doc_ids[number % len(doc_ids)])}"
        more = "/api/facets", "/api/topics", "/health", document, f"{topic}/next?judge=judge{number % JUDGES}"
        return more[number % len(more)]

    for part in range(11):
        found.append((done, *(each / 1e6 for each in served.memory())))
        numbers = iter(range(done, n * (part + 1) // 10 if part < 10 else done))

        def work(_: int, client: http.client.HTTPConnection, numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                watch.ask(client, "any", path(number))

        done = n * (part + 1) // 10
        together(CLIENTS, work, served.address)
    assert not sum(watch.failures.values())
    return found


def kills(engine: Path, store: Path, n: int) -> tuple[int, int, int, int]:
    """Kill the service while eight judges judge; return acknowledged, missing, unacknowledged, repeated judgements."""
    from support.served import Served, judge_together

    from haybale.review import JudgementStore

    given: list[tuple[int, str, str, int]] = []  # topic, document, judge, grade
    random = np.random.default_rng(0)
    for killing in range(n):
        served = Served(engine, "--judgements", str(store), "--ranker", "bm25")
        topic = served.ask("/api/topics", {"text": f"topic {killing % 10}"})["id"]
        acknowledged: list[tuple[str, str, int]] = []
        judges = judge_together(served, topic, JUDGES, acknowledged)
        while not acknowledged:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1))
        served.kill()
        for each in judges:
            each.join()
        given += [(topic, *row) for row in acknowledged]
    with JudgementStore(store) as opened:
        rows = Counter(
            (topic.number, row.doc_id, row.judge, row.grade)
            for topic in opened.topics()
            for row in opened.judgements(topic)
        )
    missing, more = len(set(given) - rows.keys()), len(rows.keys() - set(given))
    return len(given), missing, more, sum(times - 1 for times in rows.values())


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("engine", type=Path, help="the folder of an engine")
    parser.add_argument("--model", type=Path, help="the folder of the ranker learned")
    parser.add_argument("--processes", type=int, help="that search; default: as haybale serve")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    from haybale import Engine

    lines = size_of(given.engine)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        with started(given, Path(work)) as (served, _, queries, doc_ids):
            flat = memory(served, queries, doc_ids, given.requests)
            lines += ["", "## Memory", *table("requests | MB, service | MB, its processes", flat, words=0)]
        small = Path(work, "small")  # so that each start takes seconds
        Engine.build({f"d{n}": text for n, text in enumerate(queries)}, small, language="english").prepare()
        n_known, missing, more, repeated = kills(small, Path(work, "killed.sqlite"), given.kills)
        lines += ["", "## Kills", ""]
        lines.append(f"{given.kills} kills while {JUDGES} judges judge: {n_known:,} judgements acknowledged, {missing}")
        lines.append(f"of them missing, {repeated} written twice; {more} more were written, not yet acknowledged.")
    lines += ["", provenance(shown("bench_endurance.py", sys.argv[1:]))]
    write_page(given.results / "endurance.md", lines)


if __name__ == "__main__":
    main()
