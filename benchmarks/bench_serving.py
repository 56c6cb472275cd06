"""What an engine costs to build, keep, open, ask and grow: seconds, memory and disk, ranker by ranker.

    python benchmarks/bench_serving.py pydocs FOLDER … [--queries 500] [--folder FOLDER] [--results benchmarks/results]

Over TF-IDF, everything else as the defaults are. Every measurement has a process of its own. Files were written shortly
before, so they are read from the page cache, as on a server that has been up for a while. Writes serving.json, where a
collection that is measured again replaces what was there of it, and serving.md; without a collection, the page anew.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

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
)

import haybale  # which imports nothing until it is asked for a name: what that costs is measured
from haybale.timing import record_timings

RANKERS = ("bm25-doc", "parm-vrrf", "svr", "learned")
MEASURED = ("bm25-doc", "knn-doc")  # after adding, against an engine that was built on everything
MEASURES = ("nDCG@10", "Recall@100")
OPENED = 5  # processes that open the engine
ADDED = 1000  # documents
SHARE = 0.1  # of the documents, added to an engine that was built on the others
PARTS = {
    "collection": "texts, queries, judgements",
    "pieces": "passages cut into pieces",
    "encoder": "encoder",
    "bm25-passage": "BM25, passages",
    "bm25-document": "BM25, documents",
    "passages": "vectors of passages",
    "documents": "vectors of documents",
}
Record = dict[str, Any]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders")
    parser.add_argument("--queries", type=int, default=500, help="asked one by one, at most")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where to work")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # one measurement, in this process
    a = parser.parse_args()
    if a.step:
        run_step(STEPS, a.step)
        return
    path = a.results / "serving.json"
    records = read_json(path, {})
    for name in a.collections:
        with tempfile.TemporaryDirectory(prefix="serving-", dir=a.folder) as folder:
            record = measured(name, Path(folder), a.queries)
        more = ("scipy", "pyarrow", "safetensors", "bm25s")
        record["provenance"] = provenance(shown("bench_serving.py", [name]), more=more)
        records[record["collection"]["name"]] = record
        write_json(path, records, indent=2)
    path.with_suffix(".md").write_text(page(records), encoding="utf-8")


def in_own_process(step: str, given: Record) -> Record:
    return in_a_process(__file__, step, given)


def measured(name: str, folder: Path, n_queries: int, run: Callable[[str, Record], Record] = in_own_process) -> Record:
    """Measure everything of one collection; the folder is a new one, and ``run`` does a step of :data:`STEPS`."""

    def ask(step: str, **given: Any) -> Record:
        print(f"  {step}", *(value for key, value in given.items() if key in ("ranker", "what")), flush=True)
        return run(step, given)

    engine, grown = folder / "engine", folder / "grown"
    record = ask("build", collection=name, engine=engine)
    record["open"] = [ask("open", engine=engine) for _ in range(OPENED)]
    record["rankers"] = {}
    for ranker in RANKERS:
        saved = folder / ranker
        fitting = ask("fit", engine=engine, ranker=ranker, saved=saved)
        found = {"fit": fitting, "disk": sum(folder_sizes(saved).values())}
        record["rankers"][ranker] = found | ask("rank", engine=engine, saved=saved, n_queries=n_queries)
    record["disk"] = folder_sizes(engine)
    shutil.copytree(engine, grown)
    record["add"] = ask("add", engine=grown, n_documents=ADDED)
    record["open after adding"] = [ask("open", engine=grown) for _ in range(OPENED)]
    for ranker, found in record["rankers"].items():
        found["after adding"] = ask("rank", engine=grown, saved=folder / ranker, n_queries=10)["one by one"]
    record["disk after adding"] = folder_sizes(grown)
    record["approximate"] = {what: ask("effectiveness", collection=name, what=what) for what in ("at once", "grown")}
    return record


def build(collection: str, engine: str) -> Record:
    """An engine with all its indexes, from a collection's files to a folder."""
    with clocked() as taken, record_timings() as stages:
        found = haybale.Engine.build(collection, engine, encoder="tfidf").prepare().collection
    counts = {"name": found.name, "documents": found.n_documents, "passages": found.n_passages}
    return {"collection": counts, "build": taken | {"stages": stages.seconds}}


def open_engine(engine: str) -> Record:
    """Importing apart from opening."""
    with clocked() as imported:
        kind = haybale.Engine
    with clocked() as opened:
        kind.open(engine)
    return opened | {"import": imported}


