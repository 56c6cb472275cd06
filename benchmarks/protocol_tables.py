"""The result file of bench_protocols.py: a table a question, each with a sentence on what its rows are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIGURES = ("precision", "recall", "f1")
MODELS = {"injected": "trained on injected passages", "end-to-end": "trained end to end"}
RULES = {
    "everything": "every candidate is relevant",
    "last": "it is the last passage of its document",
    "seen": "in training it was injected more often than it was a neighbour, whatever the query",
    "absent": "it is not among the neighbours, so someone put it there",
    "absent or twice": "it is not among the neighbours, or it is listed twice",
}
RANKINGS = {
    "bm25": "BM25, best passage",
    "knn": "kNN over the same vectors",
    "knn, the same neighbours": "kNN, cut to the same neighbours",
    "injected": "the neighbours by the model trained on injected passages",
    "end-to-end": "the neighbours by the model trained end to end",
}
CHOICES = {"last": "the last (the paper's)", "random": "a random one", "nearest": "the nearest to the query"}


def page(found: dict[str, Any]) -> str:
    """The file."""
    facts = found["facts"]
    return f"""# The paper's protocol and retrieval: {found["collection"]}, {found["split"]}

{facts["passages"]:,} passages of {facts["documents"]:,} documents; {facts["queries"]:,} queries with \
{facts["relevant documents"]:,} relevant documents; {facts["training queries"]:,} training queries. LSA vectors of \
width {facts["width"]}. All models have the paper's settings: {facts["bags"]} bags of rows, {facts["k"]} nearest \
passages of a query, z-scores, one γ; a bag is trained on {facts["rows of a bag"]:,.0f} rows (at most \
{facts["rows per bag"]:,}, else all its positives and a sample of its negatives). What the protocols are: \
[docs/protocols.md](../../docs/protocols.md).

## A. The paper's protocol

The candidates of a test query are its {facts["k"]} nearest passages, all called negative, and the last passage of \
each relevant document, called positive: {facts["candidate rows"]:,} rows. \
{facts["relevant neighbours called negative"]:,} rows called negative are passages of relevant documents; \
{facts["injected that are neighbours"]:,} of the {facts["relevant documents"]:,} positives are neighbours as well, so \
they are listed twice, once with each label. Figures of the positive class; votes: so many of the bags must predict \
over 0.5.

{paper_table(found)}

## B and C. The same models, end to end

**Decisions.** Of the {facts["k"]} real neighbours those with enough votes are said to be relevant. Precision: the \
share of said passages whose document is relevant. Recall: the share of all relevant documents of which a passage was \
said. Yes to every neighbour gives the ceiling.

{decisions_table(found)}

**Rankings.** Documents by their best passage; the models order the {facts["k"]} neighbours by their mean prediction.

{rankings_table(found)}

## D. What the first figure measures

Rules that never ask whether a passage answers the query, on the candidates of A:

{rules_table(found)}

Another passage of the relevant document injected, at one vote. *Test only*: the model trained on last passages. \
*Train and test*: one trained on the same choice.

{choices_table(found)}

{more_table(found)}

- seconds a stage: {", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found["seconds"].items())}
{found["provenance"]}
"""


def table(head: list[str], left: int, rows: list[list[Any]]) -> str:
    """Markdown; the first ``left`` columns are words."""
    lines = [head, ["---" if i < left else "---:" for i in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(map(shown, line)) + " |" for line in lines)


def shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value


def figures(found: Mapping[str, Any]) -> list[float]:
    return [found[name] for name in FIGURES]


def paper_table(found: dict[str, Any]) -> str:
    rows = [
        [MODELS[model], point["votes"], *figures(point), point["accuracy"]]
        for model, points in found["paper"].items()
        for point in points
    ]
    return table(["model", "votes", "precision", "recall", "F1", "accuracy"], 1, rows)


def decisions_table(found: dict[str, Any]) -> str:
    rows = [["yes to every neighbour", "", *spread(found["everything"])]]
    rows += [[MODELS[point["model"]], point["votes"], *spread(point)] for point in found["decisions"]]
    return table(["model", "votes", "precision", "recall", "F1", "passages said a query", "queries answered"], 1, rows)


def spread(point: Mapping[str, float]) -> list[Any]:
    return [*figures(point), f"{point['said a query']:.1f}", f"{point['queries answered']:.1%}"]


def rankings_table(found: dict[str, Any]) -> str:
    measures = list(next(iter(found["rankings"].values())))
    rows = [[RANKINGS[name], *values.values()] for name, values in found["rankings"].items()]
    return table(["ranking", *measures], 1, rows)


def rules_table(found: dict[str, Any]) -> str:
    rows = [[RULES[name], *figures(values), values["accuracy"]] for name, values in found["rules"].items()]
    return table(["a candidate is relevant if", "precision", "recall", "F1", "accuracy"], 1, rows)


def choices_table(found: dict[str, Any]) -> str:
    kinds = {"test only": "the model, test only", "train and test": "a model, train and test"}
    kinds["absent"] = "the rule: not among the neighbours"
    rows = [
        [CHOICES[choice], words, *figures(values[kind])]
        for choice, values in found["choices"].items()
        for kind, words in kinds.items()
        if (choice, kind) != ("last", "train and test")
    ]
    return table(["injected passage", "who says so", "precision", "recall", "F1"], 2, rows)


def more_table(found: dict[str, Any]) -> str:
    counted, apart = found["relevant neighbours count"], found["same queries"]
    rows: list[list[Any]] = [[MODELS[name], *figures(values)] for name, values in counted.items()]
    apart_rows: list[list[Any]] = [
        [words, f"{point['n_positive'] / point['n_rows']:.1%}", *figures(point)]
        for words, point in (
            ("queries of the split, never trained on (A)", found["paper"]["injected"][0]),
            ("a tenth of the training rows", apart),
        )
    ]
    return "\n".join(
        [
            "A with relevant neighbours counted as what they are, at one vote, test only:",
            "",
            table(["model", "precision", "recall", "F1"], 1, rows),
            "",
            "Rows held back in place of queries, at one vote: a model trained on nine tenths of the training rows, "
            f"drawn at random, and measured on {apart['n_rows']:,} of the others, whose queries it was trained on. "
            "Positives: their share of the rows.",
            "",
            table(["measured on", "positives", "precision", "recall", "F1"], 1, apart_rows),
        ]
    )
