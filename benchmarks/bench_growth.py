"""How time and memory grow with rows, distinct passages, bags and candidates: a table and a plot.

    python benchmarks/bench_growth.py FOLDER [--cache FOLDER] [--results benchmarks/results]

Every point is measured in a process of its own, after a small problem has been solved: seconds, and by how much the
peak memory rose above what the data took.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import candidates as data
import numpy as np
from provenance import forget_peak, peak_memory, provenance

from haybale.ensemble import ProductKernelSVR, SVREnsemble
from haybale.retrieval import PassageIndex

GAMMA = (3.0, 2.5)
POINTS = {
    "rows": (2_000, 4_000, 8_000, 16_000, 26_000, 40_000),
    "passages": (500, 1_000, 2_000, 4_000, 8_000, 12_000),
    "bags": (2, 4, 8, 16, 35),
    "candidates": (10, 25, 50, 100, 200, 400),
}
WHAT = {
    "rows": "rows of one bag, whole queries (fit)",
    "passages": "distinct passages among 16,000 rows (fit)",
    "bags": "bags of 8,000 rows (fit of the ensemble)",
    "candidates": "candidates of each of 500 queries (scores of 8 bags of 8,000 rows)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="a folder with training queries")
    parser.add_argument("--cache", type=Path, default=Path("/var/tmp/haybale-benchmarks"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--point", nargs=2, help="measure one point, in this process")
    arguments = parser.parse_args()
    rows = data.load(arguments.collection, arguments.cache)
    if arguments.point:
        print(json.dumps(measure(rows, arguments.point[0], int(arguments.point[1]))))
        return
    command = [sys.executable, __file__, arguments.collection, "--cache", str(arguments.cache), "--point"]
    found: dict[str, list[dict[str, float]]] = {}
    for kind, values in POINTS.items():
        found[kind] = []
        for value in values:
            run = subprocess.run([*command, kind, str(value)], check=True, capture_output=True, text=True)
            found[kind].append({"value": value} | json.loads(run.stdout))
            print(kind, found[kind][-1], flush=True)
    lines = [f"# How time and memory grow, candidate rows of {rows.name}", "", "![the table, drawn](growth.svg)", ""]
    for kind, points in found.items():
        lines += [f"| {WHAT[kind]} | seconds | GB above the data |", "| ---: | ---: | ---: |"]
        lines += [f"| {point['value']:,} | {point['seconds']:.3g} | {point['above'] / 1e9:.3g} |" for point in points]
        lines.append("")
    lines.append(provenance(f"python benchmarks/bench_growth.py {rows.name}"))
    (arguments.results / "growth.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(found, arguments.results / "growth.svg")


def measure(rows: data.Candidates, kind: str, value: int) -> dict[str, float]:
    """Seconds and bytes of one point."""
    prepared = {"rows": _rows, "passages": _passages, "bags": _bags, "candidates": _candidates}[kind](rows, value)
    forget_peak()
    before = peak_memory()
    start = time.perf_counter()
    prepared()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "above": peak_memory() - before}


def _rows(rows: data.Candidates, value: int) -> Callable[[], object]:
    return _fit(*rows.half(rows.sample(value)), memory_budget=12e9)


def _passages(rows: data.Candidates, value: int) -> Callable[[], object]:
    queries, passages, query, passage, y = rows.half(rows.sample(16_000))
    return _fit(queries, passages[:value], query, passage % value, y)


def _fit(
    queries: np.ndarray, passages: np.ndarray, query: np.ndarray, passage: np.ndarray, y: np.ndarray, **more: float
):
    model = ProductKernelSVR(gamma=GAMMA, **more)
    small = np.arange(200) % min(200, len(passages), len(queries))
    model.fit_pairs(queries[:200], passages[:200], small, small, np.arange(200) % 2)
    return lambda: model.fit_pairs(queries, passages, query, passage, y, np.where(y > 0, 3.0, 1.0))


def _ensemble(rows: data.Candidates, n_bags: int) -> tuple[PassageIndex, Callable[[], SVREnsemble]]:
    index = PassageIndex(rows.passages, backend="numpy")
    settings = {"rows_per_bag": 8_000, "random_state": 0, "n_jobs": -1}
    few = rows.rows.take(np.flatnonzero(rows.rows.query < 100))  # compiled and loaded, and little memory
    small = SVREnsemble(4, n_jobs=-1).fit_rows(index, rows.queries, few)
    small.score_candidates(rows.queries[:2], np.arange(8).reshape(2, 4))
    # As many bags as asked for, each drawn from a thirty-fifth of the queries and what it shares with others.
    parts = np.unique(rows.rows.query)[: len(np.unique(rows.rows.query)) * n_bags // 35]
    chosen = rows.rows.take(np.flatnonzero(np.isin(rows.rows.query, parts)))
    return index, lambda: SVREnsemble(n_bags, **settings).fit_rows(index, rows.queries, chosen)


def _bags(rows: data.Candidates, value: int) -> Callable[[], object]:
    return _ensemble(rows, value)[1]


def _candidates(rows: data.Candidates, value: int) -> Callable[[], object]:
    index, fit = _ensemble(rows, 8)
    model = fit()
    queries = rows.queries[-500:]
    passages = index.search(queries, value).passages
    return lambda: model.score_candidates(queries, passages)


def draw(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Four panels: seconds on the left, gigabytes on the right, all axes logarithmic."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "haybale"
    figure, panels = pyplot.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    for panel, (kind, points) in zip(panels.flat, found.items(), strict=True):
        values = [point["value"] for point in points]
        panel.loglog(values, [point["seconds"] for point in points], "o-", color="tab:blue")
        panel.set_xlabel(WHAT[kind], fontsize=8)
        panel.set_ylabel("seconds", color="tab:blue")
        panel.grid(alpha=0.3)
        memory = panel.twinx()
        memory.loglog(values, [max(point["above"], 1e6) / 1e9 for point in points], "s--", color="tab:orange")
        memory.set_ylabel("GB above the data", color="tab:orange")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
