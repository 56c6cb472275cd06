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
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import effectiveness_pages
import strata
from provenance import commit, peak_memory, processor, shown

from haybale.collections import Collection, open_collection
from haybale.collections.collection import pick
from haybale.engine import Engine
from haybale.evaluation import evaluate, results, tune_bm25
from haybale.evaluation.comparison import environment
from haybale.folders import replace_json
from haybale.rankers import Batch, Learned, Ranker, Training, parse, set_all, set_values
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH
from haybale.stages import listening

SEARCHES = "bm25,bm25-doc,knn,knn-doc,parm-rrf,parm-vrrf"
BEST = f"learned({SEARCHES},knn-queries,svr-doc)"
ALONE = "learned(knn,knn-doc,svr-doc)"  # nothing but the ensemble and cosines of the vectors it is trained on
RANKERS = (  # over TF-IDF
    *("bm25", "bm25-doc", "knn", "knn-firstp", "knn-doc", "bm25-parm-rrf", "parm-rrf", "parm-vrrf", "knn-queries"),
    *("svr", "svr-doc", ALONE, "rrf(bm25-doc,parm-vrrf)"),
    *(f"learned({SEARCHES})", f"learned({SEARCHES},knn-queries)", f"learned({SEARCHES},svr-doc)", BEST),
)
UNTUNED = ("bm25", "bm25-doc")
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


class Space:
    """A collection under one encoder, its training queries and those of each split: rankers share their searches."""

    def __init__(self, collection: Collection, encoder: str, width: int) -> None:
        engine = Engine(collection, encoder=encoder, width=width)
        self.training = Training.of(engine)
        self.training.batch.least_depth = Learned().depth  # what is searched for others is as deep as its weights need
        queries = collection.queries
        self.batches = {split: Batch(engine, queries.take(collection.split(split).queries)) for split in SPLITS}

    def runs(self, ranker: Ranker) -> dict[str, Run]:
        """The ranker's run of each split, fitted on the training queries."""
        fitted = self.training.fitted(ranker)
        return {split: batch.run(fitted, DEPTH) for split, batch in self.batches.items()}


def measured(
    name: str, runs_folder: Path | None, *, width: int = 1024, values: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Everything of one collection; ``width`` is that of LSA, ``values`` are set in all rankers, for a trial."""
    start = time.perf_counter()

    def report(stage: str, taken: float) -> None:
        print(f"  {time.perf_counter() - start:6.0f} s  {stage} {taken:.1f} s", flush=True)

    with listening(report) as stages:
        collection = open_collection(name)
        began = time.perf_counter()
        tuned = {unit: tune_bm25(collection, unit) for unit in ("passage", "document")}
        tuning = time.perf_counter() - began
        baseline = "bm25-doc" if tuned["document"].value > tuned["passage"].value else "bm25"
        chosen = {
            f"{ranker}.{parameter}": getattr(tuned[unit], parameter)
            for ranker, unit in (("bm25", "passage"), ("bm25-doc", "document"))
            for parameter in ("k1", "b")
        }
        chosen |= values or {}
        sparse = Space(collection, "tfidf", width)
        runs: dict[str, dict[str, Run]] = {split: {} for split in SPLITS}
        facts = ranked(sparse, with_values(RANKERS, chosen), runs)
        for ranker in UNTUNED:
            for split, run in sparse.runs(parse(ranker)).items():
                runs[split][f"{ranker}, default k1 and b"] = run
        tradeoff = cold_tradeoff(collection, sparse, set_values(parse(BEST), chosen))
        del sparse  # its hits are large, and done with
        over = with_values(DENSE, chosen | {"svr-paper.rows_per_bag": PAPER_ROWS})
        facts |= ranked(Space(collection, "lsa", width), over, runs, " over LSA")
    of_rankers = {
        split: {n: evaluate(run, collection.qrels_frame(split)) for n, run in of.items()} for split, of in runs.items()
    }
    record = {
        "collection": {
            "name": collection.name,
            "documents": collection.n_documents,
            "passages": collection.n_passages,
            "queries": {split: len(part.queries) for split, part in collection.splits.items()},
        },
        "baseline": baseline,
        "best": BEST,
        "alone": ALONE,
        "bm25": {unit: found.to_dict() for unit, found in tuned.items()},
        "rankers": {split: results(table, baseline).to_dict() for split, table in of_rankers.items()},
        "n_queries": {split: len(next(iter(table.values()))) for split, table in of_rankers.items()},
        "strata": {split: by_group(collection, name, split, of_rankers[split]) for split in SPLITS},
        "cold": tradeoff,
        "facts": facts,
        "seconds": {"tune BM25": tuning} | stages.seconds | {"all": time.perf_counter() - start},
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


def with_values(names: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Ranker]:
    """Rankers by the names they have on the page, with their values set."""
    return dict(zip(names, set_all([parse(name) for name in names], values), strict=True))


def ranked(space: Space, rankers: Mapping[str, Ranker], runs: dict[str, dict[str, Run]], more: str = "") -> Any:
    """Add the rankers' runs to those of each split, and return what fitting them found, by name."""
    found = {}
    for name, ranker in rankers.items():
        for split, run in space.runs(ranker).items():
            runs[split][name + more] = run
        facts = facts_of(space.training.fitted(ranker), parse(name))
        if facts:
            found[name + more] = facts
    return found


def facts_of(fitted: Ranker, plain: Ranker) -> dict[str, Any]:
    """A ranker's facts, in which the rankers within are called as they are on the page, without their values."""
    names = {str(inner): str(short) for inner, short in zip(fitted.fitted_within(), plain.nested(), strict=False)}
    found = {}
    for key, value in fitted.facts.items():
        inner, space, feature = key.rpartition(" ")
        found[names.get(inner, inner) + space + feature] = value
    return found


def cold_tradeoff(collection: Collection, space: Space, best: Ranker) -> list[dict[str, Any]]:
    """The best ranker with other shares of the loss for new queries, on dev: all queries, and those none of whose
    relevant documents was relevant in training. Only the weights are learned anew; what is fused is shared."""
    unseen = strata.by_relevant(collection, "dev")["none seen"]
    rows = []
    for cold in COLD:
        fused = space.batches["dev"].run(space.training.fitted(set_values(best, {"cold": cold})), DEPTH)
        table = ordered(evaluate(fused, collection.qrels_frame("dev")), space.batches["dev"].ids)
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
