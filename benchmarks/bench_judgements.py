"""Measure what rankers learn from 3, 10, 30 and 100 judged queries, each drawn several times.

    python benchmarks/bench_judgements.py COLLECTION … [--draws 10]

Training queries are drawn at random, and every ranker is fitted on each draw. The rankings of dev are compared with
those of rankers that need no judgements. The page says how much the result depends on which queries are judged.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from best_pages import RRF
from effectiveness import Space
from provenance import options, provenance, shown, table, write_page

from haybale import evaluate, open_collection, parse
from haybale.rankers import Training

COUNTS = (3, 10, 30, 100)
PLAIN = ("bm25", "bm25-doc", "parm-vrrf", RRF)
LEARNING = ("knn-queries", "svr", "learned")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="+", help="pydocs, or folders")
    parser.add_argument("--draws", type=int, default=10, help="draws of each number of queries")
    a = parser.parse_args()
    found = [measured(name, a.draws) for name in a.collections]
    lines = ["# Rankers that learn from few judged queries", ""]
    lines += [
        "nDCG@10 on dev, over TF-IDF. First rankers that need no judgements; `rrf` is",
        f"`{RRF}`.",
    ]
    lines += table(
        "collection|" + "|".join(f"`{'rrf' if name == RRF else name}`" for name in PLAIN),
        [[each["collection"], *(f"{value:.4f}" for value in each["plain"].values())] for each in found],
    )
    lines += [
        "",
        f"Then rankers that learn. Each number of training queries was drawn {a.draws} times at random: "
        "the mean, the worst and",
        "the best draw, and in how many draws the ranker was better than the best one that needs no judgements.",
    ]
    columns = "collection|judged queries|" + "|".join(f"`{name}`|better" for name in LEARNING)
    lines += table(columns, [row for each in found for row in rows(each)], 2)
    lines += ["", provenance(shown("bench_judgements.py", sys.argv[1:]))]
    write_page(a.results / "judgements.md", lines)


def rows(found: dict[str, Any]) -> list[list[str]]:
    listed = []
    for n, values in found["draws"].items():
        cells = [found["collection"], str(n)]
        for name in LEARNING:
            of = np.array(values[name])
            better = int((of > max(found["plain"].values())).sum())
            cells += [f"{of.mean():.4f} ({of.min():.4f} to {of.max():.4f})", f"{better} of {len(of)}"]
        listed.append(cells)
    return listed


def measured(name: str, draws: int) -> dict[str, Any]:
    """Return nDCG@10 on dev of each ranker, and of those that learn for each number of queries and each draw."""
    collection = open_collection(name, missing_judgements="skip")
    space = Space(collection, "tfidf")
    engine, dev, judged = space.training.batch.engine, space.batches["dev"], collection.qrels_frame("dev")
    qrels, train = collection.qrels_frame("train"), collection.split("train")

    def value(training: Training, ranker: str) -> float:
        run = parse(ranker)._fitted_copy(training).run(dev, 100)
        return float(evaluate(run, judged, ["nDCG@10"])["nDCG@10"].mean())

    plain = {ranker: value(space.training, ranker) for ranker in PLAIN}
    candidates = np.unique(train.relevant()[0])
    found: dict[int, dict[str, list[float]]] = {}
    for n in (n for n in COUNTS if n < len(candidates)):
        found[n] = {ranker: [] for ranker in LEARNING}
        for draw in range(draws):
            chosen = np.random.default_rng(draw).choice(candidates, n, replace=False)
            queries = collection.queries.take(np.sort(chosen))
            training = Training.of(engine, queries, qrels[qrels["query_id"].isin(queries.ids.to_pylist())])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there are few queries
                for ranker in LEARNING:
                    found[n][ranker].append(value(training, ranker))
        print(collection.name, n, {ranker: round(float(np.mean(v)), 4) for ranker, v in found[n].items()}, flush=True)
    return {"collection": collection.name, "plain": plain, "draws": found}


if __name__ == "__main__":
    main()
