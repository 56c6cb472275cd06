"""What makes the ensemble strong: a table with one thing changed a row, out of bag and on dev.

    python benchmarks/explore_ensemble.py FOLDER … [--queries N] [--results benchmarks/results]

``--queries``: so many training queries, drawn at random, for everything that learns. The test split is not looked at.
Everything runs in one process for each collection after the other; searches, vectors and pools are made once.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from explore_fits import DEEPEST, Benches, runs_of
from explore_measures import Values, references, row_of, unseen, values_of
from explore_variations import DEFAULT, NOT_DONE, VARIATIONS, Variation
from provenance import provenance, shown

from haybale.collections import Collection, open_collection
from haybale.experiments import Settings

REFERENCES = ("bm25", "bm25-doc", "knn", "knn-doc", "knn-queries", "learned(knn,knn-doc)")
SAMPLE = 2000
COLUMNS = {
    "out of bag MRR@10": "out of bag, MRR@10",
    "memory MRR@10": "dev, MRR@10",
    "memory nDCG@10": "nDCG@10",
    "fused MRR@10": "with cosines, MRR@10",
    "fused nDCG@10": "nDCG@10",
    "memory MRR@10, none seen": "none seen, MRR@10",
    "fused MRR@10, none seen": "with cosines",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*", help="folders, or names of built-in collections")
    parser.add_argument("--queries", type=int, help="training queries; default: all")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--skip", nargs="+", default=(), help="what is changed, of rows to leave out")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--pages", action="store_true", help="only write the pages anew, from the .json files")
    arguments = parser.parse_args()
    if arguments.pages:
        for path in sorted(arguments.results.glob("explore-*.json")):
            write(json.loads(path.read_text(encoding="utf-8")), arguments.results)
    for folder in arguments.collections:
        collection = fewer(open_collection(folder), arguments.queries)
        command = shown("explore_ensemble.py", sys.argv[1:])
        rows = [row for row in VARIATIONS if not any(row.group.startswith(start) for start in arguments.skip)]
        explore(collection, rows, arguments.results, command, n_jobs=arguments.jobs)


def explore(collection: Collection, variations: list[Variation], results: Path, command: str, **more: Any) -> None:
    """Measure the variations; the table is written after every row."""
    settings = Settings(
        train_document_candidates=DEEPEST,
        fusion_queries=SAMPLE,
        rankers=("svr-doc",),
        **({"n_jobs": 1} | more),
    )
    benches = Benches(collection, settings)
    bench = benches.tfidf
    new = unseen(bench)
    runs_of(
        benches, Variation("", "", {"n_bags": 8})
    )  # what is compiled when it is first called has no part in seconds
    standard, seconds = values_of(benches, DEFAULT)
    page: dict[str, Any] = {
        "collection": collection.name,
        "counts": {name: len(split.queries) for name, split in collection.splits.items()},
        "documents": collection.n_documents,
        "measured": len(new),
        "none seen": int(new.sum()),
        "sample": len(standard["out of bag MRR@10"]),
        "references": {name: mean(values, new) for name, values in references(bench, list(REFERENCES)).items()},
        "rows": [row_of(DEFAULT, standard, seconds, new, None)],
        "provenance": provenance(command),
    }
    for variation in variations:
        if variation.only and collection.name not in variation.only:
            continue
        print(f"  {variation.group}: {variation.label}", flush=True)
        values, seconds = values_of(benches, variation)
        page["rows"].append(row_of(variation, values, seconds, new, standard))
        write(page, results)


def mean(values: Values, new: np.ndarray) -> dict[str, float]:
    """Of a reference, under the names that rows have."""
    row = {f"memory {name}": float(found.mean()) for name, found in values.items()}
    return row | {"memory MRR@10, none seen": float(values["MRR@10"][new].mean())} if new.any() else row


def fewer(collection: Collection, n: int | None, seed: int = 0) -> Collection:
    """With ``n`` training queries, drawn at random; None: all."""
    train = collection.split("train")
    if n is None or n >= len(train.queries):
        return collection
    drawn = np.sort(np.random.default_rng(seed).choice(train.queries, size=n, replace=False))
    judged = np.isin(train.judged_queries, drawn)
    names = ("judged_queries", "judged_documents", "grades")
    kept = {name: getattr(train, name)[judged] for name in names}
    return replace(collection, splits=collection.splits | {"train": replace(train, queries=drawn, **kept)})


# the page ---------------------------------------------------------------------------------------------


def write(page: dict[str, Any], results: Path) -> None:
    """``explore-<collection>.json`` and ``.md``."""
    path = results / f"explore-{page['collection']}.json"
    path.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text_of(page), encoding="utf-8")


def text_of(page: dict[str, Any]) -> str:
    """The page of a collection."""
    counts, lines = page["counts"], []
    lines += [f"# What makes the ensemble strong, {page['collection']}", "", introduction(page), ""]
    lines += ["| changed | to | " + " | ".join(COLUMNS.values()) + " | fit, s |"]
    lines += ["| --- | --- |" + " ---: |" * (len(COLUMNS) + 1)]
    group = None
    for row in page["rows"]:
        first = row["group"] if row["group"] != group else ""
        group = row["group"]
        cells = [cell(row, name, page["rows"][0]) for name in COLUMNS]
        seconds = "–" if row["seconds"] is None else f"{row['seconds']:.1f}"
        lines.append(f"| {first} | {row['label']} | " + " | ".join(cells) + f" | {seconds} |")
    lines += [
        "",
        "Without an ensemble, dev:",
        "",
        "| | MRR@10 | nDCG@10 | none seen, MRR@10 |",
        "| --- |" + " ---: |" * 3,
    ]
    names = ("memory MRR@10", "memory nDCG@10", "memory MRR@10, none seen")
    lines += [
        f"| `{key}` | " + " | ".join(cell(row, n) for n in names) + " |" for key, row in page["references"].items()
    ]
    lines += ["", "Not done:", ""]
    lines += [f"- {what}: {why}." for what, why in (NOT_DONE | left_out(page)).items()]
    lines += ["", f"- {page['documents']:,} documents; queries: " + ", ".join(f"{k} {v:,}" for k, v in counts.items())]
    return "\n".join([*lines, page["provenance"]]) + "\n"


def left_out(page: dict[str, Any]) -> dict[str, str]:
    """The rows that this page could have and has not."""
    there = {(row["group"], row["label"]) for row in page["rows"]}
    rows = [row for row in VARIATIONS if (row.group, row.label) not in there]
    why = [
        "only on " + ", ".join(row.only) if row.only and page["collection"] not in row.only else "not run"
        for row in rows
    ]
    return {f"{row.group}: {row.label}": reason for row, reason in zip(rows, why, strict=True)}


def cell(row: dict[str, Any], name: str, standard: dict[str, Any] | None = None) -> str:
    """Three decimals; a star where the row differs from the standard, unless they read the same."""
    if name not in row:
        return "–"
    shown = f"{row[name]:.3f}"
    return shown + "*" * (name in row.get("differs", ()) and standard is not None and shown != f"{standard[name]:.3f}")


def introduction(page: dict[str, Any]) -> str:
    return INTRODUCTION.format(**page).replace("\n", " ")


INTRODUCTION = """\
The ensemble over documents, `svr-doc` on TF-IDF, with one thing changed a row. *Out of bag*: the memory alone over
{sample:,} training queries, each ranked by the bags that did not see it. *Dev*: the memory alone over {measured:,}
queries. *With cosines*: `learned(knn,knn-doc,svr-doc)`, its weights learned on the same training queries. *None seen*:
the {none seen:,} dev queries none of whose relevant documents was relevant to a training query. `*`: further from the
first row than two standard errors of the differences query by query; that much happens by chance once in twenty cells.
Where the ensemble learns from fewer training queries, `knn-queries` in the pool and the fusion have them all. The test
split had no part."""


if __name__ == "__main__":
    main()
