"""Learn fusion weights, beside LightGBM's LambdaMART from the same features of the same training queries.

    pip install lightgbm
    python benchmarks/bench_fusion.py FOLDER … [--results benchmarks/results]

The rankers of `learned` rank the training queries out of fold once; that is not measured. Measured is what learns from
these runs' features: `LearnedFusion` at the share of the loss that `learned` chose, and LambdaMART, with LightGBM's
default trees and with those that five folds choose. *With choice*: what `learned` does in all, 6 shares in 5 folds and
on all queries; and LambdaMART the same with its 8 settings. Everything measured uses one core. Peers and ours alternate
in every round of fits; the choices are made once. Every collection writes `fusion-NAME.json`, of which the page is
made; without collections only the page is made.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from effectiveness import BEST, Space
from provenance import (
    clocked,
    cost,
    made,
    measures,
    options,
    origin,
    packages,
    printed_stages,
    read_all,
    table,
    write_json,
    write_page,
)

from haybale import LearnedFusion, evaluate, open_collection, parse
from haybale.parallel import limit_threads
from haybale.rankers.models.judged_pools import JudgedPools, pool_run, run_features
from haybale.rankers.models.new_queries import unseen_queries
from haybale.retrieval.fusion import pooled

ROUNDS = 5
PACKAGES = ("numpy", "scikit-learn", "numba", "lightgbm")
LEAVES, ROWS, MOST, PATIENCE = (4, 8, 16, 32), (20, 200), 300, 30  # patience: trees without a better nDCG@10
FIXED: dict[str, Any] = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "num_threads": 1}
FIXED |= {"seed": 0, "deterministic": True, "force_row_wise": True, "verbosity": -1, "feature_pre_filter": False}
DEFAULT = FIXED | {"learning_rate": 0.1, "num_leaves": 31, "min_data_in_leaf": 20}, 100


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="folders with training and dev queries; none: only the page")
    a = parser.parse_args()
    for name in a.collections:
        record = {
            "collection": Path(name).name,
            "rows": measured(name),
            "made": made("bench_fusion.py", [name], PACKAGES),
        }
        write_json(a.results / f"fusion-{record['collection']}.json", record)
    records = read_all(a.results, "fusion")
    rows = [row for record in records for row in record["rows"]]
    origins = [
        f"- {record['collection']}: `{of['command']}`; {origin(of)}; {packages(of)}"
        for record in records
        for of in [record["made"]]
    ]
    lines = [
        "# Learning a fusion: linear weights and trees",
        "",
        "`learned` fuses eight rankers by a weighted sum of 26 features (min-max normalised score, rank and reciprocal "
        "rank of each ranker, and the score of those that learn). LightGBM's LambdaMART learns from the same features "
        "of the same documents, which were ranked for training queries out of fold; its fit includes making its data "
        f"set. Seconds by the clock, in parentheses CPU seconds, all on one core; medians of {ROUNDS} alternating "
        "rounds. Times: LambdaMART's CPU seconds over ours. With choice: choosing among 6 shares of the loss for "
        f"unseen queries, or {len(LEAVES) * len(ROWS)} settings and the number of trees, in 5 folds, and the last fit. "
        "LambdaMART's trees were chosen at a learning rate of .05, as many "
        f"as {MOST} of them.",
    ]
    columns = "collection, training queries, documents | learns by | fit, s | times | with choice, s | nDCG@10 on dev"
    write_page(
        a.results / "fusion.md", [*lines, *table(columns, rows, words=2), "", measures("bench_fusion.py"), *origins]
    )


def measured(name: str) -> list[list[Any]]:
    """Return the rows of a collection: ours, LambdaMART as it is by default, and with what folds chose."""
    import lightgbm

    with printed_stages():
        space = Space(open_collection(name, missing_judgements="skip"), "tfidf")
        fitted: Any = parse(BEST)._fitted_copy(space.training)
        judged, qrels = training_pools(space, fitted)
        batch = space.batches["dev"]
        runs = {str(each): each.run(batch, fitted.depth) for each in fitted.rankers_}
    limit_threads(1)
    fold_of, share = fitted.folds_of(judged.pool.query_ids), fitted.fusion_.unseen_share
    pool = pooled([runs[each] for each in judged.runs], batch.ids, fitted.depth)
    features = run_features(pool, judged.runs, judged.trained)
    with clocked() as choosing:
        fitted.cross_validated(judged, qrels)
    with clocked() as choosing_trees:
        chosen = best_trees(judged, fold_of)
    learned = f"`LearnedFusion`, share {share:g}"
    trees = {described(*settings): settings for settings in (DEFAULT, chosen)}
    ways: dict[str, Callable[[], Any]] = {
        # A copy forgets the best run's weights, which are learned first.
        learned: lambda: LearnedFusion(unseen_share=share).learn(replace(judged)).scores,
        **{
            title: lambda given=given: lightgbm.train(given[0], dataset(judged), given[1])
            for title, given in trees.items()
        },
    }
    taken: dict[str, list[dict[str, float]]] = {title: [] for title in ways}
    scores: dict[str, Any] = {}
    for _ in range(ROUNDS):
        for title, learn in ways.items():
            with clocked() as seconds:
                result = learn()
            taken[title].append(seconds)
            scores[title] = result(features) if title == learned else result.predict(features.T)
            print(f"  {title}: {cost(seconds)}", flush=True)
    medians = {
        t: {key: statistics.median(each[key] for each in of) for key in ("wall", "cpu")} for t, of in taken.items()
    }
    dev = space.training.batch.engine.collection.qrels_frame("dev")
    rows: list[list[Any]] = []
    about = f"{Path(name).name}, {len(judged.pool.query_ids):,}, {len(judged.pool):,}"
    for title, seconds in medians.items():
        times = f"{seconds['cpu'] / medians[learned]['cpu']:.1f}" if title != learned else ""
        choice = {learned: cost(choosing), described(*chosen): cost(choosing_trees)}.get(title, "")
        value = evaluate(pool_run(pool, np.asarray(scores[title])), dev, ["nDCG@10"])["nDCG@10"].mean()
        rows.append([about, title, cost(seconds), times, choice, f"{value:.4f}"])
        about = ""
    return rows


def training_pools(space: Space, fitted: Any) -> tuple[JudgedPools, Any]:
    """Return the pools that the fitted ``learned`` had its weights from, and the judgements."""
    training = space.training
    place = {query: row for row, query in enumerate(training.batch.ids)}
    rows = np.array([place[query] for query in fitted.query_ids_])
    batch = training.batch.take(rows)
    runs = {str(ranker): ranker.run(batch, fitted.depth, out_of_fold=True) for ranker in fitted.rankers_}
    is_unseen = unseen_queries(training.relevant, training.batch.queries.groups)[rows]
    unseen = np.array(batch.ids)[is_unseen].tolist()
    qrels = batch.engine.collection.qrels_frame("train")
    return JudgedPools.of(runs, qrels, fitted.depth, trained=fitted.fusion_.trained_, unseen=unseen), qrels


def dataset(judged: JudgedPools) -> Any:
    """Return LightGBM's form of the pools."""
    import lightgbm

    query = judged.pool.query
    assert (np.diff(query) >= 0).all(), "documents of a query are side by side"
    groups = np.bincount(query, minlength=len(judged.pool.query_ids))
    relevance = judged.is_relevant.astype(np.int32)
    return lightgbm.Dataset(judged.features.T, relevance, group=groups, params=FIXED, free_raw_data=False)


def best_trees(judged: JudgedPools, fold_of: Any) -> tuple[dict[str, Any], int]:
    """Return the settings and the number of trees with the highest nDCG@10 over folds, after a fit with them."""
    import lightgbm

    data, fold = dataset(judged), fold_of[judged.pool.query]
    folds = [(np.flatnonzero(fold != each), np.flatnonzero(fold == each)) for each in np.unique(fold)]
    tried = []
    for leaves, rows in product(LEAVES, ROWS):
        settings = FIXED | {"learning_rate": 0.05, "num_leaves": leaves, "min_data_in_leaf": rows}
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        of = lightgbm.cv(settings, data, MOST, folds=folds, callbacks=[stop])["valid ndcg@10-mean"]
        tried.append((max(of), settings, len(of)))
    _, settings, n = max(tried, key=lambda each: each[0])
    lightgbm.train(settings, data, n)
    return settings, n


def described(settings: dict[str, Any], n: int) -> str:
    chosen = "default" if (settings, n) == DEFAULT else "chosen"
    return f"LambdaMART, {chosen}: {n} trees of {settings['num_leaves']} leaves"


if __name__ == "__main__":
    main()
