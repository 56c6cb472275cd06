"""Fit and predict of one regressor and of an ensemble, against sklearn.svm.SVR and scikit-learn-intelex.

    pip install scikit-learn-intelex
    python benchmarks/bench_svr.py FOLDER [--results benchmarks/results]

Rows are 20 BM25 and 20 nearest passages of every training query, over LSA vectors of 768 numbers, so that [q ; p] has
the 1,536 features of the paper's Longformer. All take the same float32 features, γ, C, ε, tol and weights; ours finds
the distinct halves itself, which is part of its time. Peers and ours alternate in every round. sklearn is
single-threaded, the others use all cores. Before the first round everything has run once on a few rows, so that
nothing is compiled or loaded inside a measurement.

In every round the fast ones run twice, one directly after the other, and both runs are reported: the first also pays
for memory that the system has to find first, which on a virtual machine can cost as much as the computation.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from provenance import options, provenance, shown, timed, write_page
from sklearn.svm import SVR

from haybale import PassageIndex, ProductKernelSVR, SVREnsemble, pool
from haybale.engine import Engine
from haybale.ensemble import CandidateRows, candidate_rows
from haybale.rankers import BM25, KNN, Training
from haybale.stages import listening

WIDTH = 768
GAMMA, TOL, POSITIVE_WEIGHT = 1.5, 1e-3, 3.0
SETTINGS = {"C": 1.0, "epsilon": 0.1, "gamma": GAMMA, "tol": TOL}
BAGS, OVERLAP = 35, 0.6
# rows, every passage once, new rows to predict, rounds, rounds of sklearn
CASES = ((3_000, True, 3_000, 5, 3), (8_000, True, 8_000, 5, 2), (26_000, False, 2_000, 3, 1))
ENSEMBLE_ROWS = 42_000


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="a folder with training queries")
    a = parser.parse_args()
    rows = Candidates.of(a.collection)
    peers = {"haybale": lambda: ProductKernelSVR(**SETTINGS, split=WIDTH), "sklearn": sklearn_svr}
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
        "| rows | passages | | fit s | × | first fit s | × | predict s (rows) | × | support vectors | difference |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(line for case in CASES for line in compared(rows, peers, *case)),
        "",
        ensemble(rows),
        "",
        provenance(shown("bench_svr.py", sys.argv[1:]), more=more),
    ]
    write_page(a.results / "svr.md", lines)


def sklearn_svr() -> SVR:
    return SVR(**SETTINGS, cache_size=2000)


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
            engine = Engine(collection, encoder="lsa", width=WIDTH)
            batch, index = Training.of(engine).batch, engine.passages
            found = pool(*(ranker.passage_hits(batch, 20) for ranker in (BM25(), KNN())))
        pairs = engine.collection.split("train").relevant_rows()
        rows = candidate_rows("end-to-end", found, pairs, index, batch.vectors)
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

    def labels(self, chosen: np.ndarray) -> np.ndarray:
        return self.rows.label[chosen].astype(np.float64)


def weights(y: np.ndarray) -> np.ndarray:
    return np.where(y > 0, POSITIVE_WEIGHT, 1.0)


def compared(
    rows: Candidates, peers: dict[str, Callable[[], Any]], n: int, unique: bool, new: int, rounds: int, slow: int
) -> list[str]:
    """Alternate the peers on one size: a line each."""
    chosen = rows.sample(n + new, unique=unique)
    test = np.sort(np.random.default_rng(1).choice(len(chosen), min(new, len(chosen) // 2), replace=False))
    train = np.delete(chosen, test)
    x, y, x_new = rows.features(train), rows.labels(train), rows.features(chosen[test])
    for make in peers.values():
        make().fit(x[:300], y[:300], sample_weight=weights(y[:300])).predict(x_new[:300])
    seconds: dict[str, dict[str, list[float]]] = {name: {"fit": [], "first": [], "predict": []} for name in peers}
    found: dict[str, tuple[np.ndarray, int]] = {}
    for number in range(rounds):
        for name, make in peers.items():
            once = name == "sklearn"
            if once and number >= slow:
                continue
            for again in (True,) if once else (False, True):
                fitting, model = timed(lambda make=make: make().fit(x, y, sample_weight=weights(y)))
                predicting, predicted = timed(lambda model=model: model.predict(x_new))
                found[name] = predicted, len(model.support_)
                if again:
                    seconds[name]["fit"].append(fitting)
                    seconds[name]["predict"].append(predicting)
                if once or not again:
                    seconds[name]["first"].append(fitting)
                print(f"  {n} {name} fit {fitting:.3f} predict {predicting:.3f}", flush=True)
    taken = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in seconds.items()}
    ours, (ours_predicted, ours_vectors) = taken["haybale"], found["haybale"]
    lines = []
    for name, mine in taken.items():
        predicted, vectors = found[name]
        times, apart, share = dict.fromkeys(mine, ""), "", ""
        if name != "haybale":
            times = {what: f"{mine[what] / ours[what]:.1f}" for what in mine}
            apart = f"{np.abs(predicted - ours_predicted).max():.1e}"
            share = f" ({vectors / ours_vectors - 1:+.2%})"
        lines.append(
            f"| {len(train):,} | {len(np.unique(rows.rows.passage[train])):,} | {name} ({len(seconds[name]['fit'])} "
            f"rounds) | {mine['fit']:.3g} | {times['fit']} | {mine['first']:.3g} | {times['first']} | "
            f"{mine['predict']:.3g} ({len(test):,}) | {times['predict']} | {vectors:,}{share} | {apart} |"
        )
    return lines


def ensemble(rows: Candidates) -> str:
    """35 bags over the candidates of about 1,250 queries, which share passages; sklearn bag by bag on all cores.

    Its bags are of as many rows as ours have on average: what a row costs does not depend on which it is.
    """
    chosen = rows.sample(ENSEMBLE_ROWS)
    index, candidates = PassageIndex(rows.passages), rows.rows.take(chosen)
    settings = {"n_bags": BAGS, "overlap": OVERLAP, "gamma": GAMMA, "positive_weight": POSITIVE_WEIGHT, "n_jobs": -1}
    SVREnsemble(**settings, rows_per_bag=100).fit_rows(index, rows.queries, candidates)
    ours = [timed(lambda: SVREnsemble(**settings).fit_rows(index, rows.queries, candidates)) for _ in range(3)]
    seconds, model = statistics.median(taken for taken, _ in ours), ours[-1][1]
    size = round(np.mean(model.bag_sizes_))
    starts = np.linspace(0, len(chosen) - size, BAGS).astype(int)
    theirs, _ = timed(lambda: Parallel(n_jobs=-1)(delayed(fit_bag)(rows, chosen[s : s + size]) for s in starts))
    return (
        f"An ensemble: {BAGS} bags of {size:,} rows on average over {len(chosen):,} rows, "
        f"{len(np.unique(candidates.query)):,} queries and {len(np.unique(candidates.passage)):,} passages: "
        f"{seconds:.2f} s (median of 3), sklearn on the features of bags of that size, all cores: {theirs:.1f} s "
        f"(once), {theirs / seconds:.0f} ×."
    )


def fit_bag(rows: Candidates, bag: np.ndarray) -> None:
    y = rows.labels(bag)
    sklearn_svr().fit(rows.features(bag), y, sample_weight=weights(y))


if __name__ == "__main__":
    main()
