"""A collection of GerDaLIR's size from end to end on text: index, train, rank, each stage a process of its own.

    python benchmarks/bench_large.py SOURCE FOLDER [--documents 131446] [--queries 98380] [--shares 0.1] [--tested 1]
        [--stages make index svr dask learned rank rank-dask limit] [--rankers bm25-doc …] [--rounds 1]
        [--results benchmarks/results]

SOURCE is a collection, gesetze here, whose words are drawn anew until there are as many documents. FOLDER keeps what
the stages make, each from what those before it left there: a finished stage is skipped, an interrupted one goes on or
is done again, and --stages takes some alone. --shares are of the training queries, a run each; the models of the last
rank --tested of the test queries. With --rounds of more than 1, rankings by one core and by two workers alternate, and
the median round of each counts. Writes large.json, where a stage replaces what was there of it, and large.md; without
SOURCE, the page anew.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import resampled
from provenance import (
    cell,
    clocked,
    cost,
    folder_sizes,
    in_a_process,
    mb,
    options,
    peak_memory,
    provenance,
    read_json,
    run_step,
    shown,
    table,
    write_json,
)

import haybale
from haybale.ensemble.kernel import Points, kernel_tile
from haybale.folders import replaced
from haybale.parallel import cpus, limit_threads
from haybale.rankers.learned import rankers_to_fuse
from haybale.timing import record_timings

DOCUMENTS, TRAINING, TESTED = 131_446, 98_380, 12_297  # of GerDaLIR, which has as many queries in dev as in test
TRAINED = {"svr": "svr", "dask": "svr, two Dask workers", "learned": "learned"}
RANKED = {"rank": "", "rank-dask": ", two Dask workers"}
STAGES = ("make", "index", *TRAINED, *RANKED, "limit")
RANKERS = ("bm25-doc", "knn", "parm-vrrf", "svr", "learned")
ALONE = ("kNN searches", "kernel values of documents", "copies of memory")  # what the stage limit repeats
SECONDS = 10.0  # that it repeats each
SEED = 0  # of the queries drawn
LOCAL: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
Record = dict[str, Any]
Stage = tuple[str, Path, str, Record]  # its name, what it writes, its step and the arguments of the step


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("source", nargs="?", help="the collection whose words are drawn")
    parser.add_argument("folder", nargs="?", type=Path, help="where to work, and to go on")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--queries", type=int, help="to train on; default: as many a document as in GerDaLIR")
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0], help="of the training queries")
    parser.add_argument("--tested", type=float, nargs="+", default=[1.0], help="shares of the test queries")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=("make", "index", "svr", "learned", "rank"))
    parser.add_argument("--rankers", nargs="+", choices=RANKERS, default=RANKERS)
    parser.add_argument("--rounds", type=int, default=1, help="of rankings by one core and by two workers")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one stage, in this process
    a = parser.parse_args()
    if a.step:
        run_step(STEPS, a.step)
        return
    path = a.results / "large.json"
    records = read_json(path, {})
    if a.source:
        given = shown("bench_large.py", sys.argv[1:])
        training = a.queries or round(TRAINING * a.documents / DOCUMENTS)
        how = a.shares, a.tested, a.stages, a.rankers, a.rounds
        for name, found in stages(a.source, a.folder, a.documents, training, *how):
            record = records.setdefault(f"{a.documents} documents, {training} queries", {"stages": {}})
            if record["stages"].get(name) != found:
                record["stages"][name] = found
                record["calls"] = list(dict.fromkeys([*record.get("calls", []), given]))
                record["provenance"] = provenance(given, more=("scipy", "pyarrow", "safetensors"))
            write_json(path, records, indent=2)
    path.with_suffix(".md").write_text(page(records), encoding="utf-8")


def in_own_process(step: str, given: Record) -> Record:
    return in_a_process(__file__, step, given)


def stages(
    source: str,
    folder: Path,
    documents: int,
    training: int,
    shares: list[float],
    tested: list[float],
    chosen: list[str],
    rankers: list[str],
    rounds: int = 1,
    ask: Callable[[str, Record], Record] = in_own_process,
) -> Iterator[tuple[str, Record]]:
    """Yield ``(name, record)`` of each stage, finished ones included."""
    collection, engine = folder / "collection", folder / "engine"
    models, runs = folder / "models", folder / "runs"
    each: list[tuple[str, str, Path, Record]] = [
        ("make", "make", collection, {"source": source, "documents": documents, "training": training}),
        ("index", "index", engine, {"collection": collection}),
    ]
    for share in shares:
        given = {"step": "train", "engine": engine, "share": share}
        for stage, title in TRAINED.items():
            out, svr = models / f"{stage}-{share:g}", models / f"svr-{share:g}"
            each.append((stage, f"train {title} {share:g}", out, given | {"ranker": stage, "svr": svr}))
    for ranked, ranker, stage in product(tested, rankers, RANKED):
        trained, given = ranker in TRAINED, {"engine": engine, "share": ranked, "ranker": ranker, "model": None}
        if trained:
            given |= {"model": models / f"{ranker}-{shares[-1]:g}"}
        name = f"{ranker} {ranked:g}" + (f" of {shares[-1]:g}" if trained else "")
        out = runs / f"{stage}-{name.replace(' ', '-')}.trec.gz"
        more = {"step": "rank", "workers": 0 if stage == "rank" else 2, "one_core": rounds > 1 and stage == "rank"}
        each.append((stage, f"rank {name}{RANKED[stage]}", out, given | more))
    each.append(("limit", "limit", folder / "limit.json", {"engine": engine}))
    asked_for = [(name, out, given.pop("step", stage), given) for stage, name, out, given in each if stage in chosen]

    def pair(stage: Stage) -> str:  # rankings that alternate are side by side, and have the same key
        return stage[0].removesuffix(RANKED["rank-dask"]) if rounds > 1 else stage[0]

    for _, together in groupby(asked_for, pair):
        yield from measured_stages(list(together), folder / "records", rounds, ask)


def measured_stages(
    together: list[Stage], records: Path, rounds: int, ask: Callable[[str, Record], Record]
) -> Iterator[tuple[str, Record]]:
    """Yield ``(name, record)`` of stages that alternate; the record is that of the round of median seconds.

    A stage that was measured is not measured again.
    """
    missing = [each for each in together if not ((records / f"{each[0]}.json").exists() and each[1].exists())]
    found: dict[str, list[Record]] = {name: [] for name, *_ in missing}
    for _ in range(rounds if len(together) > 1 else 1):
        for name, out, step, given in missing:
            print(f"  {name}", flush=True)
            resumed = step == "index" and out.exists()
            if out.exists() and not resumed:  # whole, but what it took was not written: it is measured again
                shutil.rmtree(out) if out.is_dir() else out.unlink()
            record = ask(step, {"out": out} | given)
            disk = sum(folder_sizes(out).values()) if out.is_dir() else out.stat().st_size
            found[name].append(record | {"wall": record.pop("process"), "disk": disk, "resumed": resumed})
    records.mkdir(parents=True, exist_ok=True)
    for name, of_rounds in found.items():
        by_seconds = sorted(of_rounds, key=lambda record: record["work"]["wall"])
        with replaced(records / f"{name}.json") as aside:
            write_json(aside, by_seconds[len(by_seconds) // 2] | {"rounds": len(by_seconds)})
    for name, *_ in together:
        yield name, read_json(records / f"{name}.json")


def make(source: str, out: str, documents: int, training: int) -> Record:
    """Write a collection resampled from another."""
    with clocked() as taken:
        counts = resampled.write(haybale.open_collection(source), Path(out), documents, training, TESTED / TRAINING)
    return whole() | {"work": taken, "counts": counts}


def index(collection: str, out: str) -> Record:
    """Build an engine with all its indexes, as ``haybale index`` does."""
    with clocked() as taken, record_timings() as seconds:
        built = haybale.Engine.build(collection, out, encoder="tfidf").prepare()
    counts = {"documents": built.collection.n_documents, "passages": len(built.passages)}
    counts |= {"terms": len(built.encoder.vocabulary_), "postings": int(built.passages.vectors.nnz)}
    return whole() | {"work": taken, "stages": seconds.seconds, "counts": counts}


def train(engine: str, share: float, out: str, ranker: str, svr: str) -> Record:
    """Train as ``haybale train`` does, on a share of the queries; ``learned`` takes the ensemble saved before."""
    opened = haybale.Engine.open(engine)
    queries, qrels = asked(opened.collection, "train", share)
    chosen: Any = haybale.SVR()
    if ranker == "learned":
        chosen = haybale.Learned(*rankers_to_fuse()[:-1], haybale.load(svr, opened))
    with clustered(2 if ranker == "dask" else 0) as used, clocked() as taken, record_timings() as seconds:
        chosen.fit(opened, queries, qrels).save(out)
        there = used()
    counted = {name: value for name, value in chosen.fit_report_.items() if isinstance(value, int | float)}
    return whole() | there | {"work": taken, "stages": seconds.seconds, "n": len(queries), "facts": counted}


def rank(
    engine: str, share: float, out: str, ranker: str, model: str | None, workers: int = 0, one_core: bool = False
) -> Record:
    """Rank a share of the test queries, as ``haybale rank`` does, and return Recall@100."""
    if one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    opened = haybale.Engine.open(engine)
    queries, qrels = asked(opened.collection, "test", share)
    with clustered(workers) as used, clocked() as taken, record_timings() as seconds:
        chosen = haybale.parse(ranker).fit(opened) if model is None else haybale.load(model, opened)
        run = chosen.rank(queries)
        there = used()
        Path(out).parent.mkdir(exist_ok=True)
        run.to_trec(out)
    found = float(haybale.evaluate(run, qrels, ["Recall@100"])["Recall@100"].mean())
    return whole() | there | {"work": taken, "stages": seconds.seconds, "n": len(queries), "Recall@100": found}


def limit(engine: str, out: str) -> Record:
    """Measure how much more two processes do than one if they share nothing: what this machine allows two workers."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, dict[int, float]] = {name: {} for name in ALONE}
    with clocked() as taken:
        for n in (1, 2):
            barrier, results = context.Barrier(n), context.Queue()
            started = [context.Process(target=work_alone, args=(engine, barrier, results)) for _ in range(n)]
            for each in started:
                each.start()
            rates = [results.get() for _ in started]
            for each in started:
                each.join()
            for name in ALONE:
                found[name][n] = sum(each[name] for each in rates)
    write_json(Path(out), found)
    return whole() | {"work": taken, "ratios": {name: rate[2] / rate[1] for name, rate in found.items()}}


