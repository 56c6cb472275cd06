"""What the rows of `explore_ensemble.py` are measured by: out of bag, on dev, alone and beside cosines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from explore_fits import PARTS, Benches, branch, runs_of
from explore_variations import Variation

from haybale.ensemble import LearnedFusion, novel_queries
from haybale.evaluation import evaluate
from haybale.experiments.rankers import run_of
from haybale.experiments.workbench import TRAIN_SAMPLE, Workbench
from haybale.retrieval import Run

COSINES = ("knn", "knn-doc")
MEASURES = ("MRR@10", "nDCG@10")
Values = dict[str, np.ndarray]  # (n_queries,) of dev by column, and of the training queries drawn


def values_of(benches: Benches, variation: Variation) -> tuple[Values, float | None]:
    """The columns of a row, query by query, and the seconds of the fit."""
    bench = benches.of(variation)
    runs, seconds = runs_of(benches, variation)
    values = {f"memory {name}": found for name, found in measured(bench, runs["dev"], "dev").items()}
    if variation.out_of_bag:
        values["out of bag MRR@10"] = measured(bench, runs[TRAIN_SAMPLE], TRAIN_SAMPLE)["MRR@10"]
        fused = fused_with_cosines(bench, variation, runs)
        values |= {f"fused {name}": found for name, found in measured(bench, fused, "dev").items()}
    return values, seconds


def fused_with_cosines(bench: Workbench, variation: Variation, runs: dict[str, Run]) -> Run:
    """``learned(knn,knn-doc,…)`` with these runs of the memory."""
    for name in COSINES:
        for part in PARTS:
            run_of(bench, name, part)  # kept for all that follow
    other = branch(bench)
    for part, run in runs.items():
        other.made["run", variation.ranker, part] = rescaled(run, variation.fusion)
    if variation.fusion == "level":
        return by_place(other, variation.ranker)
    return run_of(other, f"learned({','.join(COSINES)},{variation.ranker})", "dev")


def rescaled(run: Run, how: str) -> Run:
    """The same rankings with other scores."""
    if how not in ("divided", "centred"):
        return run
    rows, _, ids, scores = run.flat()
    if how == "divided":  # the size of the best, so that no order turns round where even that is below 0
        best = np.zeros(len(run.query_ids))
        firsts = np.unique(rows, return_index=True)
        best[firsts[0]] = np.abs(scores[firsts[1]])
        return Run(run.query_ids, rows, ids, scores / np.maximum(best, 1e-6)[rows])
    counts = np.bincount(rows, minlength=len(run.query_ids))
    means = np.bincount(rows, scores, minlength=len(run.query_ids)) / np.maximum(counts, 1)
    return Run(run.query_ids, rows, ids, scores - means[rows])


def by_place(bench: Workbench, ranker: str) -> Run:
    """The learned fusion without the feature ``score``: nothing tells it that the ranker is a memory."""
    names, settings = (*COSINES, ranker), bench.settings
    relevant, places = bench.collection.relevant_ids("train"), bench.places(TRAIN_SAMPLE)
    ids, new = bench.query_ids(TRAIN_SAMPLE), novel_queries(relevant)[places]
    fusion = LearnedFusion(depth=settings.fusion_depth, cold=settings.cold).fit(
        {name: run_of(bench, name, TRAIN_SAMPLE) for name in names},
        {query: relevant[place] for query, place in zip(ids, places, strict=True)},
        novel=[query for query, novel in zip(ids, new, strict=True) if novel],
    )
    return fusion.fuse({name: run_of(bench, name, "dev") for name in names})


def references(bench: Workbench, only: list[str]) -> dict[str, Values]:
    """Rankers without an ensemble, on dev."""
    return {name: measured(bench, run_of(bench, name, "dev"), "dev") for name in only}


def measured(bench: Workbench, run: Run, part: str) -> Values:
    """(n_queries,) of each measure, in the order of the part's queries that have a relevant document."""
    ids = bench.query_ids(part)
    qrels = bench.collection.qrels_frame("train" if part == TRAIN_SAMPLE else part)
    table = evaluate(run.top(10), qrels[qrels["query_id"].isin(set(ids))], MEASURES)
    table = table.reindex([query for query in ids if query in table.index])
    return {name: table[name].to_numpy() for name in MEASURES}


def unseen(bench: Workbench) -> np.ndarray:
    """Which of the dev queries that :func:`measured` counts have no relevant document that a training query had."""
    known = {doc for ids in bench.collection.relevant_ids("train") for doc in ids}
    relevant = pd.Series(bench.collection.relevant_ids("dev"), index=bench.query_ids("dev"))
    return np.array([not known.intersection(ids) for ids in relevant if ids])


def row_of(variation: Variation, values: Values, seconds: float | None, new: np.ndarray, against: Values | None) -> Any:
    """Means; ``differs``: the columns further from the default than two standard errors of the differences."""
    row: dict[str, Any] = {"group": variation.group, "label": variation.label, "seconds": seconds}
    row |= {name: float(found.mean()) for name, found in values.items()}
    for kind in ("memory", "fused"):
        if f"{kind} MRR@10" in values and new.any():
            row[f"{kind} MRR@10, none seen"] = float(values[f"{kind} MRR@10"][new].mean())
    row["differs"] = [] if against is None else [name for name in values if differs(values[name], against[name])]
    return row


def differs(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether the mean difference of paired values is larger than two of its standard errors."""
    difference = ours - theirs
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.inf
    return bool(abs(difference.mean()) > 2 * error)
