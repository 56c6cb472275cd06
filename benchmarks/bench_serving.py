"""What an engine costs to build, keep, open, ask and grow: seconds, memory and disk, ranker by ranker.

    python benchmarks/bench_serving.py pydocs FOLDER … [--queries 500] [--folder FOLDER] [--results benchmarks/results]

Over TF-IDF, everything else as the defaults are. Every measurement has a process of its own. Files were written shortly
before, so they are read from the page cache, as on a server that has been up for a while. Writes serving.json, where a
collection that is measured again replaces what was there of it, and serving.md (serving_pages.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import serving_pages
from provenance import peak_memory, provenance, shown

from haybale.folders import replace_json

RANKERS = ("bm25-doc", "parm-vrrf", "svr-doc", "learned")
MEASURED = ("bm25-doc", "knn-doc")  # after adding, against an engine that was built on everything
MEASURES = ("nDCG@10", "Recall@100")
OPENED = 5  # processes that open the engine
ADDED, WORDS = 1000, 3  # documents added, and words changed in each of their passages
SHARE = 0.1  # of the documents, added to an engine that was built on the others

Ask = Callable[..., dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders")
    parser.add_argument("--queries", type=int, default=500, help="asked one by one, at most")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where to work")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one measurement, in this process
    a = parser.parse_args()
    if a.step:
        given = json.loads(a.step)
        print(json.dumps(STEPS[given.pop("step")](**given)))
        return
    a.results.mkdir(parents=True, exist_ok=True)
    for name in a.collections:
        with tempfile.TemporaryDirectory(prefix="serving-", dir=a.folder) as folder:
            record = measured(name, Path(folder), a.queries)
        record["provenance"] = provenance(
            shown("bench_serving.py", [name]), more=("scipy", "pyarrow", "safetensors", "bm25s")
        )
        path = a.results / "serving.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        replace_json(path, known | {record["collection"]["name"]: record})
        serving_pages.write(a.results)


def in_a_process(step: str, **given: Any) -> dict[str, Any]:
    """A step of :data:`STEPS`, and the seconds of the whole process."""
    print(f"  {step}", *(value for key, value in given.items() if key in ("ranker", "what")), flush=True)
    command = [sys.executable, __file__, "--step", json.dumps({"step": step, **given}, default=str)]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    whole = time.perf_counter() - start
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"process": whole}


def measured(name: str, folder: Path, n_queries: int, ask: Ask = in_a_process) -> dict[str, Any]:
    """Everything of one collection; the folder is a new one."""
    engine, grown = folder / "engine", folder / "grown"
    record = ask("build", collection=name, engine=engine)
    record["open"] = [ask("open", engine=engine) for _ in range(OPENED)]
    record["rankers"] = {}
    for ranker in RANKERS:
        saved = folder / ranker
        found = {"fit": ask("fit", engine=engine, ranker=ranker, saved=saved), "disk": sum(sizes(saved).values())}
        found["one by one"] = ask("one_by_one", engine=engine, saved=saved, n_queries=n_queries, ranker=ranker)
        found["at once"] = ask("at_once", engine=engine, saved=saved, n_queries=n_queries, ranker=ranker)
        record["rankers"][ranker] = found
    record["disk"] = sizes(engine)
    shutil.copytree(engine, grown)
    record["add"] = ask("add", engine=grown, n_documents=ADDED)
    record["open after adding"] = [ask("open", engine=grown) for _ in range(OPENED)]
    for ranker, found in record["rankers"].items():
        found["after adding"] = ask("one_by_one", engine=grown, saved=folder / ranker, n_queries=10, ranker=ranker)
    record["disk after adding"] = sizes(grown)
    record["approximate"] = {what: ask("effectiveness", collection=name, what=what) for what in ("at once", "grown")}
    return record


def sizes(folder: Path) -> dict[str, int]:
    """Bytes by part: the index's, where a segment has it (``0/passages``), else the first folder or file."""
    found: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            parts = path.relative_to(folder).parts
            part = "/".join(parts[: 2 if parts[0].isdigit() else 1])
            found[part] = found.get(part, 0) + path.stat().st_size
    return found


@contextmanager
def clocked(into: dict[str, float]) -> Any:
    """Seconds by the clock, and those of all cores that computed."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into["wall"], into["cpu"] = time.perf_counter() - wall, time.process_time() - cpu


# steps ----------------------------------------------------------------------------------------------------


def build(collection: str, engine: str) -> dict[str, Any]:
    """An engine with all its indexes, from a collection's files to a folder."""
    from haybale.engine import Engine
    from haybale.stages import listening

    taken: dict[str, float] = {}
    with clocked(taken), listening() as stages:
        made = Engine.build(collection, engine, encoder="tfidf").prepare()
    found = made.collection
    counts = {"name": found.name, "documents": found.n_documents, "passages": found.n_passages}
    return {"collection": counts, "build": taken | {"peak": peak_memory(), "stages": stages.seconds}}


def open_engine(engine: str) -> dict[str, Any]:
    """Importing apart from opening."""
    imported: dict[str, float] = {}
    opened: dict[str, float] = {}
    with clocked(imported):
        from haybale.engine import Engine
    with clocked(opened):
        Engine.open(engine)
    return opened | {"import": imported, "peak": peak_memory()}


def fit(engine: str, ranker: str, saved: str) -> dict[str, Any]:
    """Fit on the training queries and save; the indexes are opened within."""
    from haybale.engine import Engine
    from haybale.rankers import parse

    opened = Engine.open(engine)
    taken: dict[str, float] = {}
    with clocked(taken):
        fitted = parse(ranker).fit(opened)
    fitted.save(saved)
    return taken | {"peak": peak_memory()}


