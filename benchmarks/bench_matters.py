"""What a service of three matters bears: twenty people who work at once, its memory after idling, and kills.

    python benchmarks/bench_matters.py COLLECTION [--passages 100000] [--work FOLDER] [--seconds 120] [--kills 100]
        [--idle 20] [--processes N] [--parts load,memory,kills,isolation] [--results benchmarks/results]

The matters are documents of the collection from three different starts, with ids of their own. ``--work`` keeps their
engines for the next run. The people are asyncio clients of this process, on the same cores as the service; their
queries are those of the collection. ``--idle`` is the time in seconds after which a matter is closed, in place of half
an hour. ``--processes`` is that of ``haybale serve``. Memory is the proportional set size of the service and of all its
processes, which counts shared pages once. Kills are of a service of three small matters. The part ``isolation`` asks in
random order for a matter without a right and for one that does not exist.
Writes matters.json and matters.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
from provenance import options, provenance, read_json, shown, table, write_json, write_page

sys.path.append(str(Path(__file__).parents[1] / "tests"))

if TYPE_CHECKING:
    from support.served import Served

NAMES = ("birch", "cedar", "maple")  # of the matters; documents are added to the first, the second trains
PARTS = ("load", "memory", "kills", "isolation")
FUSED = "rrf(bm25-doc,parm-rrf)"
PEOPLE = 20
PAUSE = (1.0, 4.0)  # seconds between two requests of a person
SEARCH_LIMIT, JUDGEMENT_LIMIT, MEMORY_LIMIT = 0.4, 2.0, 1.2  # seconds, seconds, times one open matter
SMALL_PASSAGES = 1_500  # of a matter that is killed; judges must not run out of documents
TOPICS = 4  # of a matter; people judge for the last one, trainings learn from all
STRANGER_REQUESTS = 2_000  # to a matter without a right, and as many to none
ADD_SECONDS = 5.0  # between two additions of ten documents


def build(source: Path, folder: Path, n_passages: int) -> list[str]:
    """Build the engines that the folder lacks, and return queries of the collection."""
    from haybale import Engine, open_collection
    from haybale.search.phrases import parse_phrases

    collection = open_collection(source)
    offsets, n_documents = collection.passages.doc_offsets, collection.n_documents
    texts = collection.passages.texts
    for number, name in enumerate(NAMES):
        if (folder / name / "engine.json").exists():
            continue
        at, size, documents = number * n_documents // len(NAMES), 0, {}
        while size < n_passages:
            start, end = int(offsets[at]), int(offsets[at + 1])
            documents[f"{name}/{len(documents)}"] = texts[start:end].to_pylist()
            size, at = size + end - start, (at + 1) % n_documents
        Engine.build(documents, folder / name, language=collection.language).prepare()
    numbers = np.random.default_rng(0).permutation(collection.n_queries)[:500]
    # A phrase in quotes may consist of stop words, which a search refuses.
    return [text[:1000] for text in collection.queries.texts(numbers) if not parse_phrases(text)[1]]


class Person:
    """A client with a connection of its own, which notes the seconds and the failures of its requests."""

    def __init__(self, address: str, token: str, seconds: dict[str, list[float]], failures: Counter[str]) -> None:
        self.host, _, self.port = address.removeprefix("http://").partition(":")
        self.token, self.seconds, self.failures = token, seconds, failures
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, what: str, path: str, given: Any = None) -> Any:
        """Return the JSON of an answer; None for a failure."""
        start = time.perf_counter()
        try:
            status, body = await self._exchange(path, given)
        except (OSError, asyncio.IncompleteReadError):  # an idle connection that was closed
            self._streams = None
            status, body = await self._exchange(path, given)
        self.seconds[what].append(time.perf_counter() - start)
        self.failures[what] += status >= 400
        return json.loads(body) if status < 400 else None

    async def _exchange(self, path: str, given: Any) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, int(self.port))
        reader, writer = self._streams
        body = b"" if given is None else json.dumps(given).encode()
        head = f"{'GET' if given is None else 'POST'} {path} HTTP/1.1\r\nHost: {self.host}\r\n"
        head += f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:"))
        return int(lines[0].split()[1]), await reader.readexactly(length)


async def work_of(person: Person, number: int, queries: list[str], topics: dict[str, int], end: float) -> None:
    """Search, judge and search over all matters, with pauses, until the end."""
    random, matter = np.random.default_rng(number), NAMES[number % len(NAMES)]
    topic = f"/matters/{matter}/api/topics/{topics[matter]}"
    await asyncio.sleep(random.uniform(0, PAUSE[1]))
    for turn in range(10**6):
        if time.perf_counter() > end:
            return
        query = queries[int(random.integers(len(queries)))]
        if turn % 8 == 7:
            await person.ask("search over three matters", f"/api/search?{urlencode({'q': query})}")
        elif turn % 2:
            await person.ask("fused search", f"/matters/{matter}/api/search?{urlencode({'q': query})}")
        else:
            proposed = await person.ask("next document", f"{topic}/next")
            for document in (proposed or {"documents": []})["documents"]:
                await asyncio.sleep(random.uniform(*PAUSE))
                given = {"doc_id": document["doc_id"], "grade": int(random.random() < 0.3)}
                await person.ask("judgement", f"{topic}/judgements", given)
        await asyncio.sleep(random.uniform(*PAUSE))


async def train(person: Person, end: float) -> int:
    """Let a matter train, one training after the other, until the end; return how many have begun."""
    n_trainings = 0
    while time.perf_counter() < end:
        training = await person.ask("begin of a training", "/matters/cedar/api/train", {"recipe": "svr"})
        if training is None:  # there are too few judgements yet
            await asyncio.sleep(2)
            continue
        n_trainings += 1
        while training and training["status"] == "running" and time.perf_counter() < end:
            await asyncio.sleep(2)
            training = await person.ask("state of a training", f"/matters/cedar/api/train/{training['id']}")
    return n_trainings


async def load(
    address: str, tokens: list[str], queries: list[str], seconds: float, folder: Path
) -> tuple[dict[str, list[float]], Counter[str], int, int]:
    """Let people work while a matter trains; return seconds and failures, trainings, and added documents."""
    measured: dict[str, list[float]] = defaultdict(list)
    failures: Counter[str] = Counter()
    other: dict[str, list[float]] = defaultdict(list)
    first = Person(address, tokens[0], other, failures)
    topics = {}
    for number, matter in enumerate(NAMES):
        path = f"/matters/{matter}/api/topics"
        for text in queries[TOPICS * number : TOPICS * (number + 1)]:  # something to learn from
            topics[matter] = (await first.ask("topic", path, {"text": text}))["id"]
            for turn in range(4):
                for document in (await first.ask("next", f"{path}/{topics[matter]}/next?n=5"))["documents"]:
                    given = {"doc_id": document["doc_id"], "grade": turn % 2}
                    await first.ask("judge", f"{path}/{topics[matter]}/judgements", given)
    adding = subprocess.Popen([sys.executable, __file__, "--add", str(folder / NAMES[0])], stdout=subprocess.PIPE)
    end = time.perf_counter() + seconds
    people = [Person(address, token, measured, failures) for token in tokens[1:]]
    working = [work_of(person, number, queries, topics, end) for number, person in enumerate(people)]
    n_trainings, *_ = await asyncio.gather(train(Person(address, tokens[0], other, failures), end), *working)
    adding.terminate()
    n_added = 10 * len(adding.communicate()[0].splitlines())
    return measured, failures, n_trainings, n_added


def add_documents(folder: Path) -> None:
    """Add ten documents every few seconds, and print a line for each time, until the process is ended."""
    from haybale import Engine
    from haybale.errors import StoreError

    texts = Engine.open(folder).collection.passages.texts.slice(0, 1000).to_pylist()
    for number in range(10**6):
        documents = {f"added/{number}/{n}": f"{texts[(10 * number + n) % 1000]} {number}" for n in range(10)}
        with suppress(StoreError):  # the service is writing an index
            Engine.open(folder).add(documents)
            print(number, flush=True)
        time.sleep(ADD_SECONDS)


def memory(process: int) -> float:
    """Return the GB of a process and of those that it has started, by their proportional set sizes."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    tree = {process}
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    total = 0
    for member in tree:
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1e9