def work_alone(engine: str, barrier: Any, results: Any) -> None:
    """Repeat each work for some seconds, together with the other processes, and report how often a second."""
    limit_threads(1)
    opened = haybale.Engine.open(engine)
    queries, _ = asked(opened.collection, "test", 0.02)
    vectors = opened.encoder.encode(queries.texts(range(len(queries))))
    points = [Points(None, opened.documents.vectors[start : start + 1024].tocsr()) for start in (0, 1024, 2048)]
    memory = np.zeros((2, 2**26), dtype=np.float32)
    works: dict[str, Callable[[], Any]] = {
        "kNN searches": lambda: opened.passages.search(vectors[:20], 1000),
        "kernel values of documents": lambda: [kernel_tile(points[0], each) for each in points[1:]],
        "copies of memory": lambda: np.copyto(memory[0], memory[1]),
    }
    rates = {}
    for name in ALONE:
        works[name]()
        barrier.wait()
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            works[name]()
            n += 1
        rates[name] = n / (time.perf_counter() - start)
    results.put(rates)


def asked(collection: Any, split: str, share: float) -> tuple[Any, Any]:
    """Return a share of a split's queries with their judgements; smaller shares are part of larger ones."""
    of_split = collection.split(split).queries
    drawn = np.random.default_rng(SEED).permutation(of_split)[: max(2, round(share * len(of_split)))]
    queries, qrels = collection.queries.take(np.sort(drawn)), collection.qrels_frame(split)
    return queries, qrels[qrels["query_id"].isin(queries.ids.to_pylist())]