def loaded(engine: str, saved: str) -> tuple[Any, dict[str, float]]:
    """A saved ranker on an engine that has just been opened, and the seconds of loading it alone."""
    from haybale.engine import Engine
    from haybale.rankers import load

    opened = Engine.open(engine)
    taken: dict[str, float] = {}
    with clocked(taken):
        ranker = load(saved, opened)
    return ranker, taken


def queries_of(engine: Any, n: int) -> list[tuple[str, list[str]]]:
    """The first queries of dev and test, no text twice: id and paragraphs."""
    found: dict[str, tuple[str, list[str]]] = {}
    queries = engine.collection.queries
    for split in ("dev", "test"):
        if split in engine.collection.splits:
            for number in engine.collection.split(split).queries.tolist():
                paragraphs = queries.paragraphs_of(number)
                found.setdefault("\n".join(paragraphs), (queries.ids[number].as_py(), paragraphs))
    return list(found.values())[:n]


def one_by_one(engine: str, saved: str, n_queries: int, ranker: str) -> dict[str, Any]:
    """The first query after loading, then each of the others alone."""
    import numpy as np

    fitted, loading = loaded(engine, saved)
    asked = queries_of(fitted.engine_, n_queries)
    costs = []
    for query, paragraphs in asked:
        cost: dict[str, float] = {}
        with clocked(cost):
            run = fitted.rank({query: paragraphs})
        assert run.query_ids == [query]
        costs.append(cost)
    first, *others = costs
    wall, cpu = ([cost[what] for cost in others] for what in ("wall", "cpu"))
    warm = {"queries": len(others), "median": np.median(wall), "p99": np.percentile(wall, 99), "cpu": np.median(cpu)}
    return {"load": loading, "first": first, "warm": warm, "peak": peak_memory()}


def at_once(engine: str, saved: str, n_queries: int, ranker: str) -> dict[str, Any]:
    """All the same queries in one call, after the first one."""
    fitted, _ = loaded(engine, saved)
    asked = dict(queries_of(fitted.engine_, n_queries))
    first = next(iter(asked))
    fitted.rank({first: asked[first]})
    taken: dict[str, float] = {}
    with clocked(taken):
        fitted.rank(asked)
    return taken | {"queries": len(asked), "peak": peak_memory()}


def add(engine: str, n_documents: int) -> dict[str, Any]:
    """Add changed copies of documents to an engine all of whose indexes are open: then they can be found."""
    from haybale.engine import Engine
    from haybale.rankers import BM25

    opened = Engine.open(engine).prepare()
    documents = changed_copies(opened.collection, n_documents)
    taken: dict[str, float] = {}
    with clocked(taken):
        opened.add(documents)
    last = list(documents)[-1]
    found = BM25("document").fit(opened).rank({"added": documents[last]}, depth=5)
    assert last in [doc_id for doc_id, _ in found["added"]], "what was added is not found"
    return taken | {"documents": len(documents), "peak": peak_memory()}


def changed_copies(collection: Any, n: int, seed: int = 0) -> dict[str, list[str]]:
    """n documents, drawn at random (again, where there are fewer), with new ids and some words of others."""
    import numpy as np

    rng = np.random.default_rng(seed)
    full = np.flatnonzero(np.diff(collection.passages.doc_offsets) > 0)
    words = " ".join(collection.passages.texts[:: max(1, collection.n_passages // 200)].to_pylist()).split()
    made = {}
    for copy, document in enumerate(rng.choice(full, size=n, replace=n > len(full)).tolist()):
        start, end = collection.passages.doc_offsets[document : document + 2].tolist()
        passages = [text.split() for text in collection.passages.texts[start:end].to_pylist()]
        for passage in passages:
            for place in rng.integers(max(1, len(passage)), size=WORDS).tolist():
                passage[place : place + 1] = [words[rng.integers(len(words))]]
        made[f"added-{copy}"] = [" ".join(passage) for passage in passages]
    return made


def effectiveness(collection: str, what: str, share: float = SHARE) -> dict[str, Any]:
    """Measures on dev: of an engine built on everything, or on a part of the documents and grown by the others."""
    import numpy as np

    from haybale.collections import open_collection
    from haybale.engine import Engine
    from haybale.evaluation import averages, evaluate
    from haybale.rankers import Batch, parse
    from haybale.retrieval.run import DEPTH

    whole = open_collection(collection)
    if what == "at once":
        engine = Engine(whole, encoder="tfidf").prepare()
    else:
        order = np.random.default_rng(0).permutation(whole.n_documents)
        later = max(1, round(share * len(order)))
        engine = Engine(whole.take(np.sort(order[later:])), encoder="tfidf").prepare()
        engine.add(whole.take(np.sort(order[:later])))
    queries = whole.queries.take(whole.split("dev").queries)
    # Documents have other numbers where some were added, a query's own too.
    has = queries.own >= 0
    own = np.full(len(queries), -1)
    own[has] = engine.collection.document_numbers(whole.doc_ids.take(queries.own[has]).to_pylist())
    batch = Batch(engine, replace(queries, own=own))
    qrels = whole.qrels_frame("dev")
    runs = {name: batch.run(parse(name), DEPTH) for name in MEASURED}
    measures = {name: averages(evaluate(run, qrels, MEASURES)) for name, run in runs.items()}
    return {"documents": engine.collection.n_documents, "rankers": measures}


STEPS: dict[str, Ask] = {
    "build": build,
    "open": open_engine,
    "fit": fit,
    "one_by_one": one_by_one,
    "at_once": at_once,
    "add": add,
    "effectiveness": effectiveness,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a query without a hit is no news here
    main()
