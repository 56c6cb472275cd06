"""What each stage costs as its size grows, on this machine: the curves from which docs/scaling.md calculates.

    python benchmarks/bench_scaling.py [--results benchmarks/results]

Vectors are synthetic (synthetic.py), 768 wide. Every point is the median of three runs after one that is not counted;
the ensembles are run once. Writes scaling.json, which docs/scaling.py reads, and
scaling.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import synthetic
from provenance import machine, median, options, provenance, table, timed, write_json, write_page

from haybale import PassageIndex, ProductKernelSVR, SVREnsemble
from haybale.device import CPU
from haybale.ensemble import SOLVERS, Dual, Problem
from haybale.ensemble.working_set import WORKING_SET
from haybale.retrieval import Vectors, aggregate

WIDTH, QUERIES, K, GAMMA = 768, 256, 100, 1.5
PASSAGES = (31_250, 62_500, 125_000, 250_000, 500_000)
ROWS = (2_000, 4_000, 8_000, 16_000, 32_000)
TRAINING = (500, 1_000, 2_000, 4_000)  # queries; 35 bags
SCORED = (2_500, 5_000, 10_000, 20_000, 40_000)  # pairs
PARAGRAPHS = (100, 300, 1_000, 3_000)  # of 1,000 hits each
CONTENT = {
    "search": "exact search of 256 queries, k = 100, float32 (NumPy)",
    "fit": "fit of one regressor, rows",
    "working_set": "the same fits' working sets",
    "bags": "fit of 35 bags, training queries of 50 candidates",
    "score": "scores of pairs by 35 bags of 2,000 rows",
    "rrf": "RRF of query paragraphs with 1,000 hits each",
    "vrrf": "VRRF of the same, vectors of 768",
}
Points = Iterator[tuple[str, dict[str, Any]]]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="*", help="some of the stages, for a trial")
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes, for a trial")
    a = parser.parse_args()
    curves: dict[str, list[dict[str, Any]]] = {}
    for stage in (searches, fits, bags, scores, aggregations):
        if not a.only or stage.__name__ in a.only:
            for name, point in stage(a.shrink):
                curves.setdefault(name, []).append(point)
                print(name, point, flush=True)
    large = np.ones((3072, 3072), dtype=np.float32)
    peak = 2.0 * 3072**3 / seconds(lambda: large @ large)[0]
    origin = provenance("python benchmarks/bench_scaling.py")
    lines = ["# How costs grow", "", f"One large float32 product runs at {peak / 1e9:.0f} GFLOP/s here."]
    for name, points in curves.items():
        extra = [key for key in points[0] if key not in ("n", "seconds")]
        rows = ([point["n"], point["seconds"], *(f"{point[key]:.4g}" for key in extra)] for point in points)
        lines += table(" | ".join([CONTENT[name], "seconds", *extra]), rows, words=0)
    write_page(a.results / "scaling.md", [*lines, "", origin])
    found = {"machine": machine(), "peak": peak, "curves": curves, "provenance": origin}
    write_json(a.results / "scaling.json", found)


def seconds(work: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """The median of some runs after a first, and the first's result."""
    result = work()
    return median(work, rounds), result


def searches(shrink: int) -> Points:
    """Exact search of vectors in memory."""
    for n in (n // shrink for n in PASSAGES):
        made = synthetic.collection(n, WIDTH, 24, CPU)
        queries, _ = made.queries(QUERIES, 1)
        index = PassageIndex(made.vectors)
        taken, _ = seconds(lambda index=index, queries=queries: index.search(queries, K))
        yield "search", {"n": n, "seconds": taken, "bytes": index.vectors.nbytes}


def fits(shrink: int) -> Points:
    """One regressor over whole queries, compiled and loaded before the first is timed."""
    duals: list[Dual] = []

    def noted(problem: Problem) -> Dual:
        """What the solver gave is kept."""
        duals.append(SOLVERS["working-set"](problem))
        return duals[-1]

    def fit(rows: synthetic.Pairs) -> ProductKernelSVR:
        model = ProductKernelSVR(gamma=GAMMA, memory_budget=8e9, solver=noted)
        return model.fit_pairs(rows.queries, rows.passages, rows.query, rows.passage, rows.label, rows.weight)

    few, _ = synthetic.pairs(600, 1, WIDTH, CPU)
    fit(few)
    for n in (n // shrink for n in ROWS):
        rows, _ = synthetic.pairs(n, 1, WIDTH, CPU)
        taken, model = seconds(lambda rows=rows: fit(rows))
        point = {"steps": model.n_iter_, "support": len(model.support_) / n, "passages": len(rows.passages)}
        yield "fit", {"n": n, "seconds": taken} | point
        point = {"steps": duals[-1].n_iter, "outer": duals[-1].n_working_sets, "working set": WORKING_SET}
        yield "working_set", {"n": n, "seconds": taken} | point


def learnable(shrink: int, m: int) -> tuple[synthetic.Synthetic, PassageIndex, Any, list[list[str]]]:
    """A collection, m queries and the document of each."""
    made = synthetic.collection(100_000 // shrink, WIDTH, 24, CPU)
    queries, about = made.queries(m, 1)
    return made, PassageIndex(made.vectors, made.doc_offsets), queries, [[str(document)] for document in about]


def bags(shrink: int) -> Points:
    """35 bags over the candidates of more and more training queries."""
    for m in (max(70, m // shrink) for m in TRAINING):
        _, index, queries, relevant = learnable(shrink, m)
        hits, model = index.search(queries, 50), SVREnsemble(35, n_jobs=-1)
        taken, _ = timed(lambda: model.fit(index, queries, relevant, candidates=hits))  # noqa: B023
        yield "bags", {"n": m, "seconds": taken, "rows a bag": float(np.mean(model.bag_sizes_))}


def scores(shrink: int) -> Points:
    """Pairs scored by the mean of 35 bags."""
    made, index, queries, relevant = learnable(shrink, 2_000 // shrink)
    model = SVREnsemble(35, rows_per_bag=2_000 // shrink, n_jobs=-1).fit(index, queries, relevant)
    for n in (n // shrink for n in SCORED):
        asked, _ = made.queries(max(1, n // 50), 2)
        passages = index.search(asked, 50).passages
        taken, _ = seconds(lambda asked=asked, passages=passages: model.score_candidates(asked, passages), rounds=1)
        yield "score", {"n": passages.size, "seconds": taken, "support passages": len(model.support_.passages)}


def aggregations(shrink: int) -> Points:
    """RRF and VRRF of query documents of 45 paragraphs."""
    made = synthetic.collection(100_000 // shrink, WIDTH, 45, CPU)
    index = PassageIndex(made.vectors, made.doc_offsets)
    for n in PARAGRAPHS:
        queries, _ = made.queries(n, 1)
        hits, offsets = index.search(queries, min(1000, len(index))), np.append(np.arange(0, n, 45), n)
        given = {"vectors": Vectors(index.vectors, queries)}
        for name in ("rrf", "vrrf"):
            taken, _ = seconds(lambda name=name: aggregate(hits, name, index.doc_of, offsets, **given))  # noqa: B023
            yield name, {"n": n, "seconds": taken, "hits": hits.passages.size}


if __name__ == "__main__":
    main()
