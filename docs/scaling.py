"""Make docs/scaling.md from docs/scaling_template.md and the measurements in benchmarks/results.

    python docs/scaling.py [FOLDER]

The measurements are serving.json (engines over three collections), scaling.json (curves over growing sizes) and
first-stages.json (searches of up to 3.1 million passages). Every other number is a constant below, with its source.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SIZES = {"1 M": 1_000_000, "10 M": 10_000_000, "100 M": 100_000_000}
WIDTH, N_QUERIES = 768, 256  # dimensions and queries of scaling.json
TOKENS, EMBED_MS, EMBED_COMMIT, EMBED_MACHINE = 200, 127.0, "c5fe89c", "Intel Xeon"  # benchmarks/results/longformer.md
JUDGED = {"pydocs": 2_112, "peps": 743, "gesetze": 21_918}  # training queries: benchmarks/results/best.md
BILLION, PER_DOCUMENT, QUERIES = 1e9, 24, 100_000  # passages, passages a document, judged queries
MACHINES, CORES = 32, 16
BAGS_SECONDS = 2 * 560  # core seconds of 127 bags for 98,380 queries: benchmarks/archive/large.md at 97da212
ID_BYTES = {"passage": 14.8, "document": 12.2}  # of the ids of bench_large.py's collections in memory
SPACE = "\N{NO-BREAK SPACE}"


def make(folder: Path, results: Path = ROOT / "benchmarks" / "results") -> None:
    """Write scaling.md into a folder."""
    curves, engines = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8")) for name in ("scaling", "serving")
    )
    template = (Path(__file__).parent / "scaling_template.md").read_text(encoding="utf-8")
    stages = json.loads((results / "first-stages.json").read_text(encoding="utf-8"))
    values = {**globals(), **vector_values(curves), **text_values(engines), **billion_values(engines, stages)}
    (folder / "scaling.md").write_text(template.format(**values), encoding="utf-8")


def vector_values(found: dict[str, Any]) -> dict[str, Any]:
    """Return what the template needs about vectors, search and PARM."""
    curves = found["curves"]
    rate = 1000 / EMBED_MS
    search = curves["search"][-1]
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
        "search": search,
        "search_time": duration(search["seconds"] * SIZES["100 M"] / search["n"]),
        "rrf": rrf,
        "vrrf": vrrf,
        "rrf_doc": rrf * 45_000 / 1e6,
        "vrrf_doc": vrrf * 45_000 / 1e6,
        "curves_commit": commit(found["provenance"]),
        "curves_machine": found["machine"],
    }


def text_values(engines: dict[str, Any]) -> dict[str, Any]:
    """Return what the template needs about engines over text."""
    by_size = sorted(engines.values(), key=lambda each: each["collection"]["passages"])
    lines = []
    for engine in by_size:
        waits = [
            f"{1000 * engine['rankers'][name]['one by one']['warm']['median']:.3g}{SPACE}ms"
            for name in ("bm25-doc", "parm-vrrf", "learned")
        ]
        cells = [
            engine["collection"]["name"],
            f"{engine['collection']['passages']:,}",
            duration(engine["build"]["cpu"]),
            size(engine["build"]["peak"]),
            size(sum(engine["disk"].values())),
            *waits,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    small, largest = by_size[0], by_size[-1]
    passages = largest["collection"]["passages"]
    origins = {f"measured at commit {commit(each['provenance'])} on an {machine(each)}" for each in by_size}
    fits = [each["rankers"]["learned"]["fit"]["cpu"] for each in (small, largest)]
    return {
        "text_table": "\n".join(lines),
        "serving_origin": " and ".join(sorted(origins)),
        "small": small["collection"]["name"],
        "largest": largest["collection"]["name"],
        "small_queries": f"{JUDGED[small['collection']['name']]:,}",
        "large_queries": f"{JUDGED[largest['collection']['name']]:,}",
        "fit_small": duration(fits[0]),
        "fit_large": duration(fits[1]),
        **{
            f"{what}_{n}m": show(value * n * 1e6 / passages)
            for what, show, value in (
                ("index", duration, largest["build"]["cpu"]),
                ("disk", size, sum(largest["disk"].values())),
            )
            for n in (1, 10)
        },
    }


def billion_values(engines: dict[str, Any], stages: dict[str, Any]) -> dict[str, Any]:
    """Return what a billion passages would cost, in proportion to the largest collections that were measured."""
    built = max(engines.values(), key=lambda each: each["collection"]["passages"])
    searched = max((each for each in stages.values() if "passages" in each), key=lambda each: each["passages"])
    of_index = BILLION / built["collection"]["passages"]
    times = BILLION / searched["passages"]
    index, write = (of_index * each for each in (built["build"]["cpu"], built["build"]["stages"]["write collection"]))
    disk, memory = of_index * sum(built["disk"].values()), times * searched["peak"]
    query = {name: times * searched["one"][name] / 1000 for name in ("bm25-doc", "knn", "parm")}
    training = QUERIES * times * sum(searched["many"].values()) / 1000
    all_cores = MACHINES * CORES
    rows = [
        ("index, CPU time", duration(index), duration(index / all_cores)),
        ("index, the collection read and written by one process", duration(write), duration(write)),
        ("engine on disk", size(disk), f"{size(disk / MACHINES)} each"),
        ("memory that searches it, mapped files included", size(memory), f"{size(memory / MACHINES)} each"),
        *(
            (f"one query, `{label}`", duration(query[name]), f"{1000 * query[name] / all_cores:.2g}{SPACE}ms")
            for name, label in (("bm25-doc", "bm25-doc"), ("knn", "knn"), ("parm", "parm-vrrf"))
        ),
        (f"searches for {QUERIES:,} training queries", duration(training), duration(training / all_cores)),
        ("bags of `svr` for them", duration(BAGS_SECONDS), duration(BAGS_SECONDS / 127)),
    ]
    ids = BILLION * (ID_BYTES["passage"] + ID_BYTES["document"] / PER_DOCUMENT)
    return {
        "billion_table": "\n".join(f"| {' | '.join(row)} |" for row in rows),
        "searched": f"{searched['passages']:,}",
        "id_memory": size(ids),
        "per_machine": size(memory / MACHINES),
        "segments": f"{all_cores * 2:,}",
        "queries": f"{QUERIES:,}",
    }


def commit(provenance: str) -> str:
    """Return the commit that a page names; of one that was joined into another, the latter."""
    found = re.search(r"commit (\w+)(?: \(joined into (\w+)\))?", provenance)
    assert found
    return found[2] or found[1]


def machine(engine: dict[str, Any]) -> str:
    return engine["provenance"].split("; ")[1]


def size(n: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if n >= length:
            return f"{n / length:,.3g}{SPACE}{unit}"
    return f"{n / 1e6:,.3g}{SPACE}MB"


def duration(seconds: float) -> str:
    """Return seconds as text, in the largest unit of which there are at least two."""
    for unit, length in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f}{SPACE}{unit}"
    return f"{seconds:.1f}{SPACE}s" if seconds < 10 else f"{seconds:.0f}{SPACE}s"


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
