"""Fusion of runs: reciprocal ranks, summed.

Cormack, Clarke & Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods", SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from haybale.errors import InputError
from haybale.retrieval.run import DEPTH, Run


def reciprocal_rank_fusion(
    runs: Sequence[Run], *, k: float = 60, weights: Sequence[float] | None = None, depth: int = DEPTH
) -> Run:
    """Score of a document: Σ over the runs that have it of ``weight / (k + rank)``, ranks from 1.

    The runs must be about the same queries. The result does not depend on the order of the runs (up to the
    rounding of the sum, which is taken over the runs in a fixed order of the terms' size).

    >>> frame = pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]})
    >>> other = pd.DataFrame({"query_id": "q", "doc_id": ["b"], "score": [7.0]})
    >>> reciprocal_rank_fusion([Run.from_frame(frame), Run.from_frame(other)])["q"][0]
    ('b', 0.03252247488101534)
    """
    if not runs:
        raise InputError("fusion needs at least one run")
    weights = [1.0] * len(runs) if weights is None else weights
    if len(weights) != len(runs):
        raise InputError(f"{len(weights)} weights for {len(runs)} runs")
    if any(set(run.query_ids) != set(runs[0].query_ids) for run in runs):
        raise InputError("fusion needs runs about the same queries")
    parts = []
    for run, weight in zip(runs, weights, strict=True):
        part = run.to_frame()
        part["score"] = weight / (k + part["rank"])
        parts.append(part)
    together = pd.concat(parts).sort_values("score", kind="stable")
    fused = together.groupby(["query_id", "doc_id"], sort=False)["score"].sum().reset_index()
    return Run.from_frame(fused, depth).reindexed(runs[0].query_ids)