def whole() -> Record:
    """Return the cores of this process, the CPU seconds since its start, and its peak memory."""
    return {"cores": cpus(), "cpu": time.process_time(), "peak": peak_memory()}


@contextmanager
def clustered(workers: int, limit: float | None = None) -> Iterator[Callable[[], Record]]:
    """Run the tasks of the block on Dask workers of one thread, and all else on one core.

    The function that is yielded returns the CPU seconds and the memory of the workers. ``limit`` is the memory of a
    worker in MB. If ``workers`` is 0, the block runs as it would without this.
    """
    if not workers:
        yield dict
        return
    from distributed import LocalCluster

    cores, memory = os.sched_getaffinity(0), "auto" if limit is None else limit * 1e6
    with (
        LocalCluster(n_workers=workers, memory_limit=memory, **LOCAL) as cluster,
        haybale.on_cluster(cluster.scheduler_address) as client,
    ):
        os.sched_setaffinity(0, {max(cores)})  # as the run in one thread has it; workers have begun with all
        try:
            yield lambda: {"workers": list(client.run(whole).values())}
        finally:
            os.sched_setaffinity(0, cores)


STEPS: dict[str, Callable[..., Record]] = {step.__name__: step for step in (make, index, train, rank, limit)}


def page(records: dict[str, Record]) -> str:
    """Return the page: what holds for all sizes, then a section each, the largest first."""
    other, first = f"{resampled.OTHER:.0%}", f"{resampled.FIRST:.0%}"
    lines = [
        "# A collection of GerDaLIR's size, from end to end on text",
        "",
        "Text is **resampled**: documents are copies of gesetze's with about 24 passages each; a passage is as"
        " long as one of the document it is a copy of, and its words are drawn from that with replacement,"
        f" {other} of them from all words of gesetze. A query is drawn likewise from the words of a real one, and"
        f" relevant to it is a copy of each relevant document, the first copy {first} of the time. Words, document"
        " frequencies and lengths are real, sentences are not: **no figure of effectiveness means anything"
        " elsewhere**. Recall@100 only shows that a stage finds what there is to be found; queries of training"
        " and of test are drawn from different real ones.",
        "",
        "Vectors are TF-IDF, everything else as the defaults are. Every stage is a process of its own that starts"
        " from the files of the one before it, does what `haybale index`, `train` or `rank` does, on all queries"
        " of a split or a part of them, and can be taken alone. Seconds and memory are those of the whole"
        " process, from its start to its files, by the clock and, in parentheses, of all cores that computed; `ms"
        " a query` leaves out importing and opening the engine. One core computed, where the stage does not say *two"
        " cores*; other work used the second, or both, at times: the seconds of the cores are those to go by. The"
        " number behind a stage is its share of the training or the test queries; behind *of* stands that of the"
        " model.",
    ]
    for record in sorted(records.values(), key=lambda record: -record["stages"]["make"]["counts"]["passages"]):
        # The last call is in the provenance too.
        calls = [f"- before it: `{call}`" for call in record["calls"][:-1]]
        notes = [line for note in record.get("notes", ()) for line in ("", note)]  # written by hand
        lines += ["", *section(record["stages"]), *notes, "", record["provenance"], *calls]
    return "\n".join([*lines, ""])


