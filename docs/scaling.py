"""Makes docs/scaling.md from docs/scaling_template.md and the measured curves in benchmarks/results/scaling.json.

    python docs/scaling.py [FOLDER]

Every number of the page is one that was measured, one that is assumed and named as such at the top of the page, or
calculated from these; the arithmetic is shown.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SIZES = {"3 M": 3_095_383, "100 M": 100_000_000, "10 B": 10_000_000_000}
WIDTH, QUERIES, TRAINING, CANDIDATES, BAGS, OVERLAP = 768, 10_000, 98_380, 50, 35, 0.6
TOKENS = 200  # of a passage
# Of a base-size encoder: 12 layers of 768, 3,072 inside: weights that every token meets, and attention.
LAYER_WEIGHTS = 12 * (4 * 768**2 + 2 * 768 * 3072)
# Assumed of a GPU: an H200 as its maker describes it, and the shares of it that are reached. Nothing was measured.
MEMORY, BANDWIDTH, TENSOR, SINGLE = 141e9, 4.8e12, 989e12, 67e12
STEP = 5e-6  # seconds of a step of two coefficients: two reductions in one block
HELD, OF_BANDWIDTH, OF_TENSOR, OF_SINGLE = 0.8, 0.6, 0.3, 0.5
LONGFORMER = {"ms": 177.6, "of peak": 0.90}  # results/longformer.md, 200 tokens, two cores


def make(folder: Path, source: Path = ROOT / "benchmarks" / "results" / "scaling.json") -> None:
    """Write scaling.md."""
    (folder / "scaling.md").write_text(page(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")


def page(found: dict[str, Any]) -> str:
    """The page."""
    curves = found["curves"]
    flop = 2 * LAYER_WEIGHTS * TOKENS + 4 * 12 * TOKENS**2 * 768
    tensor, single, bandwidth = TENSOR * OF_TENSOR, SINGLE * OF_SINGLE, BANDWIDTH * OF_BANDWIDTH
    rates = {name: rate(curves[name]) for name in ("search", "sharded")}
    rows = TRAINING * CANDIDATES
    bag_rows = rows * (1 + OVERLAP) / BAGS
    fit, fit_p = curves["fit"][-1], exponent(curves["fit"])
    factor = bag_rows / fit["n"]
    bag_seconds = fit["seconds"] * factor**fit_p
    working = curves["working_set"]
    q = int(working[0]["working set"])
    outer = max(point["outer"] * q / point["n"] for point in working)
    steps_a_row = max(point["steps"] / point["n"] for point in working)
    iterations = outer * bag_rows / q
    kernel_flop, moved = iterations * 2 * q * bag_rows * WIDTH, iterations * q * bag_rows * 32
    score = curves["score"][-1]
    near = {name: curves[name][-1]["seconds"] / curves[name][-1]["hits"] * 1e9 for name in ("rrf", "vrrf")}
    passes = math.ceil(QUERIES / 2048)
    thinned = BAGS * curve_at(curves["fit"], 8_000)
    template = (Path(__file__).parent / "scaling_template.md").read_text(encoding="utf-8")
    return template.format(
        BAGS=BAGS,
        machine=found["machine"],
        peak=found["peak"] / 1e9,
        memory=MEMORY / 1e9,
        held=HELD,
        tensor=TENSOR / 1e12,
        of_tensor=OF_TENSOR,
        single=SINGLE / 1e12,
        of_single=OF_SINGLE,
        bandwidth=BANDWIDTH / 1e12,
        of_bandwidth=OF_BANDWIDTH,
        curves=curve_table(curves),
        width=WIDTH,
        half=2 * WIDTH,
        full=4 * WIDTH,
        memory_table="\n".join(
            f"| {name} | {size(2 * WIDTH * n)} | {size(4 * WIDTH * n)} | {gpus(n):,} | {size(2 * WIDTH * n)} |"
            for name, n in SIZES.items()
        ),
        tokens=TOKENS,
        weights=LAYER_WEIGHTS / 1e6,
        flop=flop / 1e9,
        ms=LONGFORMER["ms"],
        cpu_rate=1000 / LONGFORMER["ms"],
        share=LONGFORMER["of peak"],
        gpu_tflops=tensor / 1e12,
        embedding_table="\n".join(
            f"| {name} | {duration(n * LONGFORMER['ms'] / 1000)} | {duration(n * flop / tensor)} | "
            f"{duration(n * flop / tensor / 8)} |"
            for name, n in SIZES.items()
        ),
        queries=QUERIES,
        search_rate=rates["search"] / 1e9,
        disk_rate=rates["sharded"] / 1e9,
        search_table="\n".join(
            f"| {name} | {2 * QUERIES * n * WIDTH:.2g} | {duration(2 * QUERIES * n * WIDTH / rates['search'])} | "
            f"{duration(max(2 * QUERIES * n * WIDTH / tensor, passes * 4 * WIDTH * n / bandwidth))} | "
            f"{gpus(n):,} |"
            for name, n in SIZES.items()
        ),
        slower=rates["search"] / rates["sharded"],
        gpu_tbs=bandwidth / 1e12,
        merge=QUERIES * 100 * 100 * 12 / 1e6,
        training=TRAINING,
        candidates=CANDIDATES,
        rows=rows,
        overlap=OVERLAP,
        bag_rows=bag_rows,
        fit_n=fit["n"],
        fit_s=fit["seconds"],
        fit_p=fit_p,
        support=fit["support"],
        factor=factor,
        bag_time=duration(bag_seconds),
        all_time=duration(BAGS * bag_seconds),
        thinned=duration(thinned),
        q=q,
        outer=outer,
        outer_note="; ".join(f"{point['n']:,} rows: {point['outer']:,}" for point in working),
        iterations=iterations,
        kernel_flop=kernel_flop,
        single_tflops=single / 1e12,
        kernel_s=kernel_flop / single,
        moved=moved,
        moved_s=moved / bandwidth,
        steps_a_row=steps_a_row,
        steps=steps_a_row * bag_rows,
        step=STEP * 1e6,
        steps_s=steps_a_row * bag_rows * STEP,
        gpu_minutes=BAGS * (kernel_flop / single + moved / bandwidth + steps_a_row * bag_rows * STEP) / 60,
        score_rate=score["n"] / score["seconds"],
        score_support=score["support passages"],
        score_p=exponent(curves["score"]),
        rrf=near["rrf"],
        vrrf=near["vrrf"],
        rrf_doc=near["rrf"] * 45_000 / 1e6,
        vrrf_doc=near["vrrf"] * 45_000 / 1e6,
        provenance=found["provenance"],
    )


def exponent(points: list[dict[str, float]]) -> float:
    """The slope of log seconds over log size, by least squares through the last three points."""
    points = points[-3:]
    xs, ys = [math.log(p["n"]) for p in points], [math.log(p["seconds"]) for p in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def curve_at(points: list[dict[str, float]], n: float) -> float:
    """Seconds at a size, from the nearest point along the curve."""
    nearest = min(points, key=lambda point: abs(math.log(point["n"] / n)))
    return nearest["seconds"] * (n / nearest["n"]) ** exponent(points)


def rate(points: list[dict[str, float]]) -> float:
    """FLOP/s of a search of 256 queries at its largest size."""
    return 2 * 256 * points[-1]["n"] * WIDTH / points[-1]["seconds"]


def curve_table(curves: dict[str, list[dict[str, float]]]) -> str:
    names = {
        "search": "exact search, 256 queries, float32",
        "sharded": "exact search from disk, 256 queries, float16",
        "fit": "one regressor, rows",
        "bags": "35 bags, training queries",
        "score": "scores of 35 bags, pairs",
        "rrf": "RRF, query paragraphs",
        "vrrf": "VRRF, query paragraphs",
    }
    return "\n".join(
        f"| {text} | {curves[name][-1]['n']:,} | {curves[name][-1]['seconds']:.3g} | {exponent(curves[name]):.2f} |"
        for name, text in names.items()
    )


def gpus(n: int) -> int:
    return math.ceil(4 * WIDTH * n / (HELD * MEMORY))


def size(n: float) -> str:
    return f"{n / 1e12:,.3g} TB" if n >= 1e12 else f"{n / 1e9:,.3g} GB"


def duration(seconds: float) -> str:
    for unit, length in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.2g} s"


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
