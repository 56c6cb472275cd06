"""The rankers on every collection: tuned on train and dev, reported on dev and test, end to end.

    python benchmarks/effectiveness.py pydocs FOLDER … [--results benchmarks/results]

One policy for all collections: BM25's parameters by a grid on dev, everything else as the defaults are. Both baselines,
passage and document, are tuned; the stronger of them on dev is what rankers are compared with. Every collection runs in
a process of its own and writes `effectiveness-NAME.json`; the pages are made from these by effectiveness_pages.py.

A ranker that remembers training queries can gain by recognising what was cited before. So there are groups of queries:
all, some or none of whose relevant documents were relevant to a training query. What a page claims of the ensemble is a
family of comparisons on test by itself.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import effectiveness_pages
import numpy as np
from provenance import made, options, peak_memory, printed_stages, split_batch, timed, write_json

from haybale import Collection, Engine, Ranker, Run, evaluate, open_collection, parse, tune_bm25
from haybale.evaluation import Tuned, paired_tests, results
from haybale.rankers import Training, set_all, set_values

UNSEEN_SHARE = "unseen_share"  # the parameter of Learned: the share of the loss for queries that training has not met
SEARCHES = "bm25,bm25-doc,knn,knn-doc,parm-rrf,parm-vrrf"
BEST = f"learned({SEARCHES},knn-queries,svr)"
ALONE = "svr"  # the ensemble alone, no fusion
FIRST_STAGE = "svr(candidates=none)"  # of all documents, which takes long on large collections
RANKERS = (  # over TF-IDF
    *("bm25", "bm25-doc", "knn", "knn-firstp", "knn-doc", "bm25-parm-rrf", "parm-rrf", "parm-vrrf", "knn-queries"),
    *("svr-memory", ALONE, FIRST_STAGE, "rrf(bm25-doc,parm-vrrf)"),
    *(f"learned({SEARCHES})", f"learned({SEARCHES},knn-queries)", f"learned({SEARCHES},svr)", BEST),
)
UNTUNED: dict[str, dict[str, float]] = {"default k1 and b": {}, "default k1 and b, k3 0": {"k3": 0}}
DENSE = ("knn", "knn-doc", "svr-paper")  # over LSA
PAPER_ROWS = 8000  # of a bag of svr-paper: on gesetze its bags would have 51,000, and take most of two hours' half
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of which Learned takes one by itself
SPLITS, DEPTH = ("dev", "test"), 1000
MEASURES = ("MRR@10", "nDCG@10", "Recall@100")
PACKAGES = ("haybale", "numpy", "scipy", "scikit-learn", "pandas", "bm25s", "faiss-cpu", "ir_measures")
STRATA = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-vrrf", "knn-queries", "svr-memory", ALONE, BEST)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    a = parser.parse_args()
    if len(a.collections) == 1:
        record = measured(a.collections[0])
        write_json(a.results / f"effectiveness-{record['collection']['name']}.json", record)
        return
    for name in a.collections:
        subprocess.run([sys.executable, __file__, name, "--results", str(a.results)], check=True)
    effectiveness_pages.write(a.results)


class Space:
    """A collection under one encoder, its training queries and those of each split: rankers share their searches."""

    def __init__(self, collection: Collection, encoder: str) -> None:
        engine = Engine(collection, encoder=encoder)
        self.training = Training.of(engine)
        self.batches = {split: split_batch(engine, split) for split in SPLITS}

    def runs(self, ranker: Ranker) -> dict[str, Run]:
        """The ranker's run of each split, fitted on the training queries."""
        fitted = ranker.fitted(self.training)
        return {split: fitted.run(batch, DEPTH) for split, batch in self.batches.items()}


