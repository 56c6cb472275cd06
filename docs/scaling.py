"""Makes docs/scaling.md from docs/scaling_template.md and benchmarks/results: the measured curves in scaling.json, and
what a collection of GerDaLIR's size took on text, large.json.

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
SAME = ("score", "aggregate", "fit svr", "fuse", "learn", "encode quer")  # stages that do not grow with the passages
# Of a base-size encoder: 12 layers of 768, 3,072 inside: weights that every token meets, and attention.
LAYER_WEIGHTS = 12 * (4 * 768**2 + 2 * 768 * 3072)
# Assumed of a GPU: an H200 as its maker describes it, and the shares of it that are reached. Nothing was measured.
MEMORY, BANDWIDTH, TENSOR, SINGLE = 141, 4.8, 989, 67  # GB, TB/s, TFLOP/s
STEP = 5  # microseconds of a step of two coefficients: two reductions in one block
HELD, OF_BANDWIDTH, OF_TENSOR, OF_SINGLE = 0.8, 0.6, 0.3, 0.5
EMBED_MS, OF_PEAK = 177.6, 0.90  # results/longformer.md, 200 tokens, two cores


def make(folder: Path, results: Path = ROOT / "benchmarks" / "results") -> None:
    """Write scaling.md."""
    found, large = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("results/scaling", "archive/large")
    )
    (folder / "scaling.md").write_text(page(found, on_text(large)), encoding="utf-8")


def page(found: dict[str, Any], text: dict[str, Any]) -> str:
    """The template with the constants above and the local names here in it."""
    curves, machine, provenance, peak = found["curves"], found["machine"], found["provenance"], found["peak"] / 1e9
    half, full, weights = 2 * WIDTH, 4 * WIDTH, LAYER_WEIGHTS / 1e6
    tensor, single, bandwidth = TENSOR * OF_TENSOR, SINGLE * OF_SINGLE, BANDWIDTH * OF_BANDWIDTH
    curve_table = table_of_curves(curves)
    memory_table = "\n".join(
        f"| {name} | {size(half * n)} | {size(full * n)} | {gpus(n):,} | {size(half * n)} |"
        for name, n in SIZES.items()
    )
    gflop, cpu_rate = (2 * LAYER_WEIGHTS * TOKENS + 4 * 12 * TOKENS**2 * 768) / 1e9, 1000 / EMBED_MS
    embedding_table = "\n".join(
        f"| {name} | {duration(n / cpu_rate)} | {duration(n * gflop / tensor / 1e3)} | "
        f"{duration(n * gflop / tensor / 8e3)} |"
        for name, n in SIZES.items()
    )
    search, disk = (rate(curves[name]) / 1e9 for name in ("search", "sharded"))
    slower, passes, merge = search / disk, math.ceil(QUERIES / 2048), QUERIES * 100 * 100 * 12 / 1e6
    needed = {name: 2 * QUERIES * n * WIDTH for name, n in SIZES.items()}
    search_table = "\n".join(
        f"| {name} | {needed[name]:.2g} | {duration(needed[name] / search / 1e9)} | "
        f"{duration(max(needed[name] / tensor, passes * full * n / bandwidth) / 1e12)} | {gpus(n):,} |"
        for name, n in SIZES.items()
    )
    rows = TRAINING * CANDIDATES
    bag_rows = rows * (1 + OVERLAP) / BAGS
    fit, fit_p, working = curves["fit"][-1], exponent(curves["fit"]), curves["working_set"]
    factor = bag_rows / fit["n"]
    bag_seconds = fit["seconds"] * factor**fit_p
    bag_time, all_time = duration(bag_seconds), duration(BAGS * bag_seconds)
    thinned = duration(BAGS * curve_at(curves["fit"], 8_000))
    q = int(working[0]["working set"])
    outer = max(point["outer"] * q / point["n"] for point in working)
    outer_note = "; ".join(f"{point['n']:,} rows: {point['outer']:,}" for point in working)
    iterations = outer * bag_rows / q
    kernel_flop, moved = iterations * 2 * q * bag_rows * WIDTH, iterations * q * bag_rows * 32
    kernel_s, moved_s = kernel_flop / single / 1e12, moved / bandwidth / 1e12
    steps_a_row = max(point["steps"] / point["n"] for point in working)
    steps = steps_a_row * bag_rows
    steps_s = steps * STEP / 1e6
    gpu_minutes = BAGS * (kernel_s + moved_s + steps_s) / 60
    score, score_p = curves["score"][-1], exponent(curves["score"])
    score_rate, score_support = score["n"] / score["seconds"], score["support passages"]
    rrf, vrrf = (curves[name][-1]["seconds"] / curves[name][-1]["hits"] * 1e9 for name in ("rrf", "vrrf"))
    rrf_doc, vrrf_doc = (near * 45_000 / 1e6 for near in (rrf, vrrf))
    template = (Path(__file__).parent / "scaling_template.md").read_text(encoding="utf-8")
    return template.format(**{**globals(), **locals(), **text})


def on_text(records: dict[str, Any]) -> dict[str, Any]:
    """The figures of the section on text: every stage of the largest collection, at 100 million passages."""
    stages = max(records.values(), key=lambda record: record["stages"]["make"]["counts"]["passages"])["stages"]
    passages, trained = stages["make"]["counts"]["passages"], stages["train svr 1"]
    factor = SIZES["100 M"] / passages
    longest: dict[str, str] = {}  # of each command and ranker, the run on the largest share of the queries
    for name in stages:
        if name == "index" or name.startswith(("rank ", "train svr ", "train learned ")):
            kind = " ".join(name.split()[:2])
            longest[kind] = max(name, longest.get(kind, name), key=lambda other: stages[other].get("n", 0))
    lines = []
    for name in longest.values():
        each = stages[name]
        # Candidates and hits are as many however many passages there are.
        alone = each["work"]["cpu"] / each["work"]["wall"]  # the share of its seconds in which a process computed
        same = alone * sum(taken for part, taken in each.get("stages", {}).items() if part.startswith(SAME))
        seconds = duration((each["cpu"] - same) * factor + same)
        # Kernel values take what they may, however many passages there are; a model or a run does not grow with them.
        memory = "half of what there is" if name.startswith("train svr ") else size(each["peak"] * factor)
        disk = size(each["disk"] * (factor if name == "index" else 1))
        measured = f"{duration(each['cpu'])} | {size(each['peak'])} | {size(each['disk'])}"
        lines.append(f"| {name} | {each.get('n', '')} | {measured} | {seconds} | {memory} | {disk} |")
    return {
        "text_passages": passages,
        "text_table": "\n".join(lines),
        "text_trained": trained["n"],
        "text_clock": duration(trained["wall"]),
        "text_cores": trained["cores"],
        "text_machines": math.ceil(stages["index"]["peak"] * factor / 2**30 / 24),
    }


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


def table_of_curves(curves: dict[str, list[dict[str, float]]]) -> str:
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
    return math.ceil(4 * WIDTH * n / (HELD * MEMORY * 1e9))


def size(n: float) -> str:
    return f"{n / 1e12:,.3g} TB" if n >= 1e12 else f"{n / 1e9:,.3g} GB"


def duration(seconds: float) -> str:
    for unit, length in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.2g} s"


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
