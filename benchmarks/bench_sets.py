"""Measure the answers of `cut(learned)` and `cut(svr)` beside fixed depths, and how calibrated their probabilities are.

    python benchmarks/bench_sets.py FOLDER … --work WORK [--split test] [--train-queries 5000]

The engine and the trained `learned` of every collection are kept in the folder WORK, and used again. Its SVR ensemble
is the `svr` that is cut. With another split than test, results are only printed. Every collection writes
`sets-NAME.json`, of which the page and its figure are made; without collections only these are made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import (
    made,
    measures,
    options,
    origin,
    packages,
    printed_stages,
    read_all,
    split_batch,
    table,
    write_json,
    write_page,
)

from haybale import Cut, Engine, Learned, Ranker, Run, load, open_collection
from haybale.drawing import draw_lines
from haybale.evaluation import evaluate, intervals, paired_tests
from haybale.rankers import QueryBatch, Training

PACKAGES = ("numpy", "scikit-learn", "numba")
DEPTHS = range(1, 21)
OBJECTIVES = {"micro-f1": "MicroF1", "macro-f1": "SetF"}  # the objective, and the measure of its answers
MEASURES = ("MicroF1", "MicroP", "MicroR", "SetF")
TARGETS = (("precision", 0.5), ("precision", 0.8), ("recall", 0.5), ("recall", 0.8))
EDGES = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the bins of probabilities


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="folders with training and test queries; none: only the page")
    parser.add_argument("--work", type=Path, help="the folder of engines and trained rankers")
    parser.add_argument("--split", default="test")
    parser.add_argument("--train-queries", type=int, help="the largest number of training queries, drawn at random")
    a = parser.parse_args()
    for name in a.collections:
        with printed_stages():
            record = measured(name, a.work / Path(name).name, a.split, a.train_queries)
        record |= {"collection": Path(name).name, "made": made("bench_sets.py", sys.argv[1:], PACKAGES)}
        print_summary(record)
        if a.split == "test":
            write_json(a.results / f"sets-{record['collection']}.json", record)
    if a.split == "test":
        records = read_all(a.results, "sets")
        draw(records, a.results / "sets.svg")
        write_page(a.results / "sets.md", page(records))


def measured(name: str, folder: Path, split: str, n_train: int | None) -> dict[str, Any]:
    """Return what the page says about a collection."""
    engine, training, learned = trained(name, folder, n_train)
    svr = next(ranker for ranker in learned.rankers_ if ranker.name == "svr")
    batch, qrels = split_batch(engine, split), engine.collection.qrels_frame(split)
    rows = {inner.name: of_ranker(inner, training, batch, qrels) for inner in (learned, svr)}
    n_judged = int((qrels["relevance"] > 0).sum())
    sizes = {"training queries": len(training), "queries": int(qrels["query_id"].nunique()), "relevant": n_judged}
    return {"rows": rows, **sizes}


def trained(name: str, folder: Path, n_train: int | None) -> tuple[Engine, Training, Ranker]:
    """Return an engine, its training queries and the trained `learned`, from the folder or kept there."""
    if not (folder / "engine").exists():
        Engine.build(open_collection(name, missing_judgements="skip"), folder / "engine")
    engine = Engine.open(folder / "engine")
    training = Training.of(engine)
    training = training if n_train is None else training.sample(n_train)
    if not (folder / "learned").exists():
        Learned()._fitted_copy(training).save(folder / "learned")
    return engine, training, load(folder / "learned", engine)


def of_ranker(inner: Ranker, training: Training, batch: QueryBatch, qrels: pd.DataFrame) -> dict[str, Any]:
    """Return measures of the answers and of fixed depths, and bins of the probabilities."""
    run = inner.run(batch, 100)
    of_training = inner.run(training.batch, 100, out_of_fold=True)
    judged = pd.DataFrame({"query_id": training.batch.ids, "doc_id": training.relevant, "relevance": 1})
    judged = judged.explode("doc_id").dropna()
    in_training, by_depth = depth_values(of_training, judged), depth_values(run, qrels)
    record: dict[str, Any] = {"per query": float(best_depth_of_each(run, qrels))}
    for objective, measure in OBJECTIVES.items():
        cut = Cut(inner, objective=objective)._fit_on(training)
        answers, depth = cut.run(batch, 100), max(DEPTHS, key=lambda n, m=measure: in_training[n][m])
        values, fixed = evaluate(answers, qrels, MEASURES), evaluate(run.top(depth), qrels, MEASURES)
        record[objective] = {
            "values": {name: float(values[name].mean()) for name in MEASURES},
            "interval": intervals(values)[measure],
            "documents": len(answers.flat()[0]) / len(batch),
            "unanswered": int((np.bincount(answers.flat()[0], minlength=len(batch)) == 0).sum()),
            "fixed depth": depth,
            "fixed": float(fixed[measure].mean()),
            "p": paired_tests(values[measure].to_numpy(), fixed[measure].to_numpy()).p,
            "best depth": max(DEPTHS, key=lambda n, m=measure: by_depth[n][m]),
            "best": max(by_depth[n][measure] for n in DEPTHS),
            "report": cut.fit_report_,
        }
    record["bins"] = binned(cut, batch, qrels)
    for objective, target in TARGETS:
        cut = Cut(inner, objective=objective, target=target)._fit_on(training)
        values = evaluate(cut.run(batch, 100), qrels, ["MicroP", "MicroR"]).mean()
        record[f"{objective} {target:g}"] = {name: float(values[name]) for name in values.index}
    return record


def depth_values(run: Run, qrels: pd.DataFrame) -> dict[int, dict[str, float]]:
    """Return both kinds of F1 for the first documents of a run, by their number."""
    return {n: evaluate(run.top(n), qrels, list(OBJECTIVES.values())).mean().to_dict() for n in DEPTHS}


def best_depth_of_each(run: Run, qrels: pd.DataFrame) -> float:
    """Return the mean F1 of the queries, each at its own best depth."""
    return np.max([evaluate(run.top(n), qrels, ["SetF"])["SetF"].to_numpy() for n in DEPTHS], axis=0).mean()


def binned(cut: Cut, batch: QueryBatch, qrels: pd.DataFrame) -> dict[str, list[float]]:
    """Return for each bin of probabilities the number of candidates, the expected and the relevant ones; and Brier."""
    frame = cut.probabilities(batch.queries)
    pairs = set(qrels.loc[qrels["relevance"] > 0, ["query_id", "doc_id"]].itertuples(index=False, name=None))
    relevant = np.array([pair in pairs for pair in zip(frame["query_id"], frame["doc_id"], strict=True)])
    p = frame["probability"].to_numpy()
    columns, n = np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(EDGES) - 2), len(EDGES) - 1
    return {
        "candidates": np.bincount(columns, minlength=n).tolist(),
        "expected": np.bincount(columns, p, n).tolist(),
        "relevant": np.bincount(columns, relevant, n).tolist(),
        "Brier": [float(((p - relevant) ** 2).mean())],
    }


def print_summary(record: Mapping[str, Any]) -> None:
    for ranker, row in record["rows"].items():
        for objective, measure in OBJECTIVES.items():
            of = row[objective]
            value, fixed = of["values"][measure], of["fixed"]
            gain = f"{fixed:.4f} -> {value:.4f} {value / fixed - 1:+.1%}, best {of['best']:.4f}"
            print(record["collection"], ranker, objective, of["report"]["model"], gain)


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw the share of relevant candidates over the mean probability of each bin."""
    curves: dict[str, Any] = {"equal": (np.array([0.005, 1.0]), np.array([0.005, 1.0]))}
    for record in records:
        bins = {name: np.array(values) for name, values in record["rows"]["learned"]["bins"].items()}
        kept = bins["candidates"] >= 20
        n = bins["candidates"][kept]
        curves[record["collection"]] = bins["expected"][kept] / n, bins["relevant"][kept] / n
    draw_lines(curves, x_label="mean probability", y_label="share that is relevant", log_x=False, path=path)


