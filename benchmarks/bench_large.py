"""A collection of GerDaLIR's size from end to end on text: index, train, rank, each stage a process of its own.

    python benchmarks/bench_large.py SOURCE FOLDER [--documents 131446] [--queries 98380] [--shares 0.1] [--tested 1]
        [--stages make index svr dask bags learned rank] [--rankers bm25-doc …] [--results benchmarks/results]

SOURCE is a collection, gesetze here, whose words are drawn anew until there are as many documents. FOLDER keeps what
the stages make, each from what those before it left there: a stage that is finished is skipped, one that was
interrupted goes on or is done again, and --stages takes some alone. --shares are of the training queries, a run each;
the models of the last rank --tested of the test queries. Writes large.json, where a stage replaces what was there of
it, and large.md; without SOURCE, the page anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import resampled
from bench_serving import clocked, sizes
from large_page import page
from provenance import options, peak_memory, provenance, shown, timed

import haybale
from haybale.folders import replaced, write_json
from haybale.parallel import cpus
from haybale.rankers.learned import everything
from haybale.timing import record_timings

DOCUMENTS, TRAINING, TESTED = 131_446, 98_380, 12_297  # of GerDaLIR, which has as many queries in dev as in test
TRAINED = {"svr": "svr", "dask": "svr, two Dask workers", "learned": "learned"}
TRAINED |= {"bags": "two large bags", "tight": "two bags in 2 GB"}
STAGES = ("make", "index", *TRAINED, "rank")
RANKERS = ("bm25-doc", "knn", "parm-vrrf", "svr", "learned")
WIDE = 25  # candidates of each of two searches, for bags as large as those of all training queries
SEED = 0  # of the queries drawn
LOCAL: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
Record = dict[str, Any]


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
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one stage, in this process
    a = parser.parse_args()
    if a.step:
        given = json.loads(a.step)
        print(json.dumps(STEPS[given.pop("step")](**given)))
        return
    path = a.results / "large.json"
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if a.source:
        given = shown("bench_large.py", sys.argv[1:])
        training = a.queries or round(TRAINING * a.documents / DOCUMENTS)
        for name, found in stages(a.source, a.folder, a.documents, training, a.shares, a.tested, a.stages, a.rankers):
            record = records.setdefault(f"{a.documents} documents, {training} queries", {"stages": {}})
            if record["stages"].get(name) != found:
                record["stages"][name] = found
                record["calls"] = list(dict.fromkeys([*record.get("calls", []), given]))
                record["provenance"] = provenance(given, more=("scipy", "pyarrow", "safetensors"))
            write_json(path, records)
    path.with_suffix(".md").write_text(page(records), encoding="utf-8")


def in_a_process(step: str, **given: Any) -> Record:
    """A step of :data:`STEPS`, and the seconds of the whole process."""
    command = [sys.executable, __file__, "--step", json.dumps({"step": step, **given}, default=str)]
    taken, done = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True))
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": taken}


def stages(
    source: str,
    folder: Path,
    documents: int,
    training: int,
    shares: list[float],
    tested: list[float],
    chosen: list[str],
    rankers: list[str],
    ask: Callable[..., Record] = in_a_process,
) -> Iterator[tuple[str, Record]]:
    """``(name, record)`` of each stage, those that are finished too."""
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
    for ranked, ranker in product(tested, rankers):
        trained, given = ranker in TRAINED, {"engine": engine, "share": ranked, "ranker": ranker, "model": None}
        if trained:
            given |= {"model": models / f"{ranker}-{shares[-1]:g}"}
        name = f"{ranker} {ranked:g}" + (f" of {shares[-1]:g}" if trained else "")
        each.append(("rank", f"rank {name}", runs / f"{name.replace(' ', '-')}.trec.gz", given))
    for stage, name, out, given in each:
        if stage not in chosen:
            continue
        known = folder / "records" / f"{name}.json"
        if not (known.exists() and out.exists()):
            print(f"  {name}", flush=True)
            resumed = stage == "index" and out.exists()
            if out.exists() and not resumed:  # whole, but what it took was not written: it is measured again
                shutil.rmtree(out) if out.is_dir() else out.unlink()
            found = ask(**{"step": stage, "out": out} | given)
            disk = sum(sizes(out).values()) if out.is_dir() else out.stat().st_size
            known.parent.mkdir(parents=True, exist_ok=True)
            with replaced(known) as aside:
                write_json(aside, found | {"disk": disk, "resumed": resumed})
        yield name, json.loads(known.read_text(encoding="utf-8"))


def make(source: str, out: str, documents: int, training: int) -> Record:
    """The files, resampled from a collection's."""
    with clocked() as taken:
        counts = resampled.write(haybale.open_collection(source), Path(out), documents, training, TESTED / TRAINING)
    return whole() | {"work": taken, "counts": counts}


