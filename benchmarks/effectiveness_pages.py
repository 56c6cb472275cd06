"""The pages of effectiveness.py from its JSON files: one a collection, and one summary of their test splits.

python benchmarks/effectiveness_pages.py [RESULTS]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]
MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000")
# What was aimed at on the test split, against tuned BM25: the measure and the least gain.
AIMS = {"gesetze": ("MRR@10", 0.65), "irled": ("nDCG@10", 0.10), "peps": ("nDCG@10", 0.10), "pydocs": ("nDCG@10", 0.10)}


def write(folder: Path) -> None:
    """Every `effectiveness-*.json` of a folder as a page, and `effectiveness.md`."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("effectiveness-*.json"))]
    for record in records:
        path = folder / f"effectiveness-{record['collection']['name']}.md"
        path.write_text(page(record), encoding="utf-8")
    (folder / "effectiveness.md").write_text(summary(records), encoding="utf-8")


def page(record: Record) -> str:
    """One collection: what was tuned, both splits, groups of queries, the price of new queries, where it was made."""
    name, counts = record["collection"]["name"], record["collection"]
    made = record["made"]
    lines = [
        f"# {name}: effectiveness, end to end",
        "",
        f"{counts['documents']:,} documents, {counts['passages']:,} passages; queries: "
        + ", ".join(f"{split} {n:,}" for split, n in counts["queries"].items())
        + ". Vectors are TF-IDF unless a line says LSA. Learned weights come from training queries, BM25's parameters"
        " from dev; the test split was ranked by what these gave, on the date below.",
        "",
        f"`best` is `{record['best']}`, `alone` is `{record['alone']}`.",
        "",
        *tuning(record),
    ]
    for split in ("test", "dev"):
        lines += ["", f"## {split}, {record['n_queries'][split]:,} queries", "", *table(record, split)]
    lines += ["", "## Where the gain comes from: MRR@10 by what training has seen", ""]
    for split in ("test", "dev"):
        lines += [f"{split}:", "", *groups(record, split), ""]
    lines += [
        "## New queries: the share of the loss they carry (`cold`), on dev",
        "",
        "The weights of `best` learned with other shares. The last column is MRR@10 of the queries none of whose"
        f" relevant documents was relevant to a training query; BM25 ({record['baseline']}, tuned) has"
        f" {cell(record, 'dev', 'none seen', record['baseline'])} there. The default is 0.3.",
        "",
        "| cold | MRR@10 | nDCG@10 | Recall@100 | none seen |",
        "| ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {row['cold']:g} | {row['MRR@10']:.4f} | {row['nDCG@10']:.4f} | {row['Recall@100']:.4f} |"
            f" {row['none seen']:.4f} |"
            for row in record["cold"]
        ),
        "",
        "## What was learned",
        "",
        *facts(record),
        f"- whole run {record['seconds']['all']:.0f} s, peak memory {record['peak memory'] / 2**30:.1f} GiB; seconds a"
        " stage: " + ", ".join(f"{k} {v:.0f}" for k, v in record["seconds"].items() if v >= 1 and k != "all"),
        f"- command: `{made['command']}` (a folder is given by its path)",
        f"- commit {made['commit']}, {made['date']}; {made['processor']}; "
        + ", ".join(f"{package} {number}" for package, number in made["environment"].items()),
        "",
    ]
    return "\n".join(lines)


def label(record: Record, ranker: str) -> str:
    return {record["best"]: "**best**", record["alone"]: "alone"}.get(ranker, f"`{ranker}`")


def table(record: Record, split: str) -> list[str]:
    """Rankers by measure, the best bold, with significance against the tuned baseline."""
    rankers, baseline = record["rankers"][split], record["baseline"]
    best = {m: max(values["measures"][m] for values in rankers.values()) for m in MEASURES}
    lines = ["| ranker | " + " | ".join(MEASURES) + " | p MRR@10 | p nDCG@10 | d nDCG@10 |"]
    lines.append("| --- |" + " ---: |" * (len(MEASURES) + 3))
    for ranker, values in rankers.items():
        against = values["against_baseline"]
        cells = []
        for measure in MEASURES:
            text = f"{values['measures'][measure]:.4f}{mark(against.get(measure))}"
            cells.append(f"**{text}**" if values["measures"][measure] == best[measure] else text)
        cells += [p_value(against.get(m)) for m in ("MRR@10", "nDCG@10")]
        d = against.get("nDCG@10", {}).get("effect_size")
        lines.append(f"| {label(record, ranker)} | " + " | ".join(cells) + f" | {'' if d is None else f'{d:.2f}'} |")
    n = sum(1 for values in rankers.values() if values["against_baseline"])
    lines += [
        "",
        f"† p < 0.05, ‡ p < 0.01 against `{baseline}` with tuned k1 and b, in both the paired t-test and the"
        f" randomisation test, Bonferroni-corrected for {n} comparisons; p is the larger of the two.",
    ]
    return lines