@contextmanager
def served_matters(folder: Path, users: Path, idle: float, processes: int | None) -> Iterator[Served]:
    from support.served import Served

    how = ["--users", str(users), "--idle-minutes", str(idle / 60), "--ranker", f"fused={FUSED}"]
    with Served(folder, *how, processes=processes) as served:
        yield served


async def ready(address: str, token: str, matters: tuple[str, ...]) -> float:
    """Open matters, wait until reviews and processes of all are ready, search each; return the seconds of opening."""
    start, n_ready = time.perf_counter(), 0

    async def open_one(matter: str) -> float:
        nonlocal n_ready
        person = Person(address, token, defaultdict(list), Counter())
        while await person.ask("open", f"/matters/{matter}/api/rankers") is None:
            await asyncio.sleep(0.2)
        seconds = time.perf_counter() - start
        while await person.ask("ready", f"/matters/{matter}/ready") is None:
            await asyncio.sleep(0.5)
        n_ready += 1
        while n_ready < len(matters):  # so that it stays open
            await person.ask("ready", f"/matters/{matter}/ready")
            await asyncio.sleep(0.5)
        for text in ("recht", "gesetz", "antrag"):
            await person.ask("search", f"/matters/{matter}/api/search?q={text}")
        return seconds

    return max(await asyncio.gather(*map(open_one, matters)))


