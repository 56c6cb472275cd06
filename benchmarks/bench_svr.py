"""Fit and predict of one regressor, against sklearn.svm.SVR and scikit-learn-intelex.

    pip install scikit-learn-intelex
    python benchmarks/bench_svr.py FOLDER [--results benchmarks/results]

Rows are 20 BM25 and 20 nearest passages of every training query, over LSA vectors of 768 numbers, so that [q ; p] has
the 1,536 features of the paper's Longformer. All take the same float32 features, γ, C, ε, tol and weights; ours finds
the distinct halves itself, which is part of its time. Peers and ours alternate in every round. sklearn is
single-threaded, the others use all cores. Before the first round everything has run once on a few rows, so that
nothing is compiled or loaded inside a measurement.

In every round the fast ones run twice, one directly after the other, and the second is reported: the first also pays
for memory that the system has to find, which on a virtual machine can cost as much as the computation.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from provenance import options, provenance, row, shown, timed, write_page
from sklearn.svm import SVR

from haybale import Engine, ProductKernelSVR, pool
from haybale.ensemble import CandidateRows, candidate_rows
from haybale.rankers import BM25, KNN, Training
from haybale.stages import listening

WIDTH = 768
GAMMA, TOL = 1.5, 1e-3
SETTINGS = {"C": 1.0, "epsilon": 0.1, "gamma": GAMMA, "tol": TOL}
# rows, every passage once, new rows to predict, rounds, rounds of sklearn
CASES = ((3_000, True, 3_000, 5, 3), (8_000, True, 8_000, 5, 2), (26_000, False, 2_000, 3, 1))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="a folder with training queries")
    a = parser.parse_args()
    rows = Candidates.of(a.collection)
    peers = {
        "haybale": lambda: ProductKernelSVR(**SETTINGS, split=WIDTH),
        "sklearn": lambda: SVR(**SETTINGS, cache_size=2000),
    }
    try:
        from sklearnex.svm import SVR as IntelSVR

        peers["scikit-learn-intelex"] = lambda: IntelSVR(**SETTINGS)
    except ImportError:
        print("scikit-learn-intelex is not installed: left out")
    more = tuple(name for name in peers if name.startswith("scikit"))
    lines = [
        f"# The regressor and its peers, candidate rows of {rows.name}",
        "",
        f"[q ; p] of LSA vectors, 1,536 features, float32; C 1, ε 0.1, γ {GAMMA}, tol {TOL}, weight 3 on relevant "
        "rows. Seconds are medians of the rounds; × is a peer's median over ours. Predictions are of other rows than "
        "the training's. Difference: the largest between a peer's predictions and ours; support vectors: the peer's, "
        "and how many more than ours.",
        "",
        "| rows | passages | | fit s | × | predict s | × | support vectors | difference |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(line for case in CASES for line in compared(rows, peers, *case)),
        "",
        provenance(shown("bench_svr.py", sys.argv[1:]), more=more),
    ]
    write_page(a.results / "svr.md", lines)


@dataclass(frozen=True)
class Candidates:
    """Vectors (m, 768) and (n_passages, 768) float32, and the rows over them."""

    name: str
    queries: np.ndarray
    passages: np.ndarray
    rows: CandidateRows

    @classmethod
    def of(cls, collection: str) -> Candidates:
        """The candidates of a collection's training queries."""
        with listening(lambda stage, seconds: print(f"  {stage} {seconds:.0f} s", flush=True)):
            engine = Engine(collection, encoder="lsa", n_components=WIDTH)
            batch, index = Training.of(engine).batch, engine.passages
            found = pool(*(ranker.passage_hits(batch, 20) for ranker in (BM25(), KNN())))
        relevant = engine.collection.relevant_ids("train")
        rows = candidate_rows("end-to-end", found, relevant, index, batch.vectors, batch.own)
        return cls(engine.collection.name, batch.vectors, index.vectors, rows)

    def sample(self, n: int, *, unique: bool = False) -> np.ndarray:
        """Numbers of about n rows, whole queries in random order; ``unique``: no passage occurs twice."""
        order = np.random.default_rng(0).permutation(len(self.queries))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        chosen = np.argsort(place[self.rows.query], kind="stable")
        if unique:
            _, first = np.unique(self.rows.passage[chosen], return_index=True)
            chosen = chosen[np.sort(first)]
        return np.sort(chosen[:n])

    def features(self, chosen: np.ndarray) -> np.ndarray:
        """(n, 1536) float32 [q ; p]."""
        return np.concatenate([self.queries[self.rows.query[chosen]], self.passages[self.rows.passage[chosen]]], axis=1)


def compared(
    rows: Candidates, peers: dict[str, Callable[[], Any]], n: int, unique: bool, new: int, rounds: int, slow: int
) -> list[str]:
    """Alternate the peers on one size: a line each."""
    chosen = rows.sample(n + new, unique=unique)
    test = np.sort(np.random.default_rng(1).choice(len(chosen), min(new, len(chosen) // 2), replace=False))
    train = np.delete(chosen, test)
    x, y, x_new = rows.features(train), rows.rows.label[train].astype(np.float64), rows.features(chosen[test])
    weights = np.where(y > 0, 3.0, 1.0)
    for make in peers.values():
        make().fit(x[:300], y[:300], sample_weight=weights[:300]).predict(x_new[:300])
    seconds: dict[str, dict[str, list[float]]] = {name: {"fit": [], "predict": []} for name in peers}
    found: dict[str, tuple[np.ndarray, int]] = {}
    for number in range(rounds):
        for name, make in peers.items():
            if name == "sklearn" and number >= slow:
                continue
            if name != "sklearn":
                make().fit(x, y, sample_weight=weights).predict(x_new)
            fitting, model = timed(lambda make=make: make().fit(x, y, sample_weight=weights))
            predicting, predicted = timed(lambda model=model: model.predict(x_new))
            found[name] = predicted, len(model.support_)
            seconds[name]["fit"].append(fitting)
            seconds[name]["predict"].append(predicting)
            print(f"  {n} {name} fit {fitting:.3f} predict {predicting:.3f}", flush=True)
    taken = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in seconds.items()}
    ours, (ours_predicted, ours_vectors) = taken["haybale"], found["haybale"]
    sizes = f"{len(train):,}", f"{len(np.unique(rows.rows.passage[train])):,}"
    lines = []
    for name, mine in taken.items():
        predicted, vectors = found[name]
        times, support, apart = ["", ""], f"{vectors:,}", ""
        if name != "haybale":
            times = [f"{mine[what] / ours[what]:.1f}" for what in ("fit", "predict")]
            support += f" ({vectors / ours_vectors - 1:+.2%})"
            apart = f"{np.abs(predicted - ours_predicted).max():.1e}"
        rounds_of = f"{name} ({len(seconds[name]['fit'])} rounds)"
        lines.append(row(*sizes, rounds_of, mine["fit"], times[0], mine["predict"], times[1], support, apart))
    return lines


if __name__ == "__main__":
    main()
