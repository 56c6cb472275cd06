"""Would Gram matrices in float16 do? What storing them so does to predictions, beside what the tolerance does.

    python benchmarks/bench_half_grams.py [--rows 4000] [--results benchmarks/results]

A problem of wide vectors and one of narrow ones, solved with exact Gram matrices and with both rounded to float16
(values in 0..1, so to 2^-11 of each); predictions are by the exact kernel. The reference is solved to 1e-6.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_gpu_svr import GAMMA, rows_of
from provenance import provenance, shown

from haybale.device import CPU
from haybale.ensemble import Problem
from haybale.ensemble.gram import gram
from haybale.ensemble.solvers.product import solve_product
from haybale.ensemble.spaces import fit_spaces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    a = parser.parse_args()
    lines = [
        "# Gram matrices in float16",
        "",
        f"{a.rows:,} candidate rows, γ {GAMMA}; the largest difference of predictions from a solution to 1e-6.",
        "",
        "| width | passages | C | tol | float32 | float16 | |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for width in (768, 64):
        rows, _ = rows_of(a.rows, CPU, width=width)
        spaces = fit_spaces(rows.query, rows.passage, [rows.queries], [rows.passages], GAMMA)
        halves = spaces.queries([rows.queries]), spaces.passages([rows.passages])
        exact = gram(halves[0]), gram(halves[1])
        rounded = tuple(matrix.astype(np.float16).astype(np.float32) for matrix in exact)
        for cost in (1.0, 10.0):
            problem = Problem(*halves, rows.query, rows.passage, rows.label, rows.weight, C=cost, grams=exact)
            kernel = problem.gram().astype(np.float64)
            reference = predicted(kernel, replace(problem, tol=1e-6))
            for tol in (1e-3, 1e-4):
                apart = [
                    np.abs(predicted(kernel, replace(problem, tol=tol, grams=grams)) - reference).max()
                    for grams in (exact, rounded)
                ]
                lines.append(
                    f"| {width} | {len(rows.passages):,} | {cost:g} | {tol:g} | {apart[0]:.1e} | {apart[1]:.1e} | "
                    f"{apart[1] / apart[0]:.1f} times |"
                )
    lines += ["", provenance(shown("bench_half_grams.py", sys.argv[1:])), ""]
    (a.results / "half-grams.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


def predicted(kernel: np.ndarray, problem: Problem) -> np.ndarray:
    dual = solve_product(problem)
    return kernel @ dual.coef + dual.intercept


if __name__ == "__main__":
    main()
