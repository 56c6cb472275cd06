"""PRES, a measure of recall that rewards finding the relevant documents early.

Magdy & Jones, "PRES: A Score Metric for Evaluating Recall-Oriented Information Retrieval Applications", SIGIR 2010.
"""

from __future__ import annotations

from typing import Any

from haybale.evaluation.own_measures import register_measure


@register_measure("PRES")
def pres(judged: Any, ranked: Any, n: int) -> float:
    """Return 1 − (mean rank of the relevant documents − (their number + 1) / 2) / n.

    Let R be the number of relevant documents among the first n. The others get the ranks n + R + 1, n + R + 2, and so
    on.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = lambda ids: pd.DataFrame({"doc_id": ids, "relevance": 1})
    >>> pres(frame(["a", "b"]), frame(["a", "x", "y"]), 10)
    0.5
    """
    relevant = set(judged["doc_id"][judged["relevance"] > 0])
    ranks = [rank for rank, doc_id in enumerate(ranked["doc_id"][:n], 1) if doc_id in relevant]
    missing = range(n + len(ranks) + 1, n + len(relevant) + 1)
    mean_rank = (sum(ranks) + sum(missing)) / len(relevant)
    return 1 - (mean_rank - (len(relevant) + 1) / 2) / n
