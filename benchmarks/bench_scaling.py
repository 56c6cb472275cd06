"""What each stage costs as its size grows, on this machine: the curves from which docs/scaling.md calculates.

    python benchmarks/bench_scaling.py [--results benchmarks/results]

Vectors are synthetic (synthetic.py), 768 wide. Every point is the median of three runs after one that is not counted;
the ensembles, building IVF and the working-set solver are run once. Writes scaling.json, which docs/scaling.py reads,
scaling.md and scaling.svg.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
from bench_gpu_svr import GAMMA, rows_of
from provenance import processor, provenance

from haybale import (
    ApproximateIndex,
    Collection,
    CollectionBuilder,
    EmbeddingStore,
    PassageIndex,
    ProductKernelSVR,
    ShardedIndex,
    SVREnsemble,
    embed,
)
from haybale.device import CPU
from haybale.ensemble import Dual, Problem
from haybale.ensemble.working_set import WORKING_SET, solve_working_set
from haybale.machine import cpus
from haybale.retrieval import Hits, Vectors, aggregate

WIDTH, QUERIES, K = 768, 256, 100
PASSAGES = (31_250, 62_500, 125_000, 250_000, 500_000)
STORED = (31_250, 62_500, 125_000)
LARGEST_TWIN = 16_000  # rows: on a CPU the working-set solver is many times slower than ours for CPUs
ROWS = (2_000, 4_000, 8_000, 16_000, 32_000)
TRAINING = (500, 1_000, 2_000, 4_000)  # queries; 35 bags
SCORED = (2_500, 5_000, 10_000, 20_000, 40_000)  # pairs
PARAGRAPHS = (100, 300, 1_000, 3_000)  # of 1,000 hits each
CONTENT = {
    "search": "exact search of 256 queries, k = 100, float32 (faiss)",
    "search16": "exact search of 256 queries, k = 100, float16 (tiles)",
    "sharded": "the same from a store on disk, read and searched in shards, float16",
    "ivf": "approximate search of 256 queries, k = 100 (IVF)",
    "ivf_build": "building IVF",
    "fit": "fit of one regressor, rows",
    "working_set": "the same by working sets, as a GPU would, on the CPU",
    "bags": "fit of 35 bags, training queries of 50 candidates",
    "score": "scores of pairs by 35 bags of 2,000 rows",
    "rrf": "RRF of query paragraphs with 1,000 hits each",
    "vrrf": "VRRF of the same, vectors of 768",
}


class Precomputed:
    """An encoder for texts that are numbers: rows of vectors made before."""

    def __init__(self, vectors: Any) -> None:
        self.vectors, self.width = vectors, int(vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> Any:
        return self.vectors[[int(text) for text in texts]].astype(np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "Precomputed", "shape": list(self.vectors.shape)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="*", help="some of the curves, for a trial")
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes, for a trial")
    a = parser.parse_args()
    curves: dict[str, list[dict[str, float]]] = {}
    for measure in (searches, stored, fits, bags, scores, aggregations):
        if not a.only or measure.__name__ in a.only:
            for name, point in measure(a.shrink):
                curves.setdefault(name, []).append(point)
                print(name, point, flush=True)
    found = {"machine": f"{processor()}, {cpus()} cores", "peak": peak(), "curves": curves}
    origin = provenance("python benchmarks/bench_scaling.py", more=("faiss-cpu", "zarr"))
    lines = ["# How costs grow", "", f"One large float32 product runs at {found['peak'] / 1e9:.0f} GFLOP/s here.", ""]
    for name, points in curves.items():
        extra = [key for key in points[0] if key not in ("n", "seconds")]
        lines += [
            f"| {CONTENT[name]} | seconds | {''.join(f'{key} | ' for key in extra)}",
            f"| ---: | ---: | {'---: | ' * len(extra)}",
        ]
        for point in points:
            values = "".join(f"{point[key]:.4g} | " for key in extra)
            lines.append(f"| {point['n']:,} | {point['seconds']:.3g} | {values}")
        lines.append("")
    lines += ["![the tables, drawn](scaling.svg)", "", origin, ""]
    found["provenance"] = origin
    (a.results / "scaling.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (a.results / "scaling.md").write_text("\n".join(lines), encoding="utf-8")
    draw(curves, a.results / "scaling.svg")


def seconds(work: Callable[..., Any], *given: Any, rounds: int = 3) -> tuple[float, Any]:
    """The median of some runs after a first, and the last result."""
    taken, result = [], work(*given)
    for _ in range(rounds):
        start = time.perf_counter()
        result = work(*given)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), result


def once(work: Callable[..., Any], *given: Any, **named: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work(*given, **named)
    return time.perf_counter() - start, result


def peak(side: int = 3072) -> float:
    """FLOP/s of one large float32 product on all cores."""
    a = np.ones((side, side), dtype=np.float32)
    return 2.0 * side**3 / seconds(np.matmul, a, a)[0]


def searches(shrink: int) -> Any:
    """Exact search in float32 and float16, and IVF with its recall."""
    for n in (n // shrink for n in PASSAGES):
        made = synthetic.collection(n, WIDTH, 24, CPU, np.float32)
        queries, _ = made.queries(QUERIES, 1)
        index = PassageIndex(made.vectors)
        taken, hits = seconds(index.search, queries, K)
        yield "search", {"n": n, "seconds": taken, "bytes": index.vectors.nbytes}
        half = PassageIndex(made.vectors, dtype="float16")
        taken, _ = seconds(half.search, queries, K)
        yield "search16", {"n": n, "seconds": taken, "bytes": half.vectors.nbytes}
        building, near = once(ApproximateIndex, made.vectors, method="ivf")
        yield "ivf_build", {"n": n, "seconds": building}
        taken, approximate = seconds(near.search, queries, K)
        pairs = zip(approximate.passages, hits.passages, strict=True)
        recall = float(np.mean([len(np.intersect1d(ours, exact)) / K for ours, exact in pairs]))
        yield "ivf", {"n": n, "seconds": taken, "recall": recall}


def stored(shrink: int) -> Any:
    """A store on disk, searched in shards that are read for every search."""
    for n in (n // shrink for n in STORED):
        made = synthetic.collection(n, WIDTH, 24, CPU, np.float16)
        queries, _ = made.queries(QUERIES, 1)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            embed(numbered(made), Precomputed(made.vectors), f"{folder}/store", dtype="float16", rows_per_chunk=4096)
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            index = ShardedIndex(EmbeddingStore(f"{folder}/store"), n_shards=4, memory_budget=1e8)
            taken, _ = seconds(index.search, queries, K)
            yield "sharded", {"n": n, "seconds": taken, "bytes": size}


def numbered(made: synthetic.Synthetic) -> Collection:
    """A collection whose passages are the numbers of their vectors."""
    builder = CollectionBuilder("synthetic")
    for document, (start, end) in enumerate(zip(made.doc_offsets[:-1], made.doc_offsets[1:], strict=True)):
        builder.add_document(str(document), [str(number) for number in range(start, end)])
    return builder.build()


def fits(shrink: int) -> Any:
    """One regressor over whole queries, compiled and loaded before the first is timed."""
    few, _ = rows_of(600, CPU)
    for solver in ("product", "working-set"):
        model = ProductKernelSVR(gamma=GAMMA, solver=solver)
        model.fit_pairs(few.queries, few.passages, few.query, few.passage, few.label, few.weight)
    for n in (n // shrink for n in ROWS):
        rows, _ = rows_of(n, CPU)
        given = rows.queries, rows.passages, rows.query, rows.passage, rows.label, rows.weight
        taken, model = seconds(ProductKernelSVR(gamma=GAMMA, memory_budget=8e9).fit_pairs, *given)
        support = len(model.support_) / len(rows.label)
        point = {"steps": model.n_iter_, "support": support, "passages": len(rows.passages)}
        yield "fit", {"n": n, "seconds": taken} | point
        if n <= LARGEST_TWIN:
            duals: list[Any] = []
            twin = ProductKernelSVR(gamma=GAMMA, memory_budget=8e9, solver=partial(noted, duals))
            taken, _ = once(twin.fit_pairs, *given)
            point = {"steps": duals[0].n_iter, "outer": duals[0].n_working_sets, "working set": WORKING_SET}
            yield "working_set", {"n": n, "seconds": taken} | point


def noted(duals: list[Any], problem: Problem) -> Dual:
    """The working-set solver, which a GPU runs, on the CPU; what it gave is kept."""
    duals.append(solve_working_set(problem))
    return duals[-1]


def bags(shrink: int) -> Any:
    """35 bags over the candidates of more and more training queries."""
    made = synthetic.collection(100_000 // shrink, WIDTH, 24, CPU, np.float32)
    index = PassageIndex(made.vectors, made.doc_offsets)
    for m in (max(70, m // shrink) for m in TRAINING):
        queries, about = made.queries(m, 1)
        hits, relevant = index.search(queries, 50), [[str(document)] for document in about]
        taken, model = once(SVREnsemble(35, n_jobs=-1).fit, index, queries, relevant, candidates=hits)
        yield "bags", {"n": m, "seconds": taken, "rows a bag": float(np.mean(model.bag_sizes_))}


def scores(shrink: int) -> Any:
    """Pairs scored by the mean of 35 bags."""
    made = synthetic.collection(100_000 // shrink, WIDTH, 24, CPU, np.float32)
    index = PassageIndex(made.vectors, made.doc_offsets)
    queries, about = made.queries(2_000 // shrink, 1)
    relevant = [[str(document)] for document in about]
    model = SVREnsemble(35, rows_per_bag=2_000 // shrink, n_jobs=-1).fit(index, queries, relevant)
    for n in (n // shrink for n in SCORED):
        asked, _ = made.queries(max(1, n // 50), 2)
        passages = index.search(asked, 50).passages
        taken, _ = seconds(model.score_candidates, asked, passages, rounds=1)
        yield "score", {"n": passages.size, "seconds": taken, "support passages": len(model.support_.passages)}


def aggregations(shrink: int) -> Any:
    """RRF and VRRF of query documents of 45 paragraphs."""
    made = synthetic.collection(100_000 // shrink, WIDTH, 45, CPU, np.float32)
    index = PassageIndex(made.vectors, made.doc_offsets)
    depth = min(1000, len(index))
    for paragraphs in PARAGRAPHS:
        queries, _ = made.queries(paragraphs, 1)
        hits = index.search(queries, depth)
        offsets = np.append(np.arange(0, paragraphs, 45), paragraphs)
        for name in ("rrf", "vrrf"):
            taken, _ = seconds(run, name, index, hits, queries, offsets)
            yield name, {"n": paragraphs, "seconds": taken, "hits": hits.passages.size}


def run(name: str, index: PassageIndex, hits: Hits, queries: Any, offsets: Any) -> Any:
    return aggregate(hits, name, index.doc_of, offsets, vectors=Vectors(index.vectors, queries))


def draw(curves: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Seconds over size, a panel for search, learning and aggregation."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "haybale"
    panels = (("search", "search16", "sharded", "ivf", "ivf_build"), ("fit", "bags", "score"), ("rrf", "vrrf"))
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for axis, names in zip(axes, panels, strict=True):
        for name in names:
            if name in curves:
                points = curves[name]
                axis.loglog([p["n"] for p in points], [p["seconds"] for p in points], "o-", label=CONTENT[name])
        axis.set_ylabel("seconds")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
