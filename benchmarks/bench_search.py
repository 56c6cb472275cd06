"""Time exact search with NumPy beside faiss-cpu, which must be installed.

    python benchmarks/bench_search.py [--passages 50000 500000] [--rounds 5]

The 100 nearest passages of 1 and of 64 random queries, 384 dimensions, float32, with one and two threads. Both
alternate in one process; the page has the least seconds of each.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
from provenance import alternating, options, provenance, shown, table, write_page
from threadpoolctl import threadpool_limits

from haybale.retrieval.backends import BACKENDS

K, WIDTH = 100, 384


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--passages", type=int, nargs="+", default=[50_000, 500_000])
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    import faiss  # not needed for --help

    rng, rows = np.random.default_rng(0), []
    for n in a.passages:
        passages = rng.standard_normal((n, WIDTH), dtype=np.float32)
        for m in (1, 64):
            queries = rng.standard_normal((m, WIDTH), dtype=np.float32)
            works = {
                "faiss": partial(faiss.knn, queries, passages, K, metric=faiss.METRIC_INNER_PRODUCT),
                "numpy": partial(BACKENDS["numpy"].propose, queries, passages, K),
            }
            for threads in (1, 2):
                faiss.omp_set_num_threads(threads)
                with threadpool_limits(threads):
                    best = {name: min(seconds) for name, (seconds, _) in alternating(works, a.rounds).items()}
                rows.append((n, m, threads, best["faiss"], best["numpy"], best["faiss"] / best["numpy"]))
    lines = [
        "# Exact search on the CPU",
        "",
        f"Seconds for the {K} nearest passages, {WIDTH} dimensions; × is faiss / NumPy.",
    ]
    lines += [*table("passages | queries | threads | faiss | NumPy | ×", rows, words=0), ""]
    lines.append(provenance(shown("bench_search.py", sys.argv[1:]), more=("faiss-cpu",)))
    write_page(a.results / "search.md", lines)


if __name__ == "__main__":
    main()