async def closed(address: str, token: str) -> float:
    """Wait until all matters are closed; return the seconds."""
    person, start = Person(address, token, defaultdict(list), Counter()), time.perf_counter()
    while True:
        listed = await person.ask("list", "/api/matters")
        if all(matter["status"] == "closed" for matter in listed["matters"]):
            return time.perf_counter() - start
        await asyncio.sleep(1)


def kills(folder: Path, n: int) -> tuple[int, int, int, int, int]:
    """Kill the service while nine judges judge in three matters; return the counts of the page.

    They are kills, acknowledged judgements, of these missing and repeated ones, and the documents of all matters.
    Ctrl-C ends the kills early.
    """
    from support.served import Served, Within, judge_until_killed

    from haybale import Engine
    from haybale.review import JudgementStore

    given: list[tuple[str, str, str, str, int]] = []  # matter, topic, document, judge, grade
    random, n_kills = np.random.default_rng(0), 0
    with suppress(KeyboardInterrupt):
        while n_kills < n:
            text, served = f"recht {n_kills % 10}", Served(folder, "--ranker", "bm25")
            acknowledged: dict[int, list[tuple[str, str, int]]] = {number: [] for number in range(9)}
            threads = []
            try:
                for number in acknowledged:
                    within = Within(served, f"/matters/{NAMES[number % 3]}")
                    topic = within.ask("/api/topics", {"text": text})["id"]
                    arguments = within, topic, f"judge{number}", acknowledged[number]
                    threads.append(threading.Thread(target=judge_until_killed, args=arguments))
                for thread in threads:
                    thread.start()
                while not all(acknowledged.values()):
                    time.sleep(0.01)
                time.sleep(random.uniform(0, 1))
            finally:
                served.kill()
            for thread in threads:
                thread.join()
            n_kills += 1
            given += [(NAMES[number % 3], text, *row) for number, rows in acknowledged.items() for row in rows]
    rows: Counter[tuple[str, str, str, str, int]] = Counter()
    for matter in NAMES:
        with JudgementStore(folder / f"{matter}-judgements.sqlite") as store:
            for topic in store.topics():
                rows.update((matter, topic.text, row.doc_id, row.judge, row.grade) for row in store.judgements(topic))
    missing, repeated = set(given) - rows.keys(), sum(times - 1 for times in rows.values())
    n_documents = sum(Engine.open(folder / matter).collection.n_documents for matter in NAMES)
    return n_kills, len(given), len(missing), repeated, n_documents


def memories(folder: Path, users: Path, token: str, idle: float, processes: int | None) -> list[tuple[str, float]]:
    """Return the GB of a service with matters that are open, closed and opened again."""
    rows = []
    with served_matters(folder, users, idle, processes) as served:
        rows.append(("no matter open, after the start", memory(served.process.pid)))
    with served_matters(folder, users, 0, processes) as served:
        asyncio.run(ready(served.address, token, NAMES[2:]))
        rows.append(("one matter open", memory(served.process.pid)))
    with served_matters(folder, users, idle, processes) as served:
        asyncio.run(ready(served.address, token, NAMES))
        rows.append(("three matters open", memory(served.process.pid)))
        asyncio.run(closed(served.address, token))
        rows.append(("all closed after idling", memory(served.process.pid)))
        asyncio.run(ready(served.address, token, NAMES[2:]))
        rows.append(("one opened again", memory(served.process.pid)))
    return rows


