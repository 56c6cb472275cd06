"""The rankers on every collection: tuned on train and dev, reported on dev and test, end to end.

    python benchmarks/effectiveness.py pydocs FOLDER … [--results benchmarks/results]

One policy for all collections: BM25's k1 and b by a grid on dev, everything else as the defaults are. Both baselines,
passage and document, are tuned; the stronger of them on dev is what rankers are compared with. Every collection runs in
a process of its own and writes `effectiveness-NAME.json`; the pages are made from these by effectiveness_pages.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import effectiveness_pages
import strata
from provenance import commit, peak_memory, processor, shown

from haybale.collections import Collection, open_collection
from haybale.collections.collection import pick
from haybale.evaluation import evaluate, results
from haybale.experiments import Settings, tune_bm25
from haybale.experiments.comparison import environment
from haybale.experiments.rankers import fit_fusion, parts_of, run_of
from haybale.experiments.workbench import Workbench
from haybale.folders import replace_json
from haybale.retrieval import Run

SEARCHES = "bm25,bm25-doc,knn,knn-doc,parm-rrf,parm-vrrf"
BEST = f"learned({SEARCHES},knn-queries,svr-doc)"
ALONE = "learned(knn,knn-doc,svr-doc)"  # nothing but the ensemble and cosines of the vectors it is trained on
RANKERS = (  # over TF-IDF
    *("bm25", "bm25-doc", "knn", "knn-firstp", "knn-doc", "bm25-parm-rrf", "parm-rrf", "parm-vrrf", "knn-queries"),
    *("svr", "svr-blend", "svr-doc", ALONE, "rrf(bm25-doc,parm-vrrf)", "rrf(bm25-doc,svr-blend)"),
    *(f"learned({SEARCHES})", f"learned({SEARCHES},knn-queries)", f"learned({SEARCHES},svr-doc)", BEST),
)
DENSE = ("knn", "knn-doc", "svr-paper", "svr-doc")  # over LSA
PAPER_ROWS = 8000  # of a bag of svr-paper: on gesetze its bags would have 51,000, and take most of two hours' half
COLD = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
SPLITS = ("dev", "test")
STRATA = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-vrrf", "knn-queries", "svr-doc", ALONE, BEST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--runs", type=Path, help="also write the runs of the test split, a folder a collection")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    if len(arguments.collections) == 1:
        record = measured(arguments.collections[0], arguments.runs)
        path = arguments.results / f"effectiveness-{record['collection']['name']}.json"
        replace_json(path, record)
        return
    for name in arguments.collections:
        more = [] if arguments.runs is None else ["--runs", str(arguments.runs)]
        subprocess.run([sys.executable, __file__, name, "--results", str(arguments.results), *more], check=True)
    effectiveness_pages.write(arguments.results)


def measured(name: str, runs_folder: Path | None) -> dict[str, Any]:
    start = time.perf_counter()
    seconds: dict[str, float] = {}

    def report(stage: str, taken: float) -> None:
        seconds[stage] = taken
        print(f"  {time.perf_counter() - start:6.0f} s  {stage} {taken:.1f} s", flush=True)

    collection = open_collection(name)
    began = time.perf_counter()
    tuned = {unit: tune_bm25(collection, unit) for unit in ("passage", "document")}
    report("tune BM25", time.perf_counter() - began)
    chosen = Settings(
        split="test",
        encoder="tfidf",
        rankers=RANKERS,
        k1=tuned["passage"].k1,
        b=tuned["passage"].b,
        k1_document=tuned["document"].k1,
        b_document=tuned["document"].b,
        baseline="bm25-doc" if tuned["document"].value > tuned["passage"].value else "bm25",
    )
    bench = Workbench(collection, chosen, report)
    runs: dict[str, dict[str, Run]] = {split: {} for split in SPLITS}
    for ranker in RANKERS:
        for split in SPLITS:
            runs[split][ranker] = run_of(bench, ranker, split)
    facts = dict(bench.facts)
    plain = Workbench(collection, Settings(split="test", encoder="tfidf"), report)
    dense = Workbench(collection, replace(chosen, encoder="lsa", rankers=DENSE, rows_per_bag=None), report)
    for split in SPLITS:
        for ranker in ("bm25", "bm25-doc"):
            runs[split][f"{ranker}, default k1 and b"] = run_of(plain, ranker, split)
    del plain
    tradeoff = cold_tradeoff(bench, runs["dev"])
    bench.made.clear()  # its hits are large, and done with
    for ranker in DENSE:
        if ranker == "svr-paper":
            dense.settings = replace(dense.settings, rows_per_bag=PAPER_ROWS)
        for split in SPLITS:
            runs[split][f"{ranker} over LSA"] = run_of(dense, ranker, split)
    values = {
        split: {n: evaluate(run, collection.qrels_frame(split)) for n, run in of.items()} for split, of in runs.items()
    }
    record = {
        "collection": {
            "name": collection.name,
            "documents": collection.n_documents,
            "passages": collection.n_passages,
            "queries": {split: len(part.queries) for split, part in collection.splits.items()},
        },
        "baseline": chosen.baseline,
        "best": BEST,
        "alone": ALONE,
        "bm25": {unit: found.to_dict() for unit, found in tuned.items()},
        "rankers": {split: results(table, chosen.baseline).to_dict() for split, table in values.items()},
        "n_queries": {split: len(next(iter(table.values()))) for split, table in values.items()},
        "strata": {split: by_group(collection, name, split, values[split]) for split in SPLITS},
        "cold": tradeoff,
        "facts": facts | {f"{key} over LSA": value for key, value in dense.facts.items()},
        "seconds": seconds | {"all": time.perf_counter() - start},
        "peak memory": peak_memory(),
        "made": {
            "command": shown("effectiveness.py", [name]),
            "commit": commit(),
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "processor": processor(),
            "environment": environment(),
        },
    }
    if runs_folder is not None:
        write_runs(runs_folder / collection.name, runs["test"])
    print(f"{collection.name}: {time.perf_counter() - start:.0f} s, {peak_memory() / 2**30:.1f} GiB", flush=True)
    return record


def cold_tradeoff(bench: Workbench, dev: dict[str, Run]) -> list[dict[str, Any]]:
    """The best ranker with other shares of the loss for new queries, on dev: all queries, and those none of whose
    relevant documents was relevant in training."""
    collection, settings = bench.collection, bench.settings
    names = parts_of(BEST) or []
    unseen = strata.by_relevant(collection, "dev")["none seen"]
    rows = []
    for cold in COLD:
        fusion, _ = fit_fusion(bench, names, cold)
        fused = fusion.fuse({name: dev[name] for name in names}).top(settings.depth)
        table = ordered(evaluate(fused, collection.qrels_frame("dev")), bench.query_ids("dev"))
        group = unseen & table["MRR@10"].notna().to_numpy()
        rows.append(
            {"cold": cold}
            | {m: float(table[m].mean()) for m in ("MRR@10", "nDCG@10", "Recall@100")}
            | {"none seen": float(table["MRR@10"][group].mean())}
        )
    return rows


def by_group(collection: Collection, name: str, split: str, values: dict[str, Any]) -> dict[str, Any]:
    """MRR@10, nDCG@10 and Recall@100 of some rankers for every group of queries, and how many it has."""
    queries = collection.split(split).queries
    ids = pick(collection.queries.ids, queries)
    groups = strata.by_relevant(collection, split)
    if name != "pydocs":
        groups |= strata.by_source(Path(name), ids, split)
    found: dict[str, Any] = {}
    for group, members in groups.items():
        found[group] = {"queries": int(members.sum()), "rankers": {}}
        for ranker in STRATA:
            table = ordered(values[ranker], ids)[members]
            found[group]["rankers"][ranker] = {
                m: float(table[m].mean()) if len(table) else None for m in ("MRR@10", "nDCG@10", "Recall@100")
            }
    return found


def ordered(table: Any, ids: list[str]) -> Any:
    return table.reindex(ids)


def write_runs(folder: Path, runs: dict[str, Run]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        tag = "".join(c if c.isalnum() else "-" for c in name).strip("-")
        run.top(100).to_trec(folder / f"{tag}.trec", tag=tag)


if __name__ == "__main__":
    main()
