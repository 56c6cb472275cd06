"""Measure what `unseen(…)` and `nearby(…)` add to `learned`, for queries with seen and with unseen documents.

    python benchmarks/bench_unseen.py FOLDER … [--shares 0.3,0.4] [--train-queries 5000]

The fusions are the default rankers of `learned`; these and `unseen(bm25-weighted)`, `unseen(bm25-doc)`; and these and
`nearby(knn-queries)`, `unseen(nearby(knn-queries))`. Each is fitted for every share of the loss for unseen queries, and
ranks dev and test. Every collection writes `unseen-NAME.json`, of which the page is made; without collections only the
page is made.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import (
    cell4,
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

from haybale import Engine, Learned, open_collection, parse
from haybale.evaluation import evaluate
from haybale.evaluation.seen_queries import SeenQueries
from haybale.rankers import Training

PACKAGES = ("numpy", "scikit-learn", "numba")
MEASURE = "nDCG@10"
UNSEEN = ("unseen(bm25-weighted)", "unseen(bm25-doc)")
NEARBY = ("nearby(knn-queries)", "unseen(nearby(knn-queries))")
ADDED = {"`learned`": (), "with `unseen`": UNSEEN, "with `unseen` and `nearby`": (*UNSEEN, *NEARBY)}
SPLITS, GROUPS = ("dev", "test"), ("all", "seen", "unseen")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "collections", nargs="*", help="folders with training, dev and test queries; none: only the page"
    )
    parser.add_argument("--shares", default="0.3,0.4", help="of the loss, for unseen queries")
    parser.add_argument("--train-queries", type=int, help="the largest number of training queries, drawn at random")
    a = parser.parse_args()
    shares = [float(share) for share in a.shares.split(",")]
    for name in a.collections:
        with printed_stages():
            record = measured(name, shares, a.train_queries)
        record |= {"collection": Path(name).name, "made": made("bench_unseen.py", sys.argv[1:], PACKAGES)}
        write_json(a.results / f"unseen-{record['collection']}.json", record)
    write_page(a.results / "unseen.md", page(read_all(a.results, "unseen")))


def measured(name: str, shares: list[float], n_train: int | None) -> dict[str, Any]:
    """Return the measures of every fusion and share, by split and group of queries."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine.build(open_collection(name, missing_judgements="skip"), Path(folder) / "engine")
        training = Training.of(engine)
        training = training if n_train is None else training.sample(n_train)
        trained = {doc_id for ids in training.relevant for doc_id in ids}
        batches = {split: split_batch(engine, split) for split in SPLITS}
        rows, groups = [], {}
        for fusion, texts in ADDED.items():
            added = [parse(text) for text in texts]
            for share in shares:
                ranker = Learned(*Learned().nested(), *added, unseen_share=share)._fit_on(training)
                row: dict[str, Any] = {"fusion": fusion, "share": share}
                for split, batch in batches.items():
                    qrels = engine.collection.qrels_frame(split)
                    runs = {fusion: ranker.run(batch, 100)}
                    values = {fusion: evaluate(runs[fusion], qrels, [MEASURE])}
                    seen = SeenQueries.of(values, runs, qrels, trained)
                    of_groups = {group: means[MEASURE] for group, means in seen.averages[fusion].items()}
                    row[split] = {"all": float(values[fusion][MEASURE].mean())} | of_groups
                    groups[split] = {group: len(ids) for group, ids in seen.groups.items()}
                rows.append(row)
        return {"rows": rows, "groups": groups, "training queries": len(training)}


def page(records: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the page."""
    lines = [
        "# Seen and unseen documents in one fusion",
        "",
        f"{MEASURE} of `learned` with its default rankers, and with rankers that may rank what was relevant to no",
        "training query. A query is seen if all its relevant documents were relevant to a training query, unseen if",
        "none was. The share is that of unseen queries in the loss (`unseen_share`). `nearby(knn-queries)` ranks",
        "documents near those that were relevant to similar training queries, in the order of the collection. Engines",
        "are TF-IDF.",
    ]
    for record in records:
        lines += ["", f"## {record['collection']}", ""]
        counts = [
            f"{split}: {', '.join(f'{n:,} {group}' for group, n in groups.items())} queries"
            for split, groups in record["groups"].items()
        ]
        lines += [f"{record['training queries']:,} training queries; {'; '.join(counts)}."]
        header = " | ".join(["fusion", "share", *(f"{split}, {group}" for split in SPLITS for group in GROUPS)])
        lines += table(
            header,
            [
                [row["fusion"], f"{row['share']:g}", *(row[split].get(group) for split in SPLITS for group in GROUPS)]
                for row in record["rows"]
            ],
            show=cell4,
        )
    lines += ["", measures("bench_unseen.py")]
    for record in records:
        command = record["made"]["command"]
        lines += [f"- {record['collection']}: `{command}`; {origin(record['made'])}; {packages(record['made'])}"]
    return lines


if __name__ == "__main__":
    main()
