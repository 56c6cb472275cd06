"""Exact search of many queries over float16 vectors, against a bare matrix product and the backends that are here.

    python benchmarks/bench_gpu_knn.py                               # 10,000 queries × 3.1 M × 768, on cuda
    python benchmarks/bench_gpu_knn.py --device cpu --scale 0.01     # to try the script

The bare product makes the same scores in the same tiles and throws them away: what a search cannot be faster than
without skipping vectors. The card's peak is that of one large product of the same types. Every backend searches the
same array; hits are compared with a brute force in float64 on the CPU for some queries.
"""

from __future__ import annotations

from typing import Any

import gpu_report
import numpy as np
import synthetic

from haybale import ApproximateIndex, PassageIndex
from haybale.device import to_numpy
from haybale.errors import HaybaleError
from haybale.retrieval.exact.products import products
from haybale.vectors import array_namespace

QUERIES, PASSAGES, WIDTH = 10_000, 3_100_000, 768
CHECKED = 20  # queries of the brute force
PEAK = 8192  # rows, columns and depth of the product that measures the peak


def main() -> None:
    parser = gpu_report.options(__doc__)
    parser.add_argument("--k", type=int, nargs="*", default=[50, 1000])
    a = parser.parse_args()
    device = gpu_report.chosen_device(a.device)
    clock = gpu_report.Clock(device)
    m, n = gpu_report.count(QUERIES, a.scale, 16), gpu_report.count(PASSAGES, a.scale, 2000)
    made = synthetic.collection(n, WIDTH, 24, device, np.float16)
    queries, _ = made.queries(m, 1)
    flops = 2.0 * m * n * WIDTH
    side = PEAK if not device.is_cpu else 1024
    peak = measured_peak(clock, side)
    bare = clock.alternating({"bare product": lambda: bare_product(queries, made.vectors)}, a.rounds)["bare product"][0]
    lines = [
        f"{m:,} queries × {n:,} passages × {WIDTH}, vectors stored as float16, exact inner products. One product of "
        f"{side:,} × {side:,} × {side:,} in these types runs at {peak / 1e12:.3g} TFLOP/s. The bare product of the "
        f"search takes {bare:.3g} s, {flops / bare / 1e12:.3g} TFLOP/s, {flops / bare / peak:.0%} of that.",
        "",
        "| backend | k | seconds | queries/s | × bare product | same hits as brute force | recall |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    exact, left_out = indexes(made, device)
    for k in (min(k, n) for k in a.k):
        works = {name: (lambda index=index, k=k: index.search(queries, k)) for name, index in exact.items()}
        found = clock.alternating(works, a.rounds)
        expected = brute_force(to_numpy(queries[:CHECKED]), made.vectors, k)
        for name, (seconds, hits) in found.items():
            numbers = to_numpy(hits.passages[:CHECKED])
            same = float(np.mean(numbers == expected))
            shared = np.mean([len(np.intersect1d(x, y)) / k for x, y in zip(numbers, expected, strict=True)])
            lines.append(
                f"| {name} | {k:,} | {seconds:.3g} | {m / seconds:,.0f} | {seconds / bare:.2f} | {same:.2%} "
                f"| {shared:.4f} |"
            )
            print(lines[-1], flush=True)
    lines += ["", *left_out]
    gpu_report.write(a, "bench_gpu_knn", "Exact search on a device", lines)


def indexes(made: synthetic.Synthetic, device: Any) -> tuple[dict[str, PassageIndex], list[str]]:
    """An index a backend that is here, the approximate ones last; and why others are left out."""
    found: dict[str, PassageIndex] = {}
    left_out = []
    names = ("numpy",) if device.is_cpu else ("cupy", "cuvs", "faiss-gpu")
    for name in names:
        try:
            found[name] = PassageIndex(made.vectors, made.doc_offsets, backend=name, dtype="float16")
        except HaybaleError as error:
            left_out.append(f"- left out: {name}: {error}")
    for method in ("ivf",) if device.is_cpu else ("cagra", "ivf"):
        try:
            found[f"approximate, {method}"] = ApproximateIndex(
                made.vectors, made.doc_offsets, method=method, dtype="float16"
            )
        except HaybaleError as error:
            left_out.append(f"- left out: {method}: {error}")
    return found, left_out


def bare_product(queries: Any, vectors: Any, rows: int = 2048, columns: int = 65_536) -> None:
    """All scores, tile by tile, thrown away."""
    xp = array_namespace(vectors)
    queries = queries.astype(np.float16)
    out = xp.empty(min(rows, len(queries)) * min(columns, len(vectors)), dtype=np.float32)
    for top in range(0, len(queries), rows):
        for left in range(0, len(vectors), columns):
            q, p = queries[top : top + rows], vectors[left : left + columns]
            products(q, p, out[: len(q) * len(p)].reshape(len(q), len(p)))


def measured_peak(clock: gpu_report.Clock, side: int) -> float:
    """FLOP/s of one large product in the types of the search."""
    xp = clock.device.xp
    a, out = xp.full((side, side), 0.01, dtype=np.float16), xp.empty((side, side), dtype=np.float32)
    seconds = clock.alternating({"peak": lambda: products(a, a, out)}, 3)["peak"][0]
    return 2.0 * side**3 / seconds


def brute_force(queries: Any, vectors: Any, k: int, block: int = 100_000) -> Any:
    """(m, k) passage numbers by float64 products on the CPU and a full sort; equal scores by number."""
    scores = np.concatenate(
        [
            queries.astype(np.float64) @ to_numpy(vectors[start : start + block]).astype(np.float64).T
            for start in range(0, len(vectors), block)
        ],
        axis=1,
    ).astype(np.float32)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


if __name__ == "__main__":
    main()
