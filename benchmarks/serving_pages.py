"""The page of bench_serving.py from its JSON file.

python benchmarks/serving_pages.py [RESULTS]
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]
PARTS = {
    "collection": "texts, queries, judgements",
    "pieces": "passages cut into pieces",
    "encoder": "encoder",
    "bm25-passage": "BM25, passages",
    "bm25-document": "BM25, documents",
    "passages": "vectors of passages",
    "documents": "vectors of documents",
}


def write(folder: Path) -> None:
    """``serving.md`` beside ``serving.json``."""
    records = json.loads((folder / "serving.json").read_text(encoding="utf-8"))
    (folder / "serving.md").write_text(page(records), encoding="utf-8")


def page(records: dict[str, Record]) -> str:
    """What holds for all collections, then a section each."""
    lines = [
        "# What an engine costs to build, keep, open, ask and grow",
        "",
        "Vectors are TF-IDF, everything else as the defaults are; a query brings 1,000 documents. Every measurement has"
        " a process of its own, whose files are in the page cache. Seconds are by the clock, in parentheses those of"
        " all cores that computed. Memory is the most the process ever held, mapped files that it read included."
        " `first` is the first query after opening and loading, which opens the indexes it needs; `warm` are the"
        " ones after it, asked one by one.",
    ]
    for name, record in records.items():
        lines += ["", f"## {name}", "", *section(record)]
    return "\n".join([*lines, ""])


def section(record: Record) -> list[str]:
    """One collection."""
    counts, build, approximate = record["collection"], record["build"], record["approximate"]
    stages = sorted(build["stages"].items(), key=lambda stage: -stage[1])
    queries = next(iter(record["rankers"].values()))["at once"]["queries"]
    return [
        f"{counts['documents']:,} documents, {counts['passages']:,} passages.",
        "",
        "| | | |",
        "| --- | ---: | ---: |",
        f"| build, all indexes | {cost(build)} s | {mb(build['peak'])} MB of memory |",
        f"| open | {median(record['open'])} ms | after `import`, {median([o['import'] for o in record['open']])} ms |",
        f"| add {record['add']['documents']:,} documents, all indexes open | {cost(record['add'])} s "
        f"| {mb(record['add']['peak'])} MB of memory |",
        f"| open after that | {median(record['open after adding'])} ms | |",
        "",
        "Building, seconds a stage: "
        + ", ".join(f"{name} {taken:.1f}" for name, taken in stages if taken > 0.05)
        + ".",
        "",
        "| on disk | MB | after adding |",
        "| --- | ---: | ---: |",
        *disk(record),
        "",
        f"{queries:,} queries of dev and test:",
        "",
        "| ranker | fit, s | saved, MB | load, ms | first, ms | warm, median, ms | 99 %, ms | memory, MB "
        "| queries/s at once | memory, MB | first after adding, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(line(name, found) for name, found in record["rankers"].items()),
        "",
        "What adding leaves approximate: an engine built on 90 % of the documents and grown by the others, beside one"
        f" built on all {approximate['at once']['documents']:,}, on dev. BM25 is exact; vectors are those of an encoder"
        " that has not seen what was added.",
        "",
        *growth(approximate),
        "",
        record["provenance"],
    ]


def disk(record: Record) -> list[str]:
    """Megabytes by part, all segments together."""
    before, after = ({}, {})
    for found, sizes in ((before, record["disk"]), (after, record["disk after adding"])):
        for path, size in sizes.items():
            part = PARTS.get(path.split("/")[-1], "other")
            found[part] = found.get(part, 0) + size
    parts = [part for part in (*PARTS.values(), "other") if part in before or part in after]
    lines = [f"| {part} | {mb(before.get(part, 0))} | {mb(after.get(part, 0))} |" for part in parts]
    return [*lines, f"| **all** | **{mb(sum(before.values()))}** | **{mb(sum(after.values()))}** |"]


def line(name: str, found: Record) -> str:
    alone, batch = found["one by one"], found["at once"]
    warm = alone["warm"]
    cells = [
        *(f"`{name}`", cost(found["fit"]), mb(found["disk"]), ms(alone["load"]), ms(alone["first"])),
        f"{number(1e3 * warm['median'])} ({number(1e3 * warm['cpu'])})",
        *(number(1e3 * warm["p99"]), mb(alone["peak"]), f"{batch['queries'] / batch['wall']:,.0f}", mb(batch["peak"])),
        ms(found["after adding"]["first"]),
    ]
    return f"| {' | '.join(cells)} |"


def growth(approximate: Record) -> list[str]:
    whole, grown = (approximate[what]["rankers"] for what in ("at once", "grown"))
    measures = list(next(iter(whole.values())))
    lines = ["| ranker | " + " | ".join(f"{m}, built on all | grown | difference" for m in measures) + " |"]
    lines.append("| --- |" + " ---: |" * (3 * len(measures)))
    for name in whole:
        pairs = [(whole[name][m], grown[name][m]) for m in measures]
        lines.append(f"| `{name}` | " + " | ".join(f"{a:.4f} | {b:.4f} | {b - a:+.4f}" for a, b in pairs) + " |")
    return lines


def cost(found: Record) -> str:
    return f"{number(found['wall'])} ({number(found['cpu'])})"


def ms(found: Record) -> str:
    return f"{number(1e3 * found['wall'])} ({number(1e3 * found['cpu'])})"


def number(value: float) -> str:
    """Three digits.

    >>> number(0.01234), number(12.34), number(1234.5)
    ('0.0123', '12.3', '1,234')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def median(found: list[Record]) -> str:
    return ms({what: statistics.median(one[what] for one in found) for what in ("wall", "cpu")})


def mb(size: float) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}"


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
