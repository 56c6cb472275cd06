"""What makes the SVR ensemble strong: one thing changed a row, by out-of-bag rankings and on dev.

    python benchmarks/bench_ensemble.py FOLDER … [--queries 1000] [--results benchmarks/results]

BM25 in the evidence has the parameters that tune_bm25 finds on dev, as on the effectiveness pages. The test split has
no part. One page a collection.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from effectiveness import by_relevant, parameters, tuned_bm25, with_values
from provenance import cell4, options, provenance, shown, table, write_page

from haybale import Collection, Engine, InputError, Ranker, evaluate, open_collection
from haybale.evaluation.significance import t_test
from haybale.rankers import QueryBatch, Training

SEARCHES = "bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf"
EVIDENCE = f"{SEARCHES},knn-queries"
TRIALS: dict[str, list[str]] = {
    "`svr` as it is": ["svr"],
    "γ of queries and documents": [
        f"svr(gamma=[{pair}])" for pair in ("0.3,0.3", "1,0.5", "1,2.5", "2,1", "8,2.5", "12,0.5")
    ],
    "η": [f"svr(eta={eta})" for eta in (0.1, 10)],
    "bags": [
        "svr(n_bags=35,overlap=0.6)",
        "svr(n_bags=12,overlap=2)",
        "svr(n_bags=5,overlap=2)",
        "svr(n_bags=24,overlap=0)",
    ],
    "bags are made of": ["svr(strategy=rows)", "svr(strategy=regions)"],
    "C, ε, weight of a relevant row": [
        "svr(C=0.03)",
        "svr(C=30)",
        "svr(epsilon=0.02)",
        "svr(epsilon=0.3)",
        "svr(positive_weight=1)",
    ],
    "documents of each search, of a training query": ["svr(n_train=5)", "svr(n_train=30)"],
    "of a ranked query, and depth of the evidence": ["svr(n_candidates=50)", "svr(n_candidates=300)"],
    "pool": [f"svr(candidates=[{SEARCHES}])", "svr(candidates=none)"],
    "evidence without": [
        "svr(evidence=[knn,knn-doc,parm-rrf,parm-vrrf,knn-queries])",
        "svr(evidence=[bm25,bm25-doc,parm-rrf,parm-vrrf,knn-queries])",
        "svr(evidence=[bm25,knn,bm25-doc,knn-doc,knn-queries])",
        f"svr(evidence=[{SEARCHES}])",
    ],
    "more evidence": [f"svr(evidence=[{EVIDENCE},knn-firstp])", f"svr(evidence=[{EVIDENCE},bm25-parm-rrf])"],
    "evidence, no memory": ["svr(gamma=0.000001)"],
    "memory, no evidence": ["svr-memory", "svr-memory(gamma=[8,2.5])", "svr-memory(gamma=[1,1])"],
    "passages": ["svr(unit=passage)", "svr(unit=passage,gamma=[8,2.5])"],
}
SHARES = (0.25, 0.5)  # of the training queries
MEASURES = ("MRR@10", "nDCG@10")
_OUT_OF_BAG = 5000  # training queries: with more, ranking them all takes longer than everything else


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--queries", type=int, help="so many of the training queries, drawn at random; default all")
    a = parser.parse_args()
    for name in a.collections:
        collection = open_collection(name)
        lines = page(collection, a.queries)
        write_page(
            a.results / f"ensemble-{collection.name}.md", [*lines, provenance(shown("bench_ensemble.py", sys.argv[1:]))]
        )


def page(collection: Collection, n_queries: int | None) -> list[str]:
    values = parameters(tuned_bm25(collection))
    searches = EVIDENCE.split(",")
    rankers = with_values((*(spec for specs in TRIALS.values() for spec in specs), *searches), values)
    engine, train = Engine(collection, encoder="tfidf"), collection.split("train")
    judged = QueryBatch(engine, collection.queries.take(collection.split("dev").queries))
    training = sample(engine, n_queries or len(train.queries))
    rows = [
        measured(changed, shortened(spec), rankers[spec], training, judged)
        for changed, specs in TRIALS.items()
        for spec in specs
    ]
    for share in SHARES:
        fewer = sample(engine, int(share * len(training)))
        rows.append(measured("training queries learned from", f"{len(fewer):,}", rankers["svr"], fewer, judged))
    dense = Engine(collection, encoder="lsa")
    over = sample(dense, len(training)), QueryBatch(dense, judged.queries)
    rows.append(measured("vectors", "LSA", rankers["svr"], *over))
    rows += [measured("a search alone", name, rankers[name], training, judged) for name in searches]
    first = rows[0]["table"]
    columns = (
        "changed | to | out of bag, MRR@10 | nDCG@10 | dev, MRR@10 | nDCG@10 | Recall@100 | none seen, MRR@10 | fit, s"
    )
    return [
        f"# What makes the ensemble strong, {collection.name}",
        "",
        f"`svr` with one thing changed a row, over TF-IDF. *Out of bag*: {len(training):,} training queries, each "
        f"ranked by the bags that saw nothing of it or of its document. *Dev*: {len(judged):,} queries; *none seen*: "
        f"the {int(unseen(training, judged).sum())} of them none of whose relevant documents was relevant to a "
        "training query. `*`: on dev further from the first row than p = .05 of the paired t-test, not corrected for "
        "the number of rows. Seconds of fitting are without the searches, which rows share.",
        *table(columns, (shown_row(each, first) for each in rows), words=2, show=cell4),
        "",
        f"BM25: {', '.join(f'{name} {value}' for name, value in values.items())}",
    ]


def sample(engine: Engine, n: int) -> Training:
    """So many of the training queries."""
    collection = engine.collection
    queries, relevant = collection.split("train").queries, collection.relevant_ids("train")
    rows = np.sort(np.random.default_rng(0).permutation(len(queries))[:n])
    return Training(
        QueryBatch(engine, collection.queries.take(queries[rows]), "train"), [relevant[each] for each in rows]
    )


def shortened(spec: str) -> str:
    """What is changed of svr: the parameters alone."""
    return spec.removeprefix("svr(").removesuffix(")") if spec.startswith("svr(") else spec


def measured(changed: str, to: str, ranker: Ranker, training: Training, judged: QueryBatch) -> dict[str, Any]:
    """A row of the page."""
    collection = judged.engine.collection
    within = [*ranker.nested(), *(each for made in ranker.implied().values() for each in made)]
    for inner in within:
        inner.fitted(training).run_out_of_fold(training.batch, 100)  # searched before the clock runs
    start = time.perf_counter()
    fitted = ranker.fitted(training)
    seconds = time.perf_counter() - start
    found = evaluate(fitted.run(judged, 1000), collection.qrels_frame("dev")).reindex(judged.ids)
    out_of_bag: dict[str, float] = {}
    try:
        if within and len(training) <= _OUT_OF_BAG:
            run = fitted.run_out_of_fold(training.batch, 100)
            out_of_bag = evaluate(run, collection.qrels_frame("train")).reindex(training.batch.ids).mean().to_dict()
    except InputError:  # of rows every bag has seen nearly every query
        pass
    print(f"  {to}: {found['nDCG@10'].mean():.4f} in {seconds:.0f} s", flush=True)
    none = found[unseen(training, judged)]
    return {"changed": changed, "to": to, "out of bag": out_of_bag, "table": found, "none": none, "seconds": seconds}


def unseen(training: Training, judged: QueryBatch) -> np.ndarray:
    """(n_dev,) dev queries none of whose relevant documents was relevant to a training query."""
    return by_relevant(judged.engine.collection, "dev", training.relevant)["none seen"]


def shown_row(found: Any, first: Any) -> list[Any]:
    means = []
    for measure in (*MEASURES, "Recall@100"):
        both = found["table"][[measure]].join(first[[measure]], rsuffix=" first").dropna()
        p, _ = t_test((both[measure] - both[f"{measure} first"]).to_numpy())
        means.append(f"{found['table'][measure].mean():.4f}{'*' if p < 0.05 else ''}")
    out_of_bag = [f"{found['out of bag'][each]:.4f}" if found["out of bag"] else "–" for each in MEASURES]
    return [
        found["changed"],
        f"`{found['to']}`",
        *out_of_bag,
        *means,
        float(found["none"]["MRR@10"].mean()),
        f"{found['seconds']:.0f}",
    ]


if __name__ == "__main__":
    main()
