"""The pages of effectiveness.py from its JSON files: one a collection, a summary of their test splits; a figure.

python benchmarks/effectiveness_pages.py [--figures] [--results benchmarks/results]
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from provenance import cell, cell4, options, read_all, table

from haybale.drawing import draw_heatmap

Record = dict[str, Any]
MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000")
COMPARED_BY = ("MRR@10", "nDCG@10", "Recall@100")
COMPARED = " | ".join(["compared | which | queries", *(f"{measure} | p" for measure in COMPARED_BY)])
FAMILY = "p is the larger of the paired t-test's and the randomisation test's, times the collection's comparisons here."
# The measure that was aimed at on the test split; of others nDCG@10.
AIMED = {"gesetze": "MRR@10"}


def read(folder: Path) -> list[Record]:
    return read_all(folder, "effectiveness")


def write(folder: Path) -> None:
    """Every `effectiveness-*.json` of a folder as a page, and `effectiveness.md`."""
    records = read(folder)
    for record in records:
        (folder / f"effectiveness-{record['collection']['name']}.md").write_text(page(record), encoding="utf-8")
    (folder / "effectiveness.md").write_text(summary(records), encoding="utf-8")


def page(record: Record) -> str:
    """One collection: what was tuned, both splits, groups of queries, its origin."""
    counts, made = record["collection"], record["made"]
    lines = [
        f"# {counts['name']}: effectiveness, end to end",
        "",
        f"{counts['documents']:,} documents, {counts['passages']:,} passages; queries: "
        + ", ".join(f"{split} {n:,}" for split, n in counts["queries"].items())
        + ". Vectors are TF-IDF unless a line says LSA. Learned weights come from training queries, BM25's parameters"
        " from dev; the test split was ranked by what these gave, on the date below.",
        "",
        f"`best` is `{record['best']}`, `alone` is `{record['alone']}`.",
        *tuning(record),
    ]
    for split in ("test", "dev"):
        lines += ["", f"## {split}, {record['n_queries'][split]:,} queries", *rankers(record, split)]
    lines += ["", "## The ensemble, compared on test", "", FAMILY, *table(COMPARED, comparisons(record), words=2)]
    lines += ["", "## Where the gain comes from: MRR@10 by what training has seen", ""]
    for split in ("test", "dev"):
        lines += [f"{split}:", *groups(record, split), ""]
    lines += [
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


def tuning(record: Record) -> list[str]:
    found = record["bm25"]
    parameters = ("k1", "b", "k3")  # records before there was a k3 counted as with none
    rows = ([unit, *(said(of.get(p)) for p in parameters), of["value"], of["default"]] for unit, of in found.items())
    tried = [row for of in found.values() for row in of["grid"]]
    values = ({row.get(p) for row in tried} for p in parameters)
    k1, b, k3 = (", ".join(map(said, sorted(each, key=lambda x: inf if x is None else x))) for each in values)
    return [
        *table("BM25 on dev, nDCG@10 | k1 | b | k3 | tuned | default (1.2, 0.75, none)", rows, show=cell4),
        "",
        f"Tried: k1 {k1}; b {b}; k3 {k3}. The baseline is `{record['baseline']}`, the better of the two.",
    ]


def said(parameter: float | None) -> str:
    return "none" if parameter is None else f"{parameter:g}"


def rankers(record: Record, split: str) -> list[str]:
    """Rankers by measure, the best bold, with significance against the tuned baseline."""
    of_split = record["rankers"][split]
    best = {m: max(values["measures"][m] for values in of_split.values()) for m in MEASURES}
    rows = []
    for ranker, values in of_split.items():
        measures, against = values["measures"], values["against_baseline"]
        texts = {m: f"{measures[m]:.4f}{mark(against.get(m))}" for m in MEASURES}
        cells = [f"**{text}**" if measures[m] == best[m] else text for m, text in texts.items()]
        d = against.get("nDCG@10", {}).get("effect_size")
        tests = [p_value(against.get("MRR@10")), p_value(against.get("nDCG@10")), "" if d is None else f"{d:.2f}"]
        rows.append([label(record, ranker), *cells, *tests])
    n = sum(1 for values in of_split.values() if values["against_baseline"])
    return [
        *table(" | ".join(["ranker", *MEASURES, "p MRR@10 | p nDCG@10 | d nDCG@10"]), rows),
        "",
        f"† p < 0.05, ‡ p < 0.01 against `{record['baseline']}` with tuned parameters, in both the paired t-test and"
        f" the randomisation test, Bonferroni-corrected for {n} comparisons; p is the larger of the two.",
    ]


def mark(against: dict[str, float] | None) -> str:
    p = max(against["p_t"], against["p_randomization"]) if against else 1.0
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""


def p_value(against: dict[str, float] | None) -> str:
    return f"{max(against['p_t'], against['p_randomization']):.4f}" if against else ""


def comparisons(record: Record) -> list[list[Any]]:
    """Each of the family: whom, on which queries, both means and p of every measure."""
    rows = []
    for of in record["comparisons"]:
        ours, theirs = (label(record, ranker) for ranker in of["rankers"])
        row = [f"{ours} / {theirs}", of["group"], of["queries"]]
        for measure in COMPARED_BY:
            a, b = of[measure]["means"]
            row += [f"{a:.4f} / {b:.4f}", p_value(of[measure])]
        rows.append(row)
    return rows


def groups(record: Record, split: str) -> list[str]:
    found = record["strata"][split]
    names = [f"{name} ({of['queries']:,})" for name, of in found.items()]
    of_any = next(iter(found.values()))["rankers"]
    rows = ([label(record, ranker), *(in_group(record, split, g, ranker) for g in found)] for ranker in of_any)
    return table(" | ".join(["ranker", *names]), rows)


def in_group(record: Record, split: str, group: str, ranker: str) -> str:
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
    return cell(value)


def summary(records: list[Record]) -> str:
    """The test splits side by side: tuned BM25, the best ranker, the ensemble alone, kNN; what was compared."""
    shown = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-vrrf", "best", "alone")
    gains, recalls, unseen, family = [], [], [], []
    for record in records:
        name, base, pair = record["collection"]["name"], record["baseline"], ("best", "alone")
        of = record["rankers"]["test"]
        measure = AIMED.get(name, "nDCG@10")
        level = of[base]["measures"][measure]
        cells = [name, measure, f"{level:.4f} (`{base}`)"]
        for ranker in pair:
            found = of[record[ranker]]
            value = found["measures"][measure]
            cells += [f"{value:.4f}", f"{value / level - 1:+.0%}", p_value(found["against_baseline"].get(measure))]
        gains.append([*cells, " / ".join(f"{of[knn]['measures'][measure]:.4f}" for knn in ("knn", "knn-doc"))])
        ranked = [of[record[ranker] if ranker in pair else ranker] for ranker in shown]
        tests = [mark(found["against_baseline"].get("Recall@100")) for found in ranked]
        recalls.append([name, *(f"{f['measures']['Recall@100']:.4f}{t}" for f, t in zip(ranked, tests, strict=True))])
        group = [in_group(record, "test", "none seen", ranker) for ranker in (base, record["best"], record["alone"])]
        family += [[name, *row] for row in comparisons(record)]
        unseen.append([name, record["strata"]["test"]["none seen"]["queries"], *group])
    commits = [f"{r['collection']['name']} {r['made']['commit']}, {r['made']['date']}" for r in records]
    columns = "collection | measure | tuned BM25 | best | gain | p | alone | gain | p | kNN, passage / document"
    lines = [
        "# Effectiveness on the test splits",
        "",
        "One configuration for all collections: TF-IDF vectors, BM25 tuned on dev, weights learned on training queries,"
        " everything else as the defaults are. p is corrected for all comparisons of the collection's page.",
        *table(columns, gains, 2),
        "",
        "Recall@100:",
        *table(" | ".join(["collection", *shown]), recalls),
        "",
        "MRR@10 of test queries none of whose relevant documents was relevant to a training query:",
        *table("collection | queries | tuned BM25 | best | alone", unseen),
        "",
        f"The ensemble by itself, within fusions, and as a first stage over all documents. {FAMILY}",
        *table(f"collection | {COMPARED}", family, words=3),
        "",
        f"Commits: {'; '.join(commits)}.",
        "",
    ]
    return "\n".join(lines)


def draw_gains(records: list[Record], path: Path) -> None:
    """nDCG@10 on test of every ranker, as a difference from tuned BM25."""
    names = {"best": "learned(all)", "alone": "svr"}
    drawn = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-rrf", "parm-vrrf", "knn-queries", "svr-memory", *names)
    values = [[ndcg(record, ranker) - ndcg(record, "baseline") for record in records] for ranker in drawn]
    title, labels = "nDCG@10 on test, difference from tuned BM25", [names.get(ranker, ranker) for ranker in drawn]
    collections = [record["collection"]["name"] for record in records]
    draw_heatmap(np.array(values), labels, collections, title=title, value_label="difference", path=path)


def ndcg(record: Record, ranker: str) -> float:
    name = record[ranker] if ranker in ("best", "alone", "baseline") else ranker
    return float(record["rankers"]["test"][name]["measures"]["nDCG@10"])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--figures", action="store_true", help="draw the figure, too")
    a = parser.parse_args()
    write(a.results)
    if a.figures:
        draw_gains(read(a.results), a.results / "effectiveness-gains.svg")


if __name__ == "__main__":
    main()