def mark(against: dict[str, float] | None) -> str:
    if not against:
        return ""
    p = max(against["p_t"], against["p_randomization"])
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""


def p_value(against: dict[str, float] | None) -> str:
    if not against:
        return ""
    p = max(against["p_t"], against["p_randomization"])
    return f"{p:.4f}"


def tuning(record: Record) -> list[str]:
    lines = ["| BM25 on dev, nDCG@10 | k1 | b | tuned | default (1.2, 0.75) |", "| --- | ---: | ---: | ---: | ---: |"]
    for unit, found in record["bm25"].items():
        lines.append(f"| {unit} | {found['k1']:g} | {found['b']:g} | {found['value']:.4f} | {found['default']:.4f} |")
    tried = [row for found in record["bm25"].values() for row in found["grid"]]
    k1, b = (", ".join(f"{x:g}" for x in sorted({row[key] for row in tried})) for key in ("k1", "b"))
    return [*lines, "", f"Tried: k1 {k1}; b {b}. The baseline is `{record['baseline']}`, the better of the two."]


def groups(record: Record, split: str) -> list[str]:
    found = record["strata"][split]
    rankers = list(next(iter(found.values()))["rankers"])
    lines = ["| ranker | " + " | ".join(f"{name} ({of['queries']:,})" for name, of in found.items()) + " |"]
    lines.append("| --- |" + " ---: |" * len(found))
    for ranker in rankers:
        lines.append(f"| {label(record, ranker)} | " + " | ".join(cell(record, split, g, ranker) for g in found) + " |")
    return lines


def cell(record: Record, split: str, group: str, ranker: str) -> str:
    value = record["strata"][split][group]["rankers"][ranker]["MRR@10"]
    return "" if value is None else f"{value:.4f}"


def facts(record: Record) -> list[str]:
    lines = []
    for name, found in record["facts"].items():
        if isinstance(found, dict) and (name.startswith("svr") or name == record["best"]):
            shown = ", ".join(f"{key} {plain(value)}" for key, value in found.items())
            lines.append(f"- {'best' if name == record['best'] else name}: {shown}")
    return lines


def plain(value: object) -> str:
    if isinstance(value, list):
        return "/".join(f"{item:.4g}" for item in value)
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def summary(records: list[Record]) -> str:
    """The test splits side by side: tuned BM25, the best ranker, the ensemble alone, kNN."""
    lines = [
        "# Effectiveness on the test splits",
        "",
        "One configuration for all collections: TF-IDF vectors, BM25 tuned on dev, weights learned on training queries,"
        " everything else as the defaults are. p is corrected for all comparisons of the collection's page.",
        "",
        "| collection | measure | tuned BM25 | best | gain | p | alone | gain | p | kNN, passage / document |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for record in records:
        measure = AIMS.get(record["collection"]["name"], ("nDCG@10", 0.0))[0]
        of, base = record["rankers"]["test"], record["baseline"]
        level = of[base]["measures"][measure]
        cells = [f"{record['collection']['name']}", measure, f"{level:.4f} (`{base}`)"]
        for ranker in (record["best"], record["alone"]):
            value = of[ranker]["measures"][measure]
            cells += [f"{value:.4f}", f"{value / level - 1:+.0%}", p_value(of[ranker]["against_baseline"].get(measure))]
        cells.append(" / ".join(f"{of[name]['measures'][measure]:.4f}" for name in ("knn", "knn-doc")))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Recall@100:", ""]
    shown = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-vrrf", "svr-doc", "best", "alone")
    lines += ["| collection | " + " | ".join(shown) + " |", "| --- |" + " ---: |" * len(shown)]
    for record in records:
        of = record["rankers"]["test"]
        names = [record.get(name, name) if name in ("best", "alone") else name for name in shown]
        cells = [
            f"{of[n]['measures']['Recall@100']:.4f}{mark(of[n]['against_baseline'].get('Recall@100'))}" for n in names
        ]
        lines.append(f"| {record['collection']['name']} | " + " | ".join(cells) + " |")
    lines += ["", "MRR@10 of test queries none of whose relevant documents was relevant to a training query:", ""]
    lines += ["| collection | queries | tuned BM25 | best | alone |", "| --- | ---: | ---: | ---: | ---: |"]
    for record in records:
        group = record["strata"]["test"]["none seen"]
        cells = [cell(record, "test", "none seen", r) for r in (record["baseline"], record["best"], record["alone"])]
        lines.append(f"| {record['collection']['name']} | {group['queries']:,} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Commits: "
        + "; ".join(f"{r['collection']['name']} {r['made']['commit']}, {r['made']['date']}" for r in records)
        + ".",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
