"""``haybale demo``."""

from __future__ import annotations

import haybale
from haybale.cli.application import MORE, command
from haybale.cli.terminal import console_for_tables, print_outcome, reporter


@command(MORE)
def demo() -> None:
    """Compare the default rankers on the built-in collection. It needs no data and no download, and a few minutes."""
    outcome = haybale.compare("pydocs", split="test", report=reporter())
    print_outcome(outcome, "pydocs, test: which functions does a docstring's See Also name?")
    fused, bm25 = (outcome.results.values[name]["nDCG@10"].mean() for name in ("learned", "bm25"))
    p = outcome.results.comparisons["learned"]["nDCG@10"].p_t
    verdict = "more than chance explains" if p < 0.05 else "which may be chance"
    n, learned = outcome.results.n_queries, outcome.facts["learned"]["training queries"]
    console_for_tables().print(
        f"\nEach line ranks all {outcome.collection.n_documents:,} documents for {n} queries that no ranker has seen; "
        f"fusing all of them, by weights learned from {learned:,} other queries, "
        f"takes nDCG@10 from {bm25:.3f} to {fused:.3f} (p = {p:.2g} by the t-test: {verdict}). "
        "For your own data, put it in a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/train.tsv, "
        "qrels/dev.tsv) or GerDaLIR's and type: haybale index FOLDER --out ENGINE; "
        "haybale train ENGINE --ranker learned --out MODEL; haybale rank ENGINE QUERY.txt --model MODEL --explain",
        soft_wrap=True,
    )
