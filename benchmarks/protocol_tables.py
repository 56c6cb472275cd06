"""The page of bench_protocols.py: a table a question, each with a sentence on what its rows are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from provenance import cell4, table

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
KINDS = {
    "test only": "the model, test only",
    "train and test": "a model, train and test",
    "absent": "the rule: not among the neighbours",
}
FIGURES = "precision | recall | F1"


def page(found: dict[str, Any]) -> str:
    """The file."""
    facts, apart = found["facts"], found["same queries"]
    paper = [
        [MODELS[model], point["votes"], *figures(point), point["accuracy"]]
        for model, points in found["paper"].items()
        for point in points
    ]
    decided = [["yes to every neighbour", "", *spread(found["everything"])]]
    decided += [[MODELS[point["model"]], point["votes"], *spread(point)] for point in found["decisions"]]
    ranked = [[RANKINGS[name], *values.values()] for name, values in found["rankings"].items()]
    chosen = [
        [CHOICES[choice], words, *figures(values[kind])]
        for choice, values in found["choices"].items()
        for kind, words in KINDS.items()
        if (choice, kind) != ("last", "train and test")
    ]
    ruled = [[RULES[name], *figures(values), values["accuracy"]] for name, values in found["rules"].items()]
    true = [[MODELS[name], *figures(values)] for name, values in found["relevant neighbours count"].items()]
    names = "queries of the split, never trained on (A)", "a tenth of the training rows"
    points = found["paper"]["injected"][0], apart
    held = [[n, f"{p['n_positive'] / p['n_rows']:.1%}", *figures(p)] for n, p in zip(names, points, strict=True)]
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
{lines(f"model | votes | {FIGURES} | accuracy", paper)}

## B and C. The same models, end to end

**Decisions.** Of the {facts["k"]} real neighbours those with enough votes are said to be relevant. Precision: the \
share of said passages whose document is relevant. Recall: the share of all relevant documents of which a passage was \
said. Yes to every neighbour gives the ceiling.
{lines(f"model | votes | {FIGURES} | passages said a query | queries answered", decided)}

**Rankings.** Documents by their best passage; the models order the {facts["k"]} neighbours by their mean prediction.
{lines(" | ".join(["ranking", *next(iter(found["rankings"].values()))]), ranked)}

## D. What the first figure measures

Rules that never ask whether a passage answers the query, on the candidates of A:
{lines(f"a candidate is relevant if | {FIGURES} | accuracy", ruled)}

Another passage of the relevant document injected, at one vote. *Test only*: the model trained on last passages. \
*Train and test*: one trained on the same choice.
{lines(f"injected passage | who says so | {FIGURES}", chosen, words=2)}

A with relevant neighbours counted as what they are, at one vote, test only:
{lines(f"model | {FIGURES}", true)}

Rows held back in place of queries, at one vote: a model trained on nine tenths of the training rows, drawn at random, \
and measured on {apart["n_rows"]:,} of the others, whose queries it was trained on. Positives: their share of the rows.
{lines(f"measured on | positives | {FIGURES}", held)}

- seconds a stage: {", ".join(f"{stage} {seconds:.1f}" for stage, seconds in found["seconds"].items())}
{found["provenance"]}
"""


def lines(columns: str, rows: Iterable[list[Any]], words: int = 1) -> str:
    return "\n".join(table(columns, rows, words, cell4))


def figures(found: Mapping[str, Any]) -> list[float]:
    return [found[name] for name in ("precision", "recall", "f1")]


def spread(point: Mapping[str, float]) -> list[Any]:
    return [*figures(point), f"{point['said a query']:.1f}", f"{point['queries answered']:.1%}"]