def section(found: dict[str, Record]) -> list[str]:
    """Return the lines of one size: every stage, and the parts of each training."""
    counts = found["make"]["counts"]
    queries = ", ".join(f"{split} {counts[split]:,}" for split in ("train", "dev", "test"))
    trained = {name.removeprefix("train "): of for name, of in found.items() if name.startswith("train svr")}
    rows = [row(*each) for each in found.items() if each[0] != "limit"]
    lines = [
        f"## {counts['passages']:,} passages",
        "",
        f"{counts['documents']:,} documents, {counts['words']:,} words; queries: {queries}.",
        *table("stage|queries|s|ms a query|memory, MB|disk, MB|Recall@100", rows),
        "",
        "Training `svr`, seconds by the clock. A Dask worker makes the Gram matrices of its bags itself, where threads"
        " of one process share them; memory is that of the process, then of each worker.",
        *table(
            "trained|queries|searches, s|bags|rows a bag|bags, s|memory, MB",
            (training_row(*each) for each in trained.items()),
        ),
    ]
    pairs = {name: f"{name}{RANKED['rank-dask']}" for name in found}
    compared = [(name, *fasters(found[name], found[both])) for name, both in pairs.items() if both in found]
    if compared:
        lines += [
            "",
            "Two Dask workers of one thread beside one thread, on the same queries: how many times as fast by the"
            " clock, without importing and opening the engine in the command (workers open it within this time), and"
            " how many times as many CPU seconds, those of the workers from their start.",
            *table("stage|times as fast|CPU seconds", compared),
        ]
    if "limit" in found:
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found["limit"]["ratios"].items())
        lines += [
            "",
            "What this machine allows: two processes that share nothing do this many times as much a second as one:"
            f" {ratios}.",
        ]
    return lines


def fasters(one: Record, two: Record) -> tuple[float, float]:
    """Return how many times as fast two workers are, and how many times as many CPU seconds they take."""
    workers = sum(each["cpu"] for each in two["workers"]) + two["work"]["cpu"]
    return one["work"]["wall"] / two["work"]["wall"], workers / one["work"]["cpu"]


def row(name: str, found: Record) -> list[str]:
    n, recall = found.get("n"), found.get("Recall@100")
    taken = cost(found | {"cpu": found["cpu"] + sum(each["cpu"] for each in found.get("workers", ()))})
    queries = ["", taken, ""] if n is None else [cell(n), taken, f"{1e3 * found['work']['wall'] / n:.1f}"]
    return [
        name + (", two cores" if found.get("cores", 1) > 1 else "") + (", resumed" if found.get("resumed") else ""),
        *queries,
        mb(found["peak"]),
        mb(found["disk"]),
        "" if recall is None else f"{recall:.3f}",
    ]


def training_row(name: str, found: Record) -> list[Any]:
    parts = {stage: taken for stage, taken in found["stages"].items() if stage.endswith("(train)")}
    searches = sum(taken for stage, taken in parts.items() if not stage.startswith("fit "))
    bags = sum(taken for stage, taken in found["stages"].items() if stage.startswith("fit svr"))
    rows = f"{found['facts']['mean rows of a bag']:,.0f}"
    memory = " + ".join(mb(each["peak"]) for each in (found, *found.get("workers", ())))
    return [name, found["n"], searches, found["facts"]["bags"], rows, bags, memory]


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a query without a hit is no news here
    main()
