"""The fusion beside gradient-boosted trees: LightGBM's LambdaMART, from the same features of the same training queries.

    python benchmarks/bench_fusion.py COLLECTION … [--results benchmarks/results]

`pip install lightgbm`, which haybale does not need. All rankers of `learned` are asked once, for training queries as if
they had not seen them; what learns is a line of weights (`LearnedFusion`, with the share of the loss for new queries
that `Learned` chose, or 0), or trees. Leaves, rows of a leaf and the number of trees are chosen by the folds that
`Learned` has, by nDCG@10. Every collection writes fusion-NAME.json; the page, fusion.md, is of all that are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from bench_serving import clocked
from best_pages import FUSED
from effectiveness import SHARES, SPLITS, Space, by_relevant, parameters, tuned_bm25
from provenance import cell, cell4, options, provenance, shown, table, write_page

from haybale import LearnedFusion, evaluate, open_collection, parse
from haybale.evaluation import paired_tests
from haybale.rankers import set_all
from haybale.rankers.judged_pools import JudgedPools, pool_run, run_features
from haybale.rankers.new_queries import unseen_queries
from haybale.rankers.out_of_fold import positions
from haybale.retrieval.fusion import pooled
from haybale.retrieval.hits import Ints
from haybale.timing import record_timings
from haybale.vectors import Floats

LEAVES, ROWS, STEP, MOST, PATIENCE = (4, 8, 16, 32), (20, 200), 0.05, 1000, 50
FIXED = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "learning_rate": STEP, "num_threads": 1}
FIXED |= {"seed": 0, "deterministic": True, "force_row_wise": True, "verbosity": -1, "feature_pre_filter": False}
LEARNED, PLAIN, TREES, SAME = "learned", "learned, share 0", "trees", "trees, share as learned's"
Learned = tuple[str, float, Callable[[Floats], Any]]  # what was chosen, seconds to learn it, the scores of features


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders; none: only the page is made")
    a = parser.parse_args()
    for name in a.collections:
        record = measured(name)
        record["provenance"] = provenance(shown("bench_fusion.py", [name]), more=("lightgbm",))
        text = json.dumps(record, ensure_ascii=False) + "\n"
        a.results.mkdir(parents=True, exist_ok=True)
        (a.results / f"fusion-{record['collection']}.json").write_text(text, encoding="utf-8")
    write_page(a.results / "fusion.md", page(a.results))


def measured(name: str) -> dict[str, Any]:
    """nDCG@10 of every query of dev and test, by system; seconds of learning and of scoring."""
    collection = open_collection(name, missing_judgements="skip")
    with record_timings(lambda stage, taken: print(f"  {stage} {taken:.1f} s", flush=True)):
        space = Space(collection, "tfidf", 1)
        [ranker] = set_all([parse(FUSED)], parameters(tuned_bm25(collection)))
        fitted: Any = ranker.fitted(space.training)
        judged, fold = training_pools(space, fitted)
    share = fitted.fusion_.unseen_share
    ways: dict[str, Callable[[], Learned]] = {
        LEARNED: lambda: line(judged, share),
        PLAIN: lambda: line(judged, 0.0),
        TREES: lambda: trees(judged, fold, 0.0),
        SAME: lambda: trees(judged, fold, share) if share else found[TREES],
    }
    found: dict[str, Learned] = {}
    for system, learn in ways.items():
        found[system] = learn()
        print(system, *found[system][:2], flush=True)
    values: dict[str, dict[str, list[float]]] = {}
    scoring = dict.fromkeys(found, 0.0)
    for split in SPLITS:
        batch, qrels = space.batches[split], collection.qrels_frame(split)
        runs = {str(each): each.run(batch, fitted.depth) for each in fitted.rankers_}
        pool = pooled([runs[part] for part in judged.runs], batch.ids, fitted.depth)
        features = run_features(pool, judged.runs, judged.trained)
        # By the names without the values that were set.
        ranked = {str(short): run for short, run in zip(parse(FUSED).nested(), runs.values(), strict=True)}
        for system, (_, _, scores) in found.items():
            with clocked() as taken:
                of = scores(features)
            ranked[system], scoring[system] = pool_run(pool, of), scoring[system] + taken["cpu"]
        tables = {system: evaluate(run, qrels, ["nDCG@10"])["nDCG@10"] for system, run in ranked.items()}
        values[split] = {system: each.reindex(batch.ids).round(6).tolist() for system, each in tables.items()}
    asked = sum(len(batch) for batch in space.batches.values())
    return {
        "collection": collection.name,
        "values": values,
        "new": {split: by_relevant(collection, split)["none seen"].tolist() for split in SPLITS},
        "training": {"queries": len(fold), "rows": len(judged.pool), "features": len(judged.features)},
        "chosen": {system: what for system, (what, _, _) in found.items()},
        "seconds": {system: taken for system, (_, taken, _) in found.items()},
        "ms a query": {system: 1e3 * taken / asked for system, taken in scoring.items()},
    }


def training_pools(space: Space, fitted: Any) -> tuple[JudgedPools, Ints]:
    """The pools that the fitted ``learned`` had its weights from, and the fold of each query."""
    training = space.training
    rows = positions(training.batch.ids, fitted.query_ids_)
    batch = training.batch.take(rows)
    runs = {str(ranker): ranker.run_out_of_fold(batch, fitted.depth) for ranker in fitted.rankers_}
    new = unseen_queries(training.relevant, training.batch.queries.groups)[rows]
    unseen = [query for query, is_new in zip(batch.ids, new, strict=True) if is_new]
    qrels = batch.engine.collection.qrels_frame("train")
    judged = JudgedPools.of(runs, qrels, fitted.depth, trained=fitted.fusion_.trained_, unseen=unseen)
    return judged, fitted.fold_of_[positions(fitted.query_ids_, judged.pool.query_ids)]


def line(judged: JudgedPools, share: float) -> Learned:
    """A line of weights."""
    with clocked() as taken:
        fusion = LearnedFusion(unseen_share=share).learn(judged)
    return f"share {share:g}", taken["cpu"], fusion.scores


def trees(judged: JudgedPools, fold: Ints, share: float) -> Learned:
    """LambdaMART; ``share`` of the loss is for new queries, whose documents are weighted."""
    import lightgbm

    query, met = judged.pool.query, np.bincount(judged.pool.query[judged.is_relevant], minlength=len(fold)) > 0
    assert (np.diff(query) >= 0).all(), "documents of a query are side by side"
    unseen = met & judged.unseen
    weight = (1 - share) + share * unseen * met.sum() / max(1, unseen.sum())  # of a query; 1 on the average
    data = lightgbm.Dataset(
        judged.features.T,
        judged.is_relevant.astype(np.int32),
        group=np.bincount(query, minlength=len(fold)),
        weight=weight[query],
        params=FIXED,
        free_raw_data=False,
    )
    folds = [(np.flatnonzero(fold[query] != each), np.flatnonzero(fold[query] == each)) for each in np.unique(fold)]
    tried = []
    for leaves, rows in product(LEAVES, ROWS):
        settings = FIXED | {"num_leaves": leaves, "min_data_in_leaf": rows}
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        of = lightgbm.cv(settings, data, MOST, folds=folds, callbacks=[stop])["valid ndcg@10-mean"]
        tried.append((max(of), settings, len(of)))
    _, settings, n = max(tried, key=lambda each: each[0])
    with clocked() as taken:
        model = lightgbm.train(settings, data, n)
    what = f"{n} trees of {settings['num_leaves']} leaves, {settings['min_data_in_leaf']} rows at least"
    return what, taken["cpu"], lambda features: model.predict(features.T, num_threads=1)


def page(folder: Path) -> list[str]:
    """The lines of `fusion.md`, of every `fusion-*.json`."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("fusion-*.json"))]
    lines = [
        "# Weights or trees",
        "",
        "`learned` fuses by a line of weights over the features of its pools: level, rank and first of each ranker,",
        "and the score of those that learn. Here LightGBM's LambdaMART has the same: features, training queries (3,000",
        "at most, ranked as new ones are), pools of the first 100 documents of each ranker, and folds, by which leaves",
        f"({', '.join(map(str, LEAVES))}), the least rows of a leaf ({', '.join(map(str, ROWS))}) and the number of",
        f"trees (up to {MOST:,}, at a rate of {STEP}) are chosen; *share as learned's*: new queries have the same",
        "share of its loss. The rankers are those of the policy of [best.md](best.md), BM25 tuned on dev, without a",
        "neural space. nDCG@10; *best part*: the ranker among those fused that is best on dev; *new*: test queries of",
        "whose relevant documents none was relevant in training; differences: learned less trees, on test, with the p",
        "of paired tests (the larger of two), not corrected. Seconds of one core, to learn once with what was chosen;",
        f"to choose it, {len(SHARES)} shares or {len(LEAVES) * len(ROWS)} settings are learned in each of 5 folds.",
    ]
    titles = "best part", LEARNED, PLAIN, TREES, SAME
    rows: list[list[Any]] = []
    differences: list[list[Any]] = []
    costs: list[list[Any]] = []
    for record in records:
        name, of = record["collection"], record["values"]
        parts = [part for part in of["dev"] if part not in titles]
        best = max(parts, key=lambda part: np.nanmean(of["dev"][part]))
        for split, group in (("dev", "all"), ("test", "all"), ("test", "new")):
            new = np.array(record["new"][split])
            members = new if group == "new" else np.ones_like(new)
            if not members.any():
                continue
            values = {title: np.array(of[split][best if title == "best part" else title])[members] for title in titles}
            judged = ~np.isnan(values[LEARNED])
            means = [float(each[judged].mean()) for each in values.values()]
            rows.append([name, f"{split}, {group}", int(judged.sum()), best, *means])
            if split == "test":
                tests = [paired_tests(values[LEARNED][judged], values[other][judged]) for other in (TREES, SAME)]
                shown_ = [f"{found.difference:+.4f} (p {found.p:.2g})" for found in tests]
                differences.append([name, group, int(judged.sum()), *shown_])
        counts, seconds = record["training"], record["seconds"]
        taken = [seconds[system] for system in (LEARNED, TREES)]
        each = [record["ms a query"][system] for system in (LEARNED, TREES)]
        costs.append([name, counts["queries"], counts["rows"], *taken, *each, record["chosen"][TREES]])
    lines += table("collection|queries|number|which|best part|learned|share 0|trees|share as learned's", rows, 2, cell4)
    lines += ["", "## Learned less trees, test"]
    lines += table("collection|queries|number|trees|trees, share as learned's", differences, 2)
    lines += ["", "## What it takes"]
    columns = "collection|training queries|documents|learned, s|trees, s|ms a query|trees, ms a query|trees"
    lines += [*table(columns, costs, show=cell), ""]
    return [*lines, *(record["provenance"] for record in records)]


if __name__ == "__main__":
    main()