def measured(name: str, *, width: int = 1024, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure one collection; ``width`` is that of LSA, and ``values`` are set in all rankers, for a trial."""
    start = time.perf_counter()
    with printed_stages() as stages:
        collection = open_collection(name, missing_judgements="skip")
        tuning, tuned = timed(lambda: tuned_bm25(collection))
        baseline = "bm25-doc" if tuned["document"].best[3] > tuned["passage"].best[3] else "bm25"
        chosen = parameters(tuned) | (values or {})
        sparse = Space(collection, "tfidf")
        runs: dict[str, dict[str, Run]] = {split: {} for split in SPLITS}
        facts = ranked(sparse, with_values(RANKERS, chosen), runs)
        for ranker, (more, untuned) in product(("bm25", "bm25-doc"), UNTUNED.items()):
            for split, run in sparse.runs(set_values(parse(ranker), untuned)).items():
                runs[split][f"{ranker}, {more}"] = run
        del sparse  # its hits are large, and done with
        over = with_values(DENSE, {"svr-paper.rows_per_bag": PAPER_ROWS})
        facts |= ranked(Space(collection, f"lsa(n_components={width})"), over, runs, " over LSA")
    of_rankers = {
        split: {n: evaluate(run, collection.qrels_frame(split)) for n, run in of.items()} for split, of in runs.items()
    }
    seconds = {"tune BM25": tuning} | stages.seconds | {"all": time.perf_counter() - start}
    return {
        "collection": described(collection),
        "baseline": baseline,
        "best": BEST,
        "alone": ALONE,
        "bm25": {unit: found.to_dict() for unit, found in tuned.items()},
        "rankers": {split: results(table, baseline).to_dict() for split, table in of_rankers.items()},
        "n_queries": {split: len(next(iter(table.values()))) for split, table in of_rankers.items()},
        "comparisons": compared(collection, baseline, of_rankers),
        "strata": {split: by_group(collection, split, of_rankers[split]) for split in SPLITS},
        "facts": facts,
        "seconds": seconds,
        "peak memory": peak_memory(),
        "made": made("effectiveness.py", [name], PACKAGES),
    }


def described(collection: Collection) -> dict[str, Any]:
    """Return the name and the sizes of a collection."""
    return {
        "name": collection.name,
        "documents": collection.n_documents,
        "passages": collection.n_passages,
        "queries": {split: len(part.queries) for split, part in collection.splits.items()},
    }


def tuned_bm25(collection: Collection) -> dict[str, Tuned]:
    """Tune BM25 over passages and over documents."""
    return {unit: tune_bm25(collection, unit) for unit in ("passage", "document")}


def parameters(tuned: Mapping[str, Tuned]) -> dict[str, Any]:
    """Return the best parameters on dev by their names in ``set_all``, for a baseline as strong as possible."""
    return {
        f"{ranker}.{parameter}": value
        for ranker, unit in (("bm25", "passage"), ("bm25-doc", "document"))
        for parameter, value in zip(("k1", "b", "k3"), tuned[unit].best[:3], strict=True)
    }


def with_values(names: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Ranker]:
    """Return rankers by their names on the page, with values set."""
    return dict(zip(names, set_all([parse(name) for name in names], values), strict=True))


def ranked(space: Space, rankers: Mapping[str, Ranker], runs: dict[str, dict[str, Run]], more: str = "") -> Any:
    """Add the rankers' runs to those of each split, and return what fitting them found, by name."""
    found = {}
    for name, ranker in rankers.items():
        for split, run in space.runs(ranker).items():
            runs[split][name + more] = run
        found[name + more] = ranker.fitted(space.training).fit_report_
    return {name: facts for name, facts in found.items() if facts}


def by_group(collection: Collection, split: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the size of every group of queries, and the measures of some rankers on it."""
    ids = collection.queries.ids.take(collection.split(split).queries).to_pylist()
    found: dict[str, Any] = {}
    for group, members in by_relevant(collection, split).items():
        tables = {ranker: values[ranker].reindex(ids)[members] for ranker in STRATA}
        means = {
            ranker: {m: float(table[m].mean()) if len(table) else None for m in MEASURES}
            for ranker, table in tables.items()
        }
        found[group] = {"queries": int(members.sum()), "rankers": means}
    return found


def compared(collection: Collection, baseline: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare the ensemble with the baselines, alone and fused, on test; p is corrected for this family."""
    dev, test = values["dev"], values["test"]
    ids = collection.queries.ids.take(collection.split("test").queries).to_pylist()
    unseen = [query for query, new in zip(ids, by_relevant(collection, "test")["none seen"], strict=True) if new]
    judged = list(test[baseline].index)
    family = [
        (ALONE, max("knn", "knn-doc", key=lambda knn: dev[knn]["nDCG@10"].mean()), "all", judged),
        (ALONE, baseline, "all", judged),
        (f"learned({SEARCHES},svr)", f"learned({SEARCHES})", "all", judged),
        (BEST, f"learned({SEARCHES},knn-queries)", "all", judged),
        (FIRST_STAGE, ALONE, "all", judged),
        *([(ALONE, baseline, "none seen", unseen)] if unseen else []),
    ]
    rows = []
    for ours, theirs, group, queries in family:
        row: dict[str, Any] = {"rankers": [ours, theirs], "group": group, "queries": len(queries)}
        for measure in MEASURES:
            a, b = (test[ranker].loc[queries, measure].to_numpy() for ranker in (ours, theirs))
            found = paired_tests(a, b, n_comparisons=len(family))
            row[measure] = {"means": [float(a.mean()), float(b.mean())], **vars(found)}
        rows.append(row)
    return rows


def by_relevant(
    collection: Collection, split: str, training: Sequence[Sequence[str]] | None = None
) -> dict[str, np.ndarray]:
    """Return masks (n,) of queries all, some or none of whose relevant documents were relevant to a training query.

    ``training``: the relevant documents of these; default those of the split ``train``.
    """
    known = {doc for ids in training or collection.relevant_ids("train") for doc in ids}
    relevant = collection.relevant_ids(split)
    share = np.array([np.mean([doc in known for doc in ids]) if ids else np.nan for ids in relevant])
    return {"all seen": share == 1, "some seen": (share > 0) & (share < 1), "none seen": share == 0}


if __name__ == "__main__":
    main()
