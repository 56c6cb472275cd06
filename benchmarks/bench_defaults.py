"""Compare defaults of BM25, of fusions without training, and of the evidence of learned rankers with others.

    python benchmarks/bench_defaults.py FOLDER … [--parts bm25 rrf evidence] [--results benchmarks/results]

*bm25*: k3 of BM25, on at most 1,200 training queries and on dev. *rrf*: fusions by reciprocal ranks, on dev.
*evidence*: `svr` and `learned` with and without BM25 for long queries, for training queries out of fold, on dev and on
test. All over TF-IDF. Each part of a collection is kept in `defaults-NAME.json`, of which the page is made; without
collections only the page is made.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from effectiveness import Space, by_relevant
from provenance import made, measures, options, origin, read_all, read_json, table, write_json, write_page
from scipy import stats

from haybale import BM25, SVR, Learned, Run, evaluate, open_collection
from haybale.rankers import QueryBatch, Ranker, parse, parse_all
from haybale.rankers.bm25 import LONG_QUERIES
from haybale.rankers.models.new_queries import unseen_queries

K3 = {"none": None, "0": 0, "1": 1, "8": 8, "n / 16, at most 8": "auto"}
LONG = ",".join(str(BM25(unit, **LONG_QUERIES)) for unit in ("passage", "document"))
SEARCHES = "bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf"
EVIDENCE = f"{SEARCHES},knn-queries,bm25-weighted"
FUSIONS = {
    "bm25-doc, parm-vrrf": "rrf(bm25-doc,parm-vrrf)",
    "with bm25": "rrf(bm25,bm25-doc,parm-vrrf)",
    "with BM25 for long queries": f"rrf(bm25-doc,{LONG},parm-vrrf)",
}
PARTS = ("bm25", "rrf", "evidence")
SAMPLE = 1200  # training queries that BM25 ranks at most


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or folders; none: only the page is made")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    a = parser.parse_args()
    for name in a.collections:
        path = a.results / f"defaults-{Path(name).name}.json"
        space = Space(open_collection(name, missing_judgements="skip"), "tfidf")
        for part in a.parts:
            measured = {"bm25": bm25, "rrf": fusions, "evidence": evidence}[part](space)
            record = read_json(path, {"collection": Path(name).name})
            arguments = [name, "--parts", part]
            write_json(path, record | {part: {**measured, "made": made("bench_defaults.py", arguments)}})
    write_page(a.results / "defaults.md", page(read_all(a.results, "defaults")))


def ndcg(batch: QueryBatch, run: Run, split: str, measure: str = "nDCG@10") -> np.ndarray:
    """Return a measure (m,) of each query of a batch, NaN without a relevant document."""
    found = evaluate(run, batch.engine.collection.qrels_frame(split), [measure])[measure]
    return found.reindex(batch.ids).to_numpy()


def bm25(space: Space) -> dict[str, Any]:
    """Return mean nDCG@10 of BM25 by unit, split and k3."""
    train, dev = space.training.batch, space.batches["dev"]
    if len(train) > SAMPLE:
        train = train.take(np.sort(np.random.default_rng(0).choice(len(train), SAMPLE, replace=False)))
    means: dict[str, Any] = {}
    for unit in ("passage", "document"):
        for title, k3 in K3.items():
            ranker = BM25(unit, k3=k3)._fitted_copy(space.training)
            if unit == "passage" or k3 != "auto":
                for split, batch in (("train", train), ("dev", dev)):
                    mean = float(np.nanmean(ndcg(batch, ranker.run(batch, 10), split)))
                    means.setdefault(unit, {}).setdefault(split, {})[title] = mean
    index = train.engine.bm25("passage")
    n_terms = [len(index.analyzer.terms(text)) for text in dev.texts]
    return {"nDCG@10": means, "terms of a query, median": float(np.median(n_terms))}


def fusions(space: Space) -> dict[str, Any]:
    """Return mean nDCG@10 on dev of fusions without training."""
    dev = space.batches["dev"]
    runs = {title: parse(text)._fitted_copy(space.training).run(dev, 100) for title, text in FUSIONS.items()}
    return {"nDCG@10": {title: float(np.nanmean(ndcg(dev, run, "dev"))) for title, run in runs.items()}}


def evidence(space: Space) -> dict[str, Any]:
    """Return measures and seconds of `svr` and `learned`, each without and with BM25 for long queries."""
    collection, training = space.training.batch.engine.collection, space.training
    is_unseen = {split: by_relevant(collection, split)["none seen"] for split in ("dev", "test")}
    is_unseen["train"] = unseen_queries(training.relevant, training.batch.groups)
    rankers: dict[str, dict[str, Ranker]] = {}
    for title, more in (("without", ""), ("with", f",{LONG}")):
        svr = SVR(parse_all(EVIDENCE + more))
        rankers[title] = {"svr": svr, "learned": Learned(*parse_all(f"{EVIDENCE}{more}"), svr)}
    rows, values = [], dict[tuple[str, str], np.ndarray]()
    for title, pair in rankers.items():
        for name, ranker in pair.items():
            row: dict[str, Any] = {"ranker": name, "evidence": title}
            start = time.process_time()
            fitted = ranker._fitted_copy(training)
            row["fit, CPU s"], start = time.process_time() - start, time.process_time()
            runs = {split: fitted.run(batch, 1000) for split, batch in space.batches.items()}
            row["rank, CPU s"] = time.process_time() - start
            runs["train"] = fitted.run(training.batch, 100, out_of_fold=True)
            for split, run in runs.items():
                of_queries = ndcg(training.batch if split == "train" else space.batches[split], run, split)
                row[split] = float(np.nanmean(of_queries))
                row[f"{split}, unseen"] = float(np.nanmean(of_queries[is_unseen[split]]))
                values[name, split] = of_queries
            row["test, MRR@10"] = float(np.nanmean(ndcg(space.batches["test"], runs["test"], "test", "MRR@10")))
            if title == "without":
                values |= {(f"{name} without", split): values[name, split] for split in runs}
            else:
                pairs = ((values[name, split], values[f"{name} without", split]) for split in ("train", "test"))
                row["p, train"], row["p, test"] = (
                    float(stats.ttest_rel(*both, nan_policy="omit").pvalue) for both in pairs
                )
            rows.append(row)
            print(row, flush=True)
    return {"rows": rows}


def page(records: list[dict[str, Any]]) -> list[str]:
    """Return the lines of `defaults.md`."""
    lines = [
        "# Defaults for long and short queries",
        "",
        "nDCG@10, all over TF-IDF. *n* is the number of terms of a query, repetitions included; an unseen query has no "
        "relevant document that was relevant to a training query.",
        "",
        "## BM25: k3",
        "",
        f"k1 1.2, b .75. At most {SAMPLE:,} training queries / dev.",
    ]
    for unit in ("passage", "document"):
        rows = []
        for record in (each for each in records if "bm25" in each):
            of = record["bm25"]["nDCG@10"][unit]
            means = [f"{of['train'][k3]:.4f} / {of['dev'][k3]:.4f}" for k3 in of["train"]]
            rows.append([record["collection"], f"{record['bm25']['terms of a query, median']:,.0f}", *means])
        columns = [title for title in K3 if unit == "passage" or title in ("none", "0", "1", "8")]
        lines += table("|".join([f"over {unit}s", "n, median", *columns]), rows)
    rows = [
        [record["collection"], *(f"{value:.4f}" for value in record["rrf"]["nDCG@10"].values())]
        for record in records
        if "rrf" in record
    ]
    if rows:
        lines += ["", "## Fusions by reciprocal ranks, without training", "", "Dev."]
        lines += table("|".join(["collection", *FUSIONS]), rows)
    lines += ["", "## `svr` and `learned` with BM25 for long queries", ""]
    lines += [
        f"*With*: {LONG} are evidence of `svr` and parts of `learned` beside the others. All queries / unseen "
        "queries. *train*: training queries out of fold. p: a paired t-test with the row above it, not corrected. "
        "Seconds are of the CPU; what both rows have in common was fitted and searched for the first one. Decided on "
        "training queries and dev; test was ranked once."
    ]
    rows = []
    for record in (each for each in records if "evidence" in each):
        of_collection = sorted(
            record["evidence"]["rows"], key=lambda row: (row["ranker"] != "svr", row["evidence"] == "with")
        )
        for number, row in enumerate(of_collection):
            pair = [f"{row[split]:.4f} / {row[f'{split}, unseen']:.4f}" for split in ("train", "dev", "test")]
            ps = [f"{row[p]:.4f}" if p in row else "" for p in ("p, train", "p, test")]
            start = [record["collection"] if number == 0 else "", f"`{row['ranker']}`", row["evidence"]]
            seconds = [row["fit, CPU s"], row["rank, CPU s"]]
            rows.append([*start, pair[0], ps[0], *pair[1:], ps[1], f"{row['test, MRR@10']:.4f}", *seconds])
    lines += table(
        "collection|ranker|BM25 for long queries|train|p|dev|test|p|test, MRR@10|fit, s|rank, s", rows, words=3
    )
    lines += ["", measures("bench_defaults.py")]
    origins = {part: [(each["collection"], each[part]["made"]) for each in records if part in each] for part in PARTS}
    return [
        *lines,
        *(
            f"- {name}, {part}: `{record['command']}`; {origin(record)}"
            for part, of_part in origins.items()
            for name, record in of_part
        ),
    ]


if __name__ == "__main__":
    main()
