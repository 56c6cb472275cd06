"""The figures of the README, from the JSON files of effectiveness.py.

    python benchmarks/figures.py [RESULTS]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from haybale.drawing import draw_heatmap, draw_lines

NAMES = {"best": "learned(all)", "alone": "learned(knn, knn-doc, svr-doc)"}
RANKERS = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-rrf", "parm-vrrf", "knn-queries", "svr", "svr-doc")


def main(folder: Path) -> None:
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("effectiveness-*.json"))]
    gains(records, folder / "effectiveness-gains.svg")
    new_queries(records, folder / "effectiveness-cold.svg")


def gains(records: list[dict[str, Any]], path: Path) -> None:
    """nDCG@10 on test of every ranker, as a difference from tuned BM25."""
    rows = [*RANKERS, *NAMES]
    table = np.array([[gain(record, row) for record in records] for row in rows])
    draw_heatmap(
        table,
        [NAMES.get(row, row) for row in rows],
        [record["collection"]["name"] for record in records],
        title="nDCG@10 on test, difference from tuned BM25",
        value_label="difference",
        path=path,
    )


def gain(record: dict[str, Any], ranker: str) -> float:
    of = record["rankers"]["test"]
    name = record.get(ranker, ranker) if ranker in NAMES else ranker
    return float(of[name]["measures"]["nDCG@10"] - of[record["baseline"]]["measures"]["nDCG@10"])


def new_queries(records: list[dict[str, Any]], path: Path) -> None:
    """What the share of new queries in the loss costs over all queries, and brings to those that are new."""
    curves = {}
    for record in records:
        group = record["strata"]["dev"]["none seen"]["rankers"][record["baseline"]]["MRR@10"]
        level = record["rankers"]["dev"][record["baseline"]]["measures"]["MRR@10"]
        rows = record["cold"]
        curves[record["collection"]["name"]] = (
            [row["none seen"] / group for row in rows],
            [row["MRR@10"] / level for row in rows],
        )
    draw_lines(
        curves,
        title="MRR@10 on dev, times tuned BM25: from cold = 0 (left) to 0.9 (right)",
        x_label="queries whose relevant documents are all new",
        y_label="all queries",
        path=path,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
