"""Makes docs/protocols.md from docs/protocols_template.md and the figures in benchmarks/results/protocols-*.json.

    python docs/protocols.py [FOLDER]

The paper's own figures are below, with where they stand; all others were measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SOURCES = {"gesetze": "protocols-gesetze-dev", "pydocs": "protocols-pydocs-dev"}
# Bönisch & Mehler, LIRAI 2024. The first is table 1's 0.849, with the figures beside it in the authors' notebook
# svr-inference-50.ipynb; the second is figures 2 and 3.
PAPER = {
    "test queries": {"rows": 629_294, "positive": 14_394, "precision": 0.9998, "recall": 0.8488, "f1": 0.9181},
    "a tenth of the training rows": {
        "rows": 503_436,
        "positive": 11_521,
        "precision": 0.9987,
        "recall": 0.8527,
        "f1": 0.9199,
    },
}
FIGURES = ("precision", "recall", "f1")
MODELS = {"injected": "on injected passages", "end-to-end": "end to end"}
RULES = {
    "seen": "in training it was injected more often than it was a neighbour, whatever the query",
    "last": "it is the last passage of its document",
    "absent": "it is not among the neighbours, so someone put it there",
}
CHOICES = {"last": "its last (the paper's)", "random": "a random one", "nearest": "its nearest to the query"}
RANKINGS = {
    "bm25": "BM25",
    "knn": "kNN over the same vectors",
    "injected": "trained on injected passages",
    "end-to-end": "trained end to end",
}


def make(folder: Path) -> None:
    """Write protocols.md."""
    found = {name: json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8")) for name, file in SOURCES.items()}
    (folder / "protocols.md").write_text(page(found), encoding="utf-8")


def page(found: dict[str, Any]) -> str:
    """The page."""
    template = (Path(__file__).parent / "protocols_template.md").read_text(encoding="utf-8")
    return template.format(
        **found,
        injected_recall=decision(found["gesetze"], "injected", 1)["recall"],
        injected_precision=decision(found["gesetze"], "injected", 1)["precision"],
        paper="\n".join(f"| {where} | {f['rows']:,} | {f['positive']:,} | " + row(f) for where, f in PAPER.items()),
        decided=lines(
            found, MODELS, lambda one, model: row(one["paper"][model][0]) + " " + row(decision(one, model, 1))
        ),
        ranked=lines(found, RANKINGS, lambda one, name: measures(one["rankings"][name])),
        ruled=lines(found, RULES, lambda one, rule: row(one["rules"][rule])),
        chosen=lines(found, CHOICES, lambda one, choice: chosen(one["choices"][choice])),
    )


def lines(found: dict[str, Any], words: dict[str, str], cells: Any) -> str:
    """A line for each collection and each of the words."""
    return "\n".join(
        f"| {name} | {text} | {cells(one, key)}" for name, one in found.items() for key, text in words.items()
    )


def row(figures: dict[str, float]) -> str:
    return " | ".join(f"{figures[name]:.4f}" for name in FIGURES) + " |"


def measures(values: dict[str, float]) -> str:
    return " | ".join(f"{value:.4f}" for value in values.values()) + " |"


def decision(one: dict[str, Any], model: str, votes: int) -> dict[str, Any]:
    """The figures of a model's decisions on real neighbours."""
    return next(point for point in one["decisions"] if (point["model"], point["votes"]) == (model, votes))


def chosen(values: dict[str, Any]) -> str:
    """F1 of the model trained on last passages, of one trained on the same choice, and of the rule."""
    return " | ".join(f"{values[kind]['f1']:.4f}" for kind in ("test only", "train and test", "absent")) + " |"


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