async def strangers_seconds(address: str, token: str) -> tuple[list[float], list[float]]:
    """Return the seconds of requests to a matter without a right, and of those to a matter that does not exist."""
    seconds: dict[str, list[float]] = defaultdict(list)
    person = Person(address, token, seconds, Counter())
    order = np.random.default_rng(0).permutation(2 * STRANGER_REQUESTS) % 2
    for name in (NAMES[0], "tulip") * 50:  # until the connection and all code are warm
        await person.ask("first", f"/matters/{name}/api/search?q=recht")
    for number in order:
        name = (NAMES[0], "tulip")[number]
        await person.ask(name, f"/matters/{name}/api/search?q=recht")
    return seconds[NAMES[0]], seconds["tulip"]


def measure_isolation(folder: Path, users: Path, token: str, processes: int | None) -> dict[str, float]:
    """Return the median ms of requests to a matter without a right and to none, and the p of their difference."""
    from scipy.stats import mannwhitneyu

    with served_matters(folder, users, 0, processes) as served:
        forbidden, missing = asyncio.run(strangers_seconds(served.address, token))
    medians = {"forbidden": 1000 * float(np.median(forbidden)), "missing": 1000 * float(np.median(missing))}
    return medians | {"p": float(mannwhitneyu(forbidden, missing).pvalue)}


def measure_load(folder: Path, users: Path, tokens: list[str], queries: list[str], given: Any) -> dict[str, Any]:
    """Return what people get while documents are added and a matter trains."""
    with served_matters(folder, users, 0, given.processes) as served:
        opening = asyncio.run(ready(served.address, tokens[0], NAMES))
        load_before = os.getloadavg()[0]
        measured, failures, n_trainings, n_added = asyncio.run(
            load(served.address, tokens, queries, given.seconds, folder)
        )
        loads = load_before, os.getloadavg()[0]
    rows = [
        (what, len(seconds), *(float(each) for each in np.percentile(seconds, [50, 95, 100]) * 1000))
        for what, seconds in measured.items()
    ]
    searches, judgements = measured["fused search"], measured["judgement"]
    return {
        "rows": rows, "loads": loads, "opening": opening, "n_failures": sum(failures.values()),
        "seconds": given.seconds, "n_trainings": n_trainings, "n_added": n_added,
        "p95": float(np.percentile(searches, 95)),
        "longest": max(judgements), "share": float(np.mean(np.array(searches) <= SEARCH_LIMIT)),
    }  # fmt: skip


