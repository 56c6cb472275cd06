"""Measure forecasts of nDCG@10: whether intervals from training alone contain what random test queries then have.

    python benchmarks/bench_forecast.py FOLDER … --work WORK [--splits 20] [--training 600] [--test 300]

All judged queries of a collection are one pool, of at most 1,500 drawn at random. Each split draws test queries (at
most a third of the pool), and training queries from the others, and fits `learned` on these. The rankings of every
split are kept in the folder WORK, and used again. Every collection writes `forecast-NAME.json`, of which the page is
made; without collections only the page is made.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import (
    commit,
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

from haybale import Engine, Learned, Ranker, Run, open_collection
from haybale.rankers import QueryBatch, Training, unseen_queries
from haybale.rankers.models.forecaster import Forecaster
from haybale.rankers.models.judged_pools import ndcg

PACKAGES = ("numpy", "scikit-learn", "numba")
POOL, DEPTH, LEVEL = 1500, 20, 0.95
TARGETS = ("learned", "svr")
AT = 300  # queries that the widths in the table are for
SHIFTS = (0.2, 0.8)  # shares of unseen queries among those that a shifted test draws


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="folders with judged queries; none: only the page")
    parser.add_argument("--work", type=Path, help="the folder of the rankings of splits")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--training", type=int, default=600)
    parser.add_argument("--test", type=int, default=300)
    a = parser.parse_args()
    for name in a.collections:
        paths = [a.work / f"{Path(name).name}-{seed}.pkl" for seed in range(a.splits)]
        with printed_stages():
            rank(name, paths, a.training, a.test)
        record = {"collection": Path(name).name, "splits": [of_split(path) for path in paths]}
        record["made"] = made("bench_forecast.py", sys.argv[1:], PACKAGES)
        write_json(a.results / f"forecast-{record['collection']}.json", record)
    write_page(a.results / "forecast.md", page(read_all(a.results, "forecast")))


def rank(name: str, paths: list[Path], n_training: int, n_test: int) -> None:
    """Write the rankings of every split that has none: of the training queries out of fold, and of the test queries."""
    if all(path.exists() for path in paths):
        return
    collection = open_collection(name)
    engine = Engine(collection)
    qrels = pd.concat([collection.qrels_frame(split) for split in collection.splits])
    qrels = qrels[qrels["relevance"] > 0].drop_duplicates(["query_id", "doc_id"])
    ids = np.array(sorted(qrels["query_id"].unique()))
    if len(ids) > POOL:
        ids = ids[np.sort(np.random.default_rng(0).choice(len(ids), POOL, replace=False))]
    relevant = qrels.groupby("query_id")["doc_id"].agg(list)
    pool = QueryBatch(engine, collection.queries.take(collection.query_numbers(ids.tolist())), "train")
    n_test = min(n_test, len(ids) // 3)
    for seed, path in enumerate(paths):
        if path.exists():
            continue
        order = np.random.default_rng(seed).permutation(len(ids))
        test, rest = np.sort(order[:n_test]), np.sort(order[n_test : n_test + n_training])
        training = Training(pool.take(rest), [relevant[query] for query in ids[rest]])
        learned, batch = Learned()._fitted_copy(training.for_nested()), pool.take(test)
        kinds = {"train": frames(learned, training.batch, True), "test": frames(learned, batch, False)}
        facts = {
            "train_ids": training.batch.ids,
            "train_relevant": training.relevant,
            "groups": training.batch.groups,
            "test_ids": batch.ids,
            "test_relevant": [relevant[query] for query in batch.ids],
            "trained": [name_of(part) for part in learned.rankers_ if part.learns_documents],
            "commit": commit(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(kinds | facts))
        print(path.stem, flush=True)


def frames(learned: Learned, batch: QueryBatch, out_of_fold: bool) -> dict[str, pd.DataFrame]:
    """Return the first documents of `learned` and of the rankers in it, as frames by name."""
    runs = {name_of(part): part.run(batch, DEPTH, out_of_fold=out_of_fold) for part in (learned, *learned.rankers_)}
    return {name: run.to_frame()[["query_id", "doc_id", "rank", "score"]] for name, run in runs.items()}


def name_of(ranker: Ranker) -> str:
    return str(ranker.name) if ranker.name in TARGETS else str(ranker)


def of_split(path: Path) -> dict[str, Any]:
    """Return the forecasts of a split and what the test queries have."""
    kept = pickle.loads(path.read_bytes())
    record: dict[str, Any] = {"commit": kept["commit"], "rankers": {}}
    judged, groups = [bool(documents) for documents in kept["train_relevant"]], kept["groups"]
    is_unseen = unseen_queries(kept["train_relevant"], groups)
    in_training = {document for documents in kept["train_relevant"] for document in documents}
    test_unseen = np.array([not in_training & set(documents) for documents in kept["test_relevant"]])
    qrels = pd.DataFrame({"query_id": kept["test_ids"], "doc_id": kept["test_relevant"]}).explode("doc_id")
    for target in TARGETS:
        names = [name for name in kept["train"] if target == "learned" or name != "learned"]
        train, test = (runs_of(kept[kind], kept[f"{kind}_ids"], names) for kind in ("train", "test"))
        trained = [*kept["trained"], *(["learned"] if target == "learned" else [])]
        forecaster = Forecaster.fit(train, target, trained, kept["train_relevant"], groups, is_unseen)
        values = ndcg(test[target], test[target].query_ids, qrels)
        forecast, plain = forecaster.forecast(test, LEVEL), forecaster.forecast_as_trained(len(values), LEVEL)
        n, at = forecast.n_training, AT
        to_at = np.sqrt((1 / at + 1 / n) / (1 / len(values) + 1 / n))
        row = {"measured": float(values.mean()), "forecast": forecast.to_dict(), "plain": plain.to_dict()}
        row |= {"width": (forecast.high - forecast.low) * to_at, "plain width": (plain.high - plain.low) * to_at}
        row |= {"unseen": float(test_unseen.mean()), "unseen training": float(is_unseen[judged].mean())}
        row["kinds"] = {
            kind: float(values[rows].mean())
            for kind, rows in (("seen", ~test_unseen), ("unseen", test_unseen))
            if rows.any()
        }
        row["shifted"] = [shifted(forecaster, test, values, test_unseen, share) for share in SHIFTS]
        record["rankers"][target] = row
    return record


def shifted(forecaster: Forecaster, test: dict[str, Run], values: Any, unseen: Any, share: float) -> Any:
    """Return the forecast for test queries of which a share is unseen, and what these have; None for too few."""
    n = int(min(unseen.sum() / share, (~unseen).sum() / (1 - share), len(values)))
    n_unseen = round(n * share)
    if min(n_unseen, n - n_unseen) < 10:
        return None
    rng = np.random.default_rng(0)
    drawn = [
        rng.choice(np.flatnonzero(kind), k, replace=False) for kind, k in ((unseen, n_unseen), (~unseen, n - n_unseen))
    ]
    rows = np.sort(np.concatenate(drawn))
    ids = [test[forecaster.target].query_ids[row] for row in rows]
    part = {name: run.take(ids) for name, run in test.items()}
    forecast, plain = forecaster.forecast(part, LEVEL), forecaster.forecast_as_trained(n, LEVEL)
    return {"measured": float(values[rows].mean()), "forecast": forecast.to_dict(), "plain": plain.to_dict()}


def runs_of(parts: dict[str, pd.DataFrame], query_ids: list[str], names: list[str]) -> dict[str, Run]:
    """Return the runs of frames, with queries for which nothing is found."""
    ids = list(query_ids)
    rows = {query: row for row, query in enumerate(ids)}
    documents = pd.unique(pd.concat([parts[name]["doc_id"] for name in names]))
    codes = {document: code for code, document in enumerate(documents)}
    runs = {}
    for name in names:
        frame = parts[name]
        columns = frame["query_id"].map(rows).to_numpy(), frame["doc_id"].map(codes).to_numpy()
        runs[name] = Run.from_numbers(ids, documents.tolist(), *columns, frame["score"].to_numpy())
    return runs


TEXT = """
`forecast` gives an interval of 95 % for the mean nDCG@10 of queries without judgements, from the out-of-fold rankings
of the training queries. Here the judged queries of each collection are drawn at random again and again: training
queries, on which `learned` and the `svr` in it are fitted with their defaults, and test queries, whose judgements are
used only to look whether the interval contains their mean. Engines are TF-IDF. *Plain* is the interval around the
out-of-fold mean of the training queries, with their standard deviation: what one would say without looking at the
queries at hand. *Error* is the forecast minus the measured mean: its mean and its root mean square over the splits.
Widths are for 300 test queries; where a split has fewer, the measured intervals are wider by
√((1/m + 1/n) / (1/300 + 1/n)).
""".strip()
KINDS = """
The shares of unseen queries, none of whose relevant documents was relevant to a training query: estimated for the test
queries, and true; and nDCG@10 of both kinds, out of fold in training and on the test queries. Means over splits.
""".strip()
SHIFTED = """
The same forecasters, for test queries drawn so that 20 % or 80 % of them are unseen, as many as there are.
""".strip()


def held(row: dict[str, Any], kind: str) -> bool:
    return bool(row[kind]["low"] <= row["measured"] <= row[kind]["high"])


def page(records: list[dict[str, Any]]) -> list[str]:
    """Return the page."""
    lines, rows, kinds, shifts = ["# Forecasts", "", TEXT], [], [], []
    misses: list[str] = []
    n_held = n_all = 0
    for record in records:
        for target in TARGETS:
            splits = [split["rankers"][target] for split in record["splits"]]
            name, forecasts = f"`{target}`", [row["forecast"] for row in splits]
            error = np.array([row["forecast"]["estimate"] - row["measured"] for row in splits])
            plain = np.array([row["plain"]["estimate"] - row["measured"] for row in splits])
            counts = [sum(held(row, kind) for row in splits) for kind in ("forecast", "plain")]
            n_held, n_all = n_held + counts[0], n_all + len(splits)
            sizes = f"{forecasts[0]['n_training']} / {forecasts[0]['n_queries']}"
            cells = [record["collection"], name, sizes, f"{counts[0]} of {len(splits)}"]
            cells += [f"{np.mean([row['width'] for row in splits]):.3f}", f"{error.mean():+.3f} / {rms(error):.3f}"]
            cells += [f"{counts[1]} of {len(splits)}", f"{np.mean([row['plain width'] for row in splits]):.3f}"]
            rows.append([*cells, f"{plain.mean():+.3f} / {rms(plain):.3f}"])
            misses += [
                f"- {record['collection']}, {name}, split {number}: {row['forecast']['low']:.3f} to "
                f"{row['forecast']['high']:.3f}, measured {row['measured']:.3f}"
                for number, row in enumerate(splits)
                if not held(row, "forecast")
            ]
            shares = np.array([[row["forecast"]["share"]["unseen"], row["unseen"]] for row in splits])
            of_kind = [
                mean_of([values.get(kind) for values in part])
                for kind in ("seen", "unseen")
                for part in ([row["forecast"]["in_training"] for row in splits], [row["kinds"] for row in splits])
            ]
            share_error = rms(shares[:, 0] - shares[:, 1])
            means = [f"{share:.0%}" for share in shares.mean(axis=0)]
            kinds.append([record["collection"], name, *means, f"{share_error:.3f}", *of_kind])
            for number, share in enumerate(SHIFTS):
                drawn = [row["shifted"][number] for row in splits if row["shifted"][number] is not None]
                if drawn:
                    errors = [
                        rms(np.array([row[kind]["estimate"] - row["measured"] for row in drawn]))
                        for kind in ("forecast", "plain")
                    ]
                    n = np.mean([row["forecast"]["n_queries"] for row in drawn])
                    n_in = [sum(held(row, kind) for row in drawn) for kind in ("forecast", "plain")]
                    both = [f"{count} of {len(drawn)}" for count in n_in]
                    cells = [record["collection"], name, f"{share:.0%}", f"{n:.0f}"]
                    shifts.append([*cells, both[0], f"{errors[0]:.3f}", both[1], f"{errors[1]:.3f}"])
    columns = "collection | ranker | training / test queries | held | width | error | plain held | width | error"
    lines += table(columns, rows, words=3)
    lines += ["", f"{n_held} of {n_all} intervals hold ({n_held / max(1, n_all):.0%})."]
    lines += ["", "## Misses", "", *(misses or ["None."])]
    columns = "collection | ranker | estimated share | share | error of the share (root mean square)"
    columns += " | seen, training | seen, test | unseen, training | unseen, test"
    lines += ["", "## Seen and unseen queries", "", KINDS, *table(columns, kinds, words=2)]
    columns = "collection | ranker | unseen | test queries | held | error (root mean square) | plain held | error"
    lines += ["", "## Other shares of unseen queries", "", SHIFTED, *table(columns, shifts, words=3)]
    origins = [
        f"- {record['collection']}: {len(record['splits'])} splits, ranked at commit "
        f"{', '.join(sorted({split['commit'] for split in record['splits']}))}; `{record['made']['command']}`; "
        f"{origin(record['made'])}; {packages(record['made'])}"
        for record in records
    ]
    return [*lines, "", measures("bench_forecast.py"), *origins]


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def mean_of(values: list[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{np.mean(numbers):.3f}" if numbers else ""


if __name__ == "__main__":
    main()