def fit(engine: str, ranker: str, saved: str) -> Record:
    """Fit on the training queries and save; the indexes are opened within."""
    opened, unfitted = haybale.Engine.open(engine), haybale.parse(ranker)
    with clocked() as taken:
        fitted = unfitted.fit(opened)
    fitted.save(saved)
    return taken


def rank(engine: str, saved: str, n_queries: int) -> Record:
    """A saved ranker on an engine just opened: the first query, each of the others alone, then all in one call."""
    opened, load = haybale.Engine.open(engine), haybale.load
    with clocked() as loading:
        ranker = load(saved, opened)
    asked, costs = queries_of(opened.collection, n_queries), []
    for query, paragraphs in asked.items():
        with clocked() as taken:
            ranker.rank({query: paragraphs})
        costs.append(taken)
    first, *others = costs
    wall, cpu = ([cost[what] for cost in others] for what in ("wall", "cpu"))
    p99 = statistics.quantiles(wall, n=100, method="inclusive")[98]
    warm = {"queries": len(wall), "median": statistics.median(wall), "p99": p99, "cpu": statistics.median(cpu)}
    with clocked() as taken:
        ranker.rank(asked)
    return {
        "one by one": {"load": loading, "first": first, "warm": warm, "peak": costs[-1]["peak"]},
        "at once": taken | {"queries": len(asked)},
    }


def queries_of(collection: Any, n: int) -> dict[str, list[str]]:
    """The first queries of dev and test, no text twice: id to paragraphs."""
    found: dict[str, tuple[str, list[str]]] = {}
    queries, splits = collection.queries, [collection.splits[s] for s in ("dev", "test") if s in collection.splits]
    for number in (number for split in splits for number in split.queries.tolist()):
        paragraphs = queries.paragraphs_of(number)
        found.setdefault("\n".join(paragraphs), (queries.ids[number].as_py(), paragraphs))
    return dict(list(found.values())[:n])


def add(engine: str, n_documents: int) -> Record:
    """Add copies of documents, a word of its own in every passage, to an engine all of whose indexes are open."""
    opened = haybale.Engine.open(engine).prepare()
    passages, documents = opened.collection.passages, {}
    for copy, document in zip(range(n_documents), cycle(range(opened.collection.n_documents)), strict=False):
        texts = passages.texts[slice(*passages.doc_offsets[document : document + 2].tolist())].to_pylist()
        documents[f"added-{copy}"] = [f"{text} added{copy}" for text in texts] or ["nothing"]
    with clocked() as taken:
        opened.add(documents)
    last = list(documents)[-1]
    found = haybale.BM25("document").fit(opened).rank({"added": documents[last]}, depth=5)
    assert last in [doc_id for doc_id, _ in found["added"]], "what was added is not found"
    return taken | {"documents": len(documents)}


def effectiveness(collection: str, what: str, share: float = SHARE) -> Record:
    """Measures on dev: of an engine built on everything, or on a part of the documents and grown by the others."""
    import numpy as np

    from haybale.evaluation import averages
    from haybale.rankers import QueryBatch

    whole = haybale.open_collection(collection)
    order = np.random.default_rng(0).permutation(whole.n_documents)
    later = 0 if what == "at once" else max(1, round(share * len(order)))
    engine = haybale.Engine(whole.take(np.sort(order[later:])) if later else whole, encoder="tfidf").prepare()
    if later:
        engine.add(whole.take(np.sort(order[:later])))
    queries = whole.queries.take(whole.split("dev").queries)
    # Documents have other numbers where some were added, a query's own too.
    has, own = queries.own >= 0, np.full(len(queries), -1)
    own[has] = engine.collection.document_numbers(whole.doc_ids.take(queries.own[has]).to_pylist())
    batch, qrels = QueryBatch(engine, replace(queries, own=own)), whole.qrels_frame("dev")
    runs = {name: haybale.parse(name).run(batch, 1000) for name in MEASURED}
    measures = {name: averages(haybale.evaluate(run, qrels, MEASURES)) for name, run in runs.items()}
    return {"documents": engine.collection.n_documents, "rankers": measures}


STEPS: dict[str, Callable[..., Record]] = {step.__name__: step for step in (build, fit, rank, add, effectiveness)}
STEPS["open"] = open_engine


