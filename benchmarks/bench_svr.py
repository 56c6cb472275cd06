"""Fit and predict of one regressor and of an ensemble, against sklearn.svm.SVR and scikit-learn-intelex.

    pip install scikit-learn-intelex
    python benchmarks/bench_svr.py FOLDER [--cache FOLDER] [--results benchmarks/results]

All take the same float32 features, γ, C, ε, tol and weights; ours finds the distinct halves itself, which is part of
its time. Peers and ours alternate in every round. sklearn is single-threaded, the others use all cores. Before
the first round everything has run once on a few rows, so that nothing is compiled or loaded inside a measurement.

In every round the fast ones run twice, one directly after the other, and both runs are reported: the first also pays
for memory that the system has to find first, which on a virtual machine can cost as much as the computation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import candidates as data
import numpy as np
from joblib import Parallel, delayed
from provenance import provenance
from sklearn.svm import SVR

from haybale.ensemble import ProductKernelSVR, SVREnsemble
from haybale.retrieval import PassageIndex

GAMMA, TOL = 1.5, 1e-3
SETTINGS = {"C": 1.0, "epsilon": 0.1, "gamma": GAMMA, "tol": TOL}
BAGS = {"n_bags": 35, "overlap": 0.6, "gamma": GAMMA, "positive_weight": 3.0}
# rows, every passage once, new rows to predict, rounds, rounds of sklearn
CASES = ((3_000, True, 3_000, 5, 3), (8_000, True, 8_000, 5, 2), (26_000, False, 2_000, 3, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="a folder with training queries")
    parser.add_argument("--cache", type=Path, default=Path("/var/tmp/haybale-benchmarks"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rows = data.load(arguments.collection, arguments.cache)
    peers = {"haybale": _ours, "sklearn": lambda: SVR(**SETTINGS, cache_size=2000)}
    try:
        from sklearnex.svm import SVR as IntelSVR

        peers["scikit-learn-intelex"] = lambda: IntelSVR(**SETTINGS)
    except ImportError:
        print("scikit-learn-intelex is not installed: left out")
    lines = [f"# The regressor and its peers, candidate rows of {rows.name}", "", _doc(), ""]
    command, extra = f"python benchmarks/bench_svr.py {rows.name}", [p for p in peers if p.startswith("scikit")]
    lines += _table([_case(rows, peers, *case) for case in CASES])
    lines += [
        "",
        *_ensemble(rows),
        "",
        provenance(command, more=tuple(extra)),
    ]
    path = arguments.results / "svr.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _ours() -> ProductKernelSVR:
    return ProductKernelSVR(**SETTINGS, split=data.WIDTH)


def _doc() -> str:
    return (
        f"[q ; p] of LSA vectors, 1,536 features, float32; C 1, ε 0.1, γ {GAMMA}, tol {TOL}, weight 3 on relevant "
        "rows. Seconds are medians of the rounds; × is a peer's median over ours. Predictions are of other rows than "
        "the training's. Difference: the largest between a peer's predictions and ours; support vectors: the peer's, "
        "and how many more than ours."
    )


def _case(
    rows: data.Candidates, peers: dict[str, Callable[[], Any]], n: int, unique: bool, new: int, rounds: int, slow: int
) -> dict[str, Any]:
    """Alternate the peers on one size."""
    chosen = rows.sample(n + new, unique=unique)
    test = np.sort(np.random.default_rng(1).choice(len(chosen), new, replace=False))
    train = np.delete(chosen, test)
    x, y = rows.features(train), rows.rows.label[train].astype(np.float64)
    weight, x_new = np.where(y > 0, 3.0, 1.0), rows.features(chosen[test])
    seconds: dict[str, dict[str, list[float]]] = {name: {"first": [], "fit": [], "predict": []} for name in peers}
    found: dict[str, tuple[np.ndarray, int]] = {}
    for make in peers.values():
        make().fit(x[:300], y[:300], sample_weight=weight[:300]).predict(x_new[:300])
    for number in range(rounds):
        for name, make in peers.items():
            if name == "sklearn" and number >= slow:
                continue
            for again in (False, True) if name != "sklearn" else (True,):
                start = time.perf_counter()
                model = make().fit(x, y, sample_weight=weight)
                middle = time.perf_counter()
                found[name] = model.predict(x_new), len(model.support_)
                end = time.perf_counter()
                if again:
                    seconds[name]["fit"].append(middle - start)
                    seconds[name]["predict"].append(end - middle)
                if not again or name == "sklearn":
                    seconds[name]["first"].append(middle - start)
                print(f"  {n} {name} fit {middle - start:.3f} predict {end - middle:.3f}", flush=True)
    passages = len(np.unique(rows.rows.passage[train]))
    return {"rows": n, "new": new, "passages": passages, "seconds": seconds, "found": found}


def _table(cases: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| rows | passages | | fit s | × | first fit s | × | predict s (rows) | × | support vectors | difference |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in cases:
        median = {
            name: {what: statistics.median(values) for what, values in of.items()}
            for name, of in case["seconds"].items()
        }
        ours, ours_found = median["haybale"], case["found"]["haybale"]
        for name, own in median.items():
            predicted, vectors = case["found"][name]
            times = [
                f"{own[what] / ours[what]:.1f}" if name != "haybale" else "" for what in ("fit", "first", "predict")
            ]
            apart = f"{np.abs(predicted - ours_found[0]).max():.1e}" if name != "haybale" else ""
            share = f" ({vectors / ours_found[1] - 1:+.2%})" if name != "haybale" else ""
            n = len(case["seconds"][name]["fit"])
            lines.append(
                f"| {case['rows']:,} | {case['passages']:,} | {name} ({n} rounds) | {own['fit']:.3g} | {times[0]} | "
                f"{own['first']:.3g} | {times[1]} | {own['predict']:.3g} ({case['new']:,}) | {times[2]} | "
                f"{vectors:,}{share} | {apart} |"
            )
    return lines


def _ensemble(rows: data.Candidates) -> list[str]:
    """35 bags over the candidates of about 1,250 queries, which share passages; sklearn bag by bag on all cores."""
    chosen = rows.sample(42_000)
    queries, passages, query, passage, y = rows.half(chosen)
    index, candidate = (
        PassageIndex(passages),
        data.CandidateRows(query.astype(np.int32), passage.astype(np.int32), y.astype(np.int8)),
    )
    SVREnsemble(**BAGS, n_jobs=-1, rows_per_bag=100).fit_rows(index, queries, candidate)
    ours, theirs = [], []
    for number in range(3):
        start = time.perf_counter()
        model = SVREnsemble(**BAGS, n_jobs=-1).fit_rows(index, queries, candidate)
        ours.append(time.perf_counter() - start)
        print(f"  ensemble {ours[-1]:.2f}", flush=True)
        if number == 0:
            bags = model._bags(candidate, queries).rows
            start = time.perf_counter()
            Parallel(n_jobs=-1)(delayed(_sklearn_bag)(rows.features(chosen[bag]), y[bag]) for bag in bags)
            theirs.append(time.perf_counter() - start)
    ratio = theirs[0] / statistics.median(ours)
    return [
        f"An ensemble: {len(bags)} bags of {np.mean([len(bag) for bag in bags]):,.0f} rows on average over "
        f"{len(chosen):,} rows, {len(queries):,} queries and {len(passages):,} passages: "
        f"{statistics.median(ours):.2f} s (median of 3), sklearn on the features of each bag, all cores: "
        f"{theirs[0]:.1f} s (once), {ratio:.0f} ×."
    ]


def _sklearn_bag(x: np.ndarray, y: np.ndarray) -> None:
    SVR(**SETTINGS, cache_size=2000).fit(x, y, sample_weight=np.where(y > 0, 3.0, 1.0))


if __name__ == "__main__":
    main()