def index(collection: str, out: str) -> Record:
    """What ``haybale index`` does: an engine with all its indexes."""
    with clocked() as taken, record_timings() as seconds:
        built = haybale.Engine.build(collection, out, encoder="tfidf").prepare()
    counts = {"documents": built.collection.n_documents, "passages": len(built.passages)}
    counts |= {"terms": len(built.encoder.vocabulary_), "postings": int(built.passages.vectors.nnz)}
    return whole() | {"work": taken, "stages": seconds.seconds, "counts": counts}


def train(engine: str, share: float, out: str, ranker: str, svr: str) -> Record:
    """What ``haybale train`` does, on a share of the training queries; ``learned`` takes the ensemble saved before."""
    opened = haybale.Engine.open(engine)
    queries, qrels = asked(opened.collection, "train", share)
    chosen: Any = haybale.SVR()
    if ranker in ("bags", "tight"):
        few = haybale.BM25("document"), haybale.KNN("document")
        budget = 2e9 if ranker == "tight" else None
        chosen = haybale.SVR(few, n_train=WIDE, n_bags=2, overlap=0.0, memory_budget=budget)
    elif ranker == "learned":
        chosen = haybale.Learned(*everything()[:-1], haybale.load(svr, opened))
    with clustered(2 if ranker == "dask" else 0) as used, clocked() as taken, record_timings() as seconds:
        chosen.fit(opened, queries, qrels).save(out)
        there = used()
    counted = {name: value for name, value in chosen.fit_report_.items() if isinstance(value, int | float)}
    if ranker != "learned":
        counted["support documents a bag (mean)"] = documents_of(chosen)
    return whole() | there | {"work": taken, "stages": seconds.seconds, "n": len(queries), "facts": counted}


def documents_of(svr: haybale.SVR) -> float:
    """Different documents among a bag's support rows: of so many, squared, kernel values are held at least."""
    support = svr.ensemble_.support_
    return float(np.mean([len(np.unique(support.passage[a:b])) for a, b in pairwise(support.offsets.tolist())]))


def rank(engine: str, share: float, out: str, ranker: str, model: str | None) -> Record:
    """What ``haybale rank`` does: a run of a share of the test queries; that it finds anything is looked at."""
    opened = haybale.Engine.open(engine)
    queries, qrels = asked(opened.collection, "test", share)
    with clocked() as taken, record_timings() as seconds:
        chosen = haybale.parse(ranker).fit(opened) if model is None else haybale.load(model, opened)
        run = chosen.rank(queries)
        Path(out).parent.mkdir(exist_ok=True)
        run.to_trec(out)
    found = float(haybale.evaluate(run, qrels, ["Recall@100"])["Recall@100"].mean())
    return whole() | {"work": taken, "stages": seconds.seconds, "n": len(queries), "Recall@100": found}


def asked(collection: Any, split: str, share: float) -> tuple[Any, Any]:
    """A share of the queries of a split, drawn so that smaller shares are part of larger ones, and their judgements."""
    of_split = collection.split(split).queries
    drawn = np.random.default_rng(SEED).permutation(of_split)[: max(2, round(share * len(of_split)))]
    queries, qrels = collection.queries.take(np.sort(drawn)), collection.qrels_frame(split)
    return queries, qrels[qrels["query_id"].isin(queries.ids.to_pylist())]


def whole() -> Record:
    """The cores of this process, the seconds that all of them computed from its start, the peak of its memory."""
    return {"cores": cpus(), "cpu": time.process_time(), "peak": peak_memory()}


@contextmanager
def clustered(workers: int) -> Iterator[Callable[[], Record]]:
    """Within it, bags are trained on so many Dask workers of one thread, and all else on one core; the CPU seconds
    and the memory of the workers are what the function that is yielded says. Without workers, nothing."""
    if not workers:
        yield dict
        return
    from distributed import LocalCluster

    cores = os.sched_getaffinity(0)
    with LocalCluster(n_workers=workers, **LOCAL) as cluster, haybale.on_cluster(cluster.scheduler_address) as client:
        os.sched_setaffinity(0, {max(cores)})  # as the run in one thread has it; workers have begun with all
        try:
            yield lambda: {"workers": list(client.run(whole).values())}
        finally:
            os.sched_setaffinity(0, cores)


STEPS: dict[str, Callable[..., Record]] = {step.__name__: step for step in (make, index, train, rank)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a query without a hit is no news here
    main()