def page(records: dict[str, Record]) -> str:
    """What holds for all collections, then a section each."""
    lines = [
        "# What an engine costs to build, keep, open, ask and grow",
        "",
        "Vectors are TF-IDF, everything else as the defaults are; a query brings 1,000 documents. Every measurement has"
        " a process of its own, whose files are in the page cache. Seconds are by the clock, in parentheses those of"
        " all cores that computed. Memory is the most the process ever held, mapped files that it read included."
        " `first` is the first query after opening and loading, which opens the indexes it needs; `warm` are the"
        " ones after it, asked one by one.",
    ]
    for name, record in records.items():
        lines += ["", f"## {name}", "", *section(record)]
    return "\n".join([*lines, ""])


def section(record: Record) -> list[str]:
    """One collection."""
    counts, build, add, approximate = (record[key] for key in ("collection", "build", "add", "approximate"))
    stages = sorted(build["stages"].items(), key=lambda stage: -stage[1])
    named = ", ".join(f"{name} {taken:.1f}" for name, taken in stages if taken > 0.05)
    queries = next(iter(record["rankers"].values()))["at once"]["queries"]
    whole, grown = (approximate[what]["rankers"] for what in ("at once", "grown"))
    pairs = {name: [(whole[name][m], grown[name][m]) for m in measures] for name, measures in whole.items()}
    return [
        f"{counts['documents']:,} documents, {counts['passages']:,} passages.",
        "",
        "| | | |",
        "| --- | ---: | ---: |",
        f"| build, all indexes | {cost(build)} s | {mb(build['peak'])} MB of memory |",
        f"| open | {median(record['open'])} ms | after `import`, {median([o['import'] for o in record['open']])} ms |",
        f"| add {add['documents']:,} documents, all indexes open | {cost(add)} s | {mb(add['peak'])} MB of memory |",
        f"| open after that | {median(record['open after adding'])} ms | |",
        "",
        f"Building, seconds a stage: {named}.",
        *table("on disk|MB|after adding", disk(record)),
        "",
        f"{queries:,} queries of dev and test:",
        *table(
            "ranker|fit, s|saved, MB|load, ms|first, ms|warm, median, ms|99 %, ms|memory, MB|queries/s at once"
            "|memory, MB|first after adding, ms",
            (costs_of(name, found) for name, found in record["rankers"].items()),
        ),
        "",
        "What adding leaves approximate: an engine built on 90 % of the documents and grown by the others, beside one"
        f" built on all {approximate['at once']['documents']:,}, on dev. BM25 is exact; vectors are those of an encoder"
        " that has not seen what was added.",
        *table(
            "ranker|" + "|".join(f"{m}, built on all|grown|difference" for m in next(iter(whole.values()))),
            ([f"`{name}`", *(f"{a:.4f} | {b:.4f} | {b - a:+.4f}" for a, b in of)] for name, of in pairs.items()),
        ),
        "",
        record["provenance"],
    ]


def disk(record: Record) -> list[list[str]]:
    """Megabytes by part, all segments together."""
    found: list[dict[str, int]] = [{}, {}]
    for totals, key in zip(found, ("disk", "disk after adding"), strict=True):
        for path, size in record[key].items():
            part = PARTS.get(path.split("/")[-1], "other")
            totals[part] = totals.get(part, 0) + size
    parts = [part for part in (*PARTS.values(), "other") if any(part in totals for totals in found)]
    rows = [[part, *(mb(totals.get(part, 0)) for totals in found)] for part in parts]
    return [*rows, ["**all**", *(f"**{mb(sum(totals.values()))}**" for totals in found)]]


def costs_of(name: str, found: Record) -> list[str]:
    alone, batch, warm = found["one by one"], found["at once"], found["one by one"]["warm"]
    return [
        *(f"`{name}`", cost(found["fit"]), mb(found["disk"]), cost(alone["load"], 1e3), cost(alone["first"], 1e3)),
        *(cost({"wall": warm["median"], "cpu": warm["cpu"]}, 1e3), cell(1e3 * warm["p99"]), mb(alone["peak"])),
        *(f"{batch['queries'] / batch['wall']:,.0f}", mb(batch["peak"]), cost(found["after adding"]["first"], 1e3)),
    ]


def median(found: list[Record]) -> str:
    return cost({what: statistics.median(one[what] for one in found) for what in ("wall", "cpu")}, 1e3)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a query without a hit is no news here
    main()