TEXT = """
`cut(RANKER)` answers a query with the documents of a ranking that are probably relevant. *Fixed depth* answers every
query with equally many documents: the number with the highest measure on the training queries, ranked out of fold.
*Best depth* is the fixed depth with the highest measure on the test queries themselves, and *each query's depth* gives
each query the depth that is best for it; nobody knows these before. Engines are TF-IDF, rankers have their defaults.
Features, models and rules were chosen on training queries and dev; test was opened once. p: paired tests over queries.
""".strip()
MICRO = """
One threshold for all queries; a query may get no answer. The interval is of the bootstrap over queries.
""".strip()
CALIBRATION = """
Candidates are the first 100 documents of `learned`; a bin is drawn if it has at least 20. *Relevant* counts judged
documents only, so unjudged relevant documents make probabilities look too high.
""".strip()


def page(records: list[dict[str, Any]]) -> list[str]:
    """Return the page."""
    lines = ["# Answers as sets", "", TEXT]
    titles = {"micro-f1": "F1 over all pairs (micro)", "macro-f1": "Mean F1 of the queries (macro)"}
    for objective, measure in OBJECTIVES.items():
        lines += ["", f"## {titles[objective]}", *(["", MICRO] if objective == "micro-f1" else [])]
        rows, gains = [], []
        for record in records:
            for ranker, row in record["rows"].items():
                of = row[objective]
                value, (low, high) = of["values"][measure], of["interval"]
                gains.append(value / of["fixed"] - 1)
                cells = [
                    record["collection"],
                    f"`cut({ranker})`",
                    of["report"]["model"],
                    f"{of['fixed']:.3f} ({of['fixed depth']})",
                ]
                cells += [f"{value:.3f}", f"{low:.3f} to {high:.3f}", f"{gains[-1]:+.1%}", f"{of['p']:.4f}"]
                cells += [f"{of['values']['MicroP']:.3f}", f"{of['values']['MicroR']:.3f}", f"{of['documents']:.2f}"]
                cells += [f"{of['best']:.3f} ({of['best depth']})"]
                rows.append([*cells, *([f"{row['per query']:.3f}"] if objective == "macro-f1" else [of["unanswered"]])])
        last = "each query's depth" if objective == "macro-f1" else "queries without answer"
        lines += table(
            "collection | answers | model | fixed depth | cut | 95 % | gain | p | precision | recall | "
            f"documents a query | best depth | {last}",
            rows,
            words=3,
        )
        lines += ["", f"The mean gain is {np.mean(gains):+.1%}, the smallest {min(gains):+.1%}."]
    lines += ["", "## Wanted precision and recall", "", "What answers with a wanted precision or recall have on test."]
    names = [f"{objective} {target:g}" for objective, target in TARGETS]
    rows = [
        [
            *(record["collection"], f"`cut({ranker})`"),
            *(f"{row[name]['MicroP']:.2f} / {row[name]['MicroR']:.2f}" for name in names),
        ]
        for record in records
        for ranker, row in record["rows"].items()
    ]
    lines += table(f"collection | precision / recall | {' | '.join(names)}", rows, words=2)
    lines += ["", "## Calibration", "", CALIBRATION, "", "![Calibration](sets.svg)"]
    rows = []
    for record in records:
        for ranker, row in record["rows"].items():
            bins = row["bins"]
            base = sum(bins["relevant"]) / sum(bins["candidates"])
            rows.append(
                [
                    *(record["collection"], f"`{ranker}`", int(sum(bins["candidates"]))),
                    *(f"{sum(bins[name]):,.0f}" for name in ("expected", "relevant")),
                    *(f"{bins['Brier'][0]:.4f}", f"{base * (1 - base):.4f}"),
                ]
            )
    columns = "collection | ranker | candidates | expected relevant | relevant | Brier score | of the mean probability"
    lines += table(columns, rows, words=2)
    origins = [
        f"- {record['collection']}: {record['training queries']:,} training queries, {record['queries']:,} test "
        f"queries with {record['relevant']:,} relevant documents; `{record['made']['command']}`; "
        f"{origin(record['made'])}; {packages(record['made'])}"
        for record in records
    ]
    return [*lines, "", measures("bench_sets.py"), *origins]


if __name__ == "__main__":
    main()