def page_of(record: dict[str, Any]) -> list[str]:
    """Return the lines of the page, for the parts that were measured."""
    lines = ["# A service of three matters", "", f"{record['sizes']} `fused search` is by `{FUSED}`."]
    if "load" in record:
        found = record["load"]
        before, after = found["loads"]
        lines += ["", f"## {PEOPLE} people", ""]
        lines += [
            f"In {found['seconds']:.0f} seconds, {found['n_added']} documents were added to the first matter, and",
            f"{found['n_trainings']} trainings began in the second. Each person searches, judges and pauses for 1 to 4",
            "seconds. ms are of the clients, on the same cores. The load average of the machine was",
            f"{before:.1f} before and {after:.1f} after. {found['n_failures']} answers from",
            f"400 on. All three matters were open {found['opening']:.1f} s after they were asked for.",
            *table("asked | requests | ms, median | ms, 95th percentile | ms, most", found["rows"]),
            "",
            f"95 % of fused searches within {1000 * found['p95']:.0f} ms; {found['share']:.0%} within the limit of",
            f"{1000 * SEARCH_LIMIT:.0f} ms. Longest judgement {found['longest']:.2f} s (limit {JUDGEMENT_LIMIT:g} s).",
        ]
    if "memory" in record:
        one = record["memory"]["one matter open"]
        lines += [
            "",
            "## Memory",
            "",
            f"A matter is closed after {record['idle']:g} seconds here, in place of half an hour.",
        ]
        lines += ["Proportional set size of the service and all its processes; reviews and processes that search are"]
        lines += ["ready in open matters."]
        rows = [(state, gb, gb / one) for state, gb in record["memory"].items()]
        lines += table("state | GB | of one open matter", rows)
        most = max(record["memory"][state] for state in ("all closed after idling", "one opened again")) / one
        lines += ["", f"After idling at most {most:.2f} times one open matter (limit {MEMORY_LIMIT:g})."]
    if "kills" in record:
        n_kills, n_given, n_missing, n_repeated, n_documents = record["kills"]
        lines += ["", "## Kills", ""]
        lines += [
            f"A service of three matters, {n_documents:,} documents in all, was killed {n_kills} times (SIGKILL) while"
        ]
        lines += [f"nine judges judged. {n_given:,} judgements were acknowledged; {n_missing} of them are missing, and"]
        lines += [f"{n_repeated} are there twice."]
    if "isolation" in record:
        forbidden, missing, p = (record["isolation"][name] for name in ("forbidden", "missing", "p"))
        lines += ["", "## Isolation", ""]
        lines += [
            f"{STRANGER_REQUESTS:,} requests to a matter in which the user has no right take {forbidden:.3f} ms in the",
            f"median, as many to a name that no matter has {missing:.3f} ms, in random order; p of a difference",
            f"{p:.2g} (Mann-Whitney).",
        ]
    return lines


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", type=Path, help="the folder of a collection with queries")
    parser.add_argument("--passages", type=int, default=100_000, help="of each matter")
    parser.add_argument("--work", type=Path, help="the folder that keeps the engines; default: a temporary one")
    parser.add_argument("--seconds", type=float, default=120, help="for which the people work")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--idle", type=float, default=20, help="seconds after which a matter is closed")
    parser.add_argument("--processes", type=int, help="that search a matter; default: as haybale serve")
    parser.add_argument("--parts", default=",".join(PARTS), help="what is measured; other parts stay as they are")
    given = parser.parse_args()
    from haybale import Engine
    from haybale.service.users import User
    from haybale.service.users_file import add_user

    parts = given.parts.split(",")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        work, kept = Path(temporary), given.work or Path(temporary) / "built"
        queries = build(given.collection, kept, given.passages)
        sizes = [Engine.open(kept / name).collection for name in NAMES]
        counts = ", ".join(f"{size.n_documents:,} documents in {size.n_passages:,} passages" for size in sizes)
        record = {"sizes": f"{counts}; from {given.collection.name}."}
        for name in NAMES:  # since documents and judgements are added
            shutil.copytree(kept / name, work / "matters" / name)
        users = work / "users.json"
        tokens = [add_user(users, User("Ada", "administer")) or ""]
        tokens += [add_user(users, User(f"judge {number}", "judge")) or "" for number in range(PEOPLE)]
        if "isolation" in parts:
            stranger = add_user(users, User("Mallory", "none", matters={NAMES[1]: "read"})) or ""
            record["isolation"] = measure_isolation(work / "matters", users, stranger, given.processes)
        if "load" in parts:
            record["load"] = measure_load(work / "matters", users, tokens, queries, given)
        if "memory" in parts:
            record["idle"] = given.idle
            record["memory"] = dict(memories(work / "matters", users, tokens[0], given.idle, given.processes))
        if "kills" in parts:
            build(given.collection, work / "small", min(SMALL_PASSAGES, given.passages))
            record["kills"] = kills(work / "small", given.kills)
    measures, *measured = provenance(shown("bench_matters.py", sys.argv[1:])).splitlines()
    path = given.results / "matters.json"
    before = read_json(path, {"measured": {}})
    record = before | record | {"measured": before["measured"] | dict.fromkeys(parts, measured)}
    write_json(path, record)
    of_parts = [f"{line[:2]}{part}: {line[2:]}" for part, lines in record["measured"].items() for line in lines]
    write_page(given.results / "matters.md", [*page_of(record), "", measures, *of_parts])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--add"]:
        add_documents(Path(sys.argv[2]))
    else:
        main()
