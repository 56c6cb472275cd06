"""Make docs/scaling.md from docs/scaling_template.md and the measurements in benchmarks/results.

    python docs/scaling.py [FOLDER]

The measurements are large.json (a collection of GerDaLIR's size) and scaling.json (curves over growing sizes). Every
other number is a constant below, with its source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SIZES = {"1 M": 1_000_000, "10 M": 10_000_000, "100 M": 100_000_000}
WIDTH, N_QUERIES = 768, 256  # dimensions and queries of scaling.json
TOKENS, EMBED_MS, EMBED_COMMIT = 200, 177.6, "eac4ab6"  # benchmarks/results/longformer.md, two cores
# large.json records the commit of the last step only; these are from its history.
COMMITS = {
    "index": "10b6461",
    "train svr": "801d477",
    "train learned": "3523337",
    "rank bm25-doc": "f3e3f8b",
    "rank knn": "50e46b6",
    "rank parm-vrrf": "3523337",
    "rank svr": "3523337",
    "rank learned": "3523337",
}
# Parts of a step that see candidates only, so that they do not grow with the passages.
CONSTANT_PARTS = ("score", "aggregate", "fit svr", "fuse", "learn", "encode quer")


def make(folder: Path, results: Path = ROOT / "benchmarks" / "results") -> None:
    """Write scaling.md into a folder."""
    curves, large = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8")) for name in ("scaling", "large")
    )
    template = (Path(__file__).parent / "scaling_template.md").read_text(encoding="utf-8")
    values = {**globals(), **vector_values(curves), **text_values(large)}
    (folder / "scaling.md").write_text(template.format(**values), encoding="utf-8")


def vector_values(found: dict[str, Any]) -> dict[str, Any]:
    """Return what the template needs about vectors, search and PARM."""
    curves = found["curves"]
    rate = 1000 / EMBED_MS
    sharded = curves["sharded"][-1]
    rrf, vrrf = (curves[name][-1]["seconds"] / curves[name][-1]["hits"] * 1e9 for name in ("rrf", "vrrf"))
    memory = [
        f"| {name} | " + " | ".join(f"{size(4 * dim * n)} | {size(2 * dim * n)}" for dim in (384, 768)) + " |"
        for name, n in SIZES.items()
    ]
    embedding = [f"| {name} | {duration(n / rate)} | {duration(n / rate / 16)} |" for name, n in SIZES.items()]
    return {
        "memory_table": "\n".join(memory),
        "embedding_table": "\n".join(embedding),
        "cpu_rate": rate,
        "embed_machine": "AMD EPYC",
        "n_queries": N_QUERIES,
        "sharded": sharded,
        "sharded_time": duration(sharded["seconds"] * SIZES["100 M"] / sharded["n"]),
        "rrf": rrf,
        "vrrf": vrrf,
        "rrf_doc": rrf * 45_000 / 1e6,
        "vrrf_doc": vrrf * 45_000 / 1e6,
        "provenance": found["provenance"],
    }


def text_values(records: dict[str, Any]) -> dict[str, Any]:
    """Return what the template needs about the largest collection of text, calculated for 100 million passages too."""
    record = max(records.values(), key=lambda each: each["stages"]["make"]["counts"]["passages"])
    steps = record["stages"]
    passages, trained = steps["make"]["counts"]["passages"], steps["train svr 1"]
    factor = SIZES["100 M"] / passages
    lines = []
    for kind, commit in COMMITS.items():
        names = [name for name in steps if name == kind or name.startswith(f"{kind} ")]
        each = steps[max(names, key=lambda name: (steps[name].get("n", 0), name))]
        computing = each["work"]["cpu"] / each["work"]["wall"]  # parts are timed by the clock
        parts = each.get("stages", {}).items()
        constant = computing * sum(seconds for part, seconds in parts if part.startswith(CONSTANT_PARTS))
        grown = duration((each["cpu"] - constant) * factor + constant)
        # The kernel matrices of svr take up to half of the memory, whatever the size of the collection.
        memory = "half of the machine's" if kind == "train svr" else size(each["peak"] * factor)
        disk = size(each["disk"] * (factor if kind == "index" else 1))
        queries = f"{each['n']:,}" if "n" in each else ""
        measured = f"{duration(each['cpu'])} | {size(each['peak'])} | {size(each['disk'])}"
        lines.append(f"| {kind} | {queries} | {commit} | {measured} | {grown} | {memory} | {disk} |")
    return {
        "text_passages": passages,
        "text_table": "\n".join(lines),
        "text_trained": trained["n"],
        "text_clock": duration(trained["wall"]),
        "text_cores": trained["cores"],
        "text_machine": record["provenance"].partition("; ")[2].partition("; ")[0],
        "text_index_memory": size(steps["index"]["peak"] * factor),
        "factor": factor,
    }


def size(n: float) -> str:
    """Return bytes as text, with a space that does not break."""
    return f"{n / 1e9:,.3g}\N{NO-BREAK SPACE}GB" if n >= 1e9 else f"{n / 1e6:,.3g}\N{NO-BREAK SPACE}MB"


def duration(seconds: float) -> str:
    """Return seconds as text, in the largest unit of which there are at least two."""
    for unit, length in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f}\N{NO-BREAK SPACE}{unit}"
    return f"{seconds:.2g}\N{NO-BREAK SPACE}s"


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
