"""What a service bears: searches a second, and judges while documents are added and a model is trained.

    python benchmarks/bench_service.py ENGINE [--model FOLDER] [--processes N] [--seconds 20]
        [--rounds 5] [--results benchmarks/results]

Works on a copy of the engine, and asks its own service on the loopback address only. The clients are threads of this
process, on the same cores as the service. Queries are those of the collection. ``--model`` is a folder of the ranker
``learned``, trained by ``haybale train ENGINE --ranker learned --out FOLDER``; without it, ``learned`` is left out.
``--processes`` is that of ``haybale serve``. Writes service.md. bench_endurance.py measures memory and kills.
"""

from __future__ import annotations

import http.client
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
from provenance import options, provenance, shown, table, write_page

sys.path.append(str(Path(__file__).parents[1] / "tests"))

if TYPE_CHECKING:
    from support.served import Served

FUSED = "rrf(bm25-doc,parm-rrf)"
CLIENTS, JUDGES = 4, 8
LIMIT = 2.0  # seconds of a request


class Watch:
    """The seconds and failures of requests, by what was asked."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.failures: Counter[str] = Counter()
        self.lock = threading.Lock()

    def ask(self, client: http.client.HTTPConnection, what: str, path: str, given: Any = None) -> Any:
        """Ask, and return the answer as bytes; a failure is counted."""
        start = time.perf_counter()
        try:
            body = None if given is None else json.dumps(given)
            how = "GET" if body is None else "POST", path, body, {"Content-Type": "application/json"}
            try:
                client.request(*how)
                answer = client.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):  # an idle connection
                client.close()
                client.request(*how)
                answer = client.getresponse()
            found = answer.read()
            is_wrong = answer.status >= 400
        except (OSError, http.client.HTTPException):
            client.close()
            found, is_wrong = b"{}", True
        with self.lock:
            self.seconds[what].append(time.perf_counter() - start)
            self.failures[what] += is_wrong
        return found

    def rows(self, seconds: float) -> Iterator[tuple[Any, ...]]:
        """Yield a row of a table for each thing that was asked."""
        for what, taken in self.seconds.items():
            ms = np.percentile(taken, [50, 95, 100]) * 1000
            yield what, len(taken), len(taken) / seconds, *(float(each) for each in ms), self.failures[what]


def together(n: int, work: Callable[[int, http.client.HTTPConnection], None], address: str) -> float:
    """Let n clients work until they return, each on a connection of its own; return the seconds."""
    host = address.removeprefix("http://")
    clients = [
        threading.Thread(target=lambda i=i: work(i, http.client.HTTPConnection(host, timeout=60))) for i in range(n)
    ]
    start = time.perf_counter()
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return time.perf_counter() - start


def searches(address: str, queries: list[str], ranker: str, seconds: float) -> tuple[Watch, float]:
    """Search from several clients at once."""
    watch, numbers, end = Watch(), count(), time.perf_counter() + seconds

    def work(_: int, client: http.client.HTTPConnection) -> None:
        while time.perf_counter() < end:
            asked = urlencode({"q": queries[next(numbers) % len(queries)], "k": 10, "ranker": ranker})
            watch.ask(client, f"search, {ranker}", f"/api/search?{asked}")

    return watch, together(CLIENTS, work, address)


def mixture(
    address: str, folder: Path, queries: list[str], seconds: float, watch: Watch, round_number: int
) -> tuple[float, int]:
    """Let eight judges review two topics, while one client searches, documents are added and a ranker is trained."""
    from haybale import Engine

    is_over = threading.Event()
    first = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    topics = [json.loads(watch.ask(first, "new topic", "/api/topics", {"text": text}))["id"] for text in queries[:2]]
    for topic in topics:  # something to learn from
        found = json.loads(watch.ask(first, "next", f"/api/topics/{topic}/next?n=6&judge=first"))["documents"]
        for number, each in enumerate(found):
            given = {"doc_id": each["doc_id"], "grade": (number + 1) % 2, "judge": "first"}
            watch.ask(first, "judge", f"/api/topics/{topic}/judgements", given)
    training = json.loads(watch.ask(first, "train", "/api/train", {"recipe": "svr"}))["id"]
    n_added = []

    def add() -> None:
        for number in count():
            if is_over.is_set():
                return
            ids = [f"added/{round_number}/{number}/{n}" for n in range(10)]
            Engine.open(folder).add({id: queries[(number + n) % len(queries)] for n, id in enumerate(ids)})
            n_added.append(10)
            is_over.wait(5)

    adding = threading.Thread(target=add)
    adding.start()

    def work(i: int, client: http.client.HTTPConnection) -> None:
        for number in count():
            if time.perf_counter() > end:
                return
            if i == JUDGES:
                asked = urlencode({"q": queries[number % len(queries)]})
                watch.ask(client, "search", f"/api/search?{asked}")
                continue
            path = f"/api/topics/{topics[i % 2]}"
            for each in json.loads(watch.ask(client, "next", f"{path}/next?judge=judge{i}"))["documents"]:
                time.sleep(0.5)  # a judge who reads very fast
                given = {"doc_id": each["doc_id"], "grade": int(number % 4 == 0), "judge": f"judge{i}"}
                watch.ask(client, "judge", f"{path}/judgements", given)
            if number % 10 == 9:
                watch.ask(client, "progress", f"{path}/progress")

    end = time.perf_counter() + seconds
    taken = together(JUDGES + 1, work, address)
    is_over.set()
    adding.join()
    while json.loads(watch.ask(first, "training", f"/api/train/{training}"))["status"] == "running":
        time.sleep(1)  # a training at a time
    return taken, sum(n_added)


@contextmanager
def started(given: Any, work: Path) -> Iterator[tuple[Served, Path, list[str], list[str]]]:
    """Serve a copy of the engine; yield the service, the folder of the copy, queries, and a thousand document ids."""
    from support.served import Served

    from haybale import Engine
    from haybale.search.phrases import parse_phrases

    folder = work / "engine"
    shutil.copytree(given.engine, folder)
    collection = Engine.open(folder).collection
    numbers = np.random.default_rng(0).permutation(collection.n_queries)[:500]
    # A phrase in quotes may consist of stop words, which a search refuses.
    queries = [text for text in collection.queries.texts(numbers) if not parse_phrases(text)[1]]
    rankers = ["--ranker", f"fused={FUSED}", *(["--model", f"learned={given.model}"] if given.model else [])]
    store = str(work / "judgements.sqlite")
    with Served(folder, "--judgements", store, *rankers, processes=given.processes) as served:
        served.wait_for_processes()
        while served.ask("/health")["reviews"] != "ready":
            time.sleep(0.5)
        yield served, folder, queries, collection.doc_ids.to_pylist()[:1000]


def size_of(folder: Path) -> list[str]:
    """Return the heading of a page and a line with the size of the collection."""
    from haybale import Engine

    found = Engine.open(folder).collection
    return [f"# A service of {found.name}", "", f"{found.n_documents:,} documents, {found.n_passages:,} passages."]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("engine", type=Path, help="the folder of an engine")
    parser.add_argument("--model", type=Path, help="the folder of the ranker learned")
    parser.add_argument("--processes", type=int, help="that search; default: as haybale serve")
    parser.add_argument("--seconds", type=float, default=20, help="of each part")
    parser.add_argument("--rounds", type=int, default=5, help="of the judges, since the longest request varies")
    given = parser.parse_args()
    lines = size_of(given.engine)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        started(given, Path(work)) as (served, folder, queries, _),
    ):
        ready = served.ask("/health").get("search_processes", {}).get("ready", 0)
        lines.append(f"The clients are on the same cores. `fused` is `{FUSED}`. ms are of the clients; failures are")
        lines += [f"answers from 400 on. Processes that search: {ready}.", "", f"## Searches, {CLIENTS} clients"]
        rows = []
        for ranker in ("fused", *(["learned"] if given.model else [])):
            rows += searches(served.address, queries, ranker, given.seconds)[0].rows(given.seconds)
        columns = "asked | requests | a second | ms, median | ms, 95th percentile | ms, most | failures"
        lines += table(columns, rows)
        watch, taken, added, longest = Watch(), 0.0, 0, []
        for number in range(given.rounds):
            before = {what: len(each) for what, each in watch.seconds.items()}
            seconds, n_added = mixture(served.address, folder, queries, given.seconds, watch, number)
            taken, added = taken + seconds, added + n_added
            longest.append(max(max(each[before.get(what, 0) :], default=0) for what, each in watch.seconds.items()))
        about = f"{given.rounds} rounds of {JUDGES} judges, {added} documents added, a training in each"
        lines += ["", f"## {about}", *table(columns, watch.rows(taken))]
        each_round = ", ".join(f"{most:.2f}" for most in longest)
        lines += ["", f"Longest request of each round: {each_round} s (limit {LIMIT:g} s)."]
        lines += [f"{sum(watch.failures.values())} failures."]
    lines += ["", provenance(shown("bench_service.py", sys.argv[1:]))]
    write_page(given.results / "service.md", lines)


if __name__ == "__main__":
    main()
