"""``haybale demo``: the main job on the built-in collection."""

from __future__ import annotations

from haybale.cli.compare import show
from haybale.cli.output import console_for_tables, reporter
from haybale.evaluation import compare


def run_demo() -> None:
    """Rank pydocs' test queries and say what is seen."""
    outcome = compare("pydocs", split="test", report=reporter())
    show(outcome, "pydocs, test: which functions does a docstring's See Also name?")
    values = {name: table["nDCG@10"].mean() for name, table in outcome.results.values.items()}
    fused, bm25 = values["learned"], values["bm25"]
    p = outcome.results.comparisons["learned"]["nDCG@10"].p_t
    verdict = "more than chance explains" if p < 0.05 else "which may be chance"
    n, learned = outcome.results.n_queries, outcome.facts["learned"]["training queries"]
    console_for_tables().print(
        f"\nEach line ranks all {outcome.collection.n_documents:,} documents for {n} queries that no ranker has seen; "
        f"fusing all of them, by weights and memories learned from {learned:,} other queries, "
        f"takes nDCG@10 from {bm25:.3f} to {fused:.3f} (p = {p:.2g}: {verdict}). "
        "For your own data, put it in a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/train.tsv, "
        "qrels/dev.tsv) or GerDaLIR's and type: haybale index FOLDER --out ENGINE; "
        "haybale train ENGINE --ranker learned --out MODEL; haybale rank ENGINE QUERY.txt --model MODEL --explain",
        soft_wrap=True,
    )
