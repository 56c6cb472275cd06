"""Precision, recall and F1 over all pairs of query and document, as COLIEE's task 1 counts them.

https://coliee.org/evaluation defines these micro averages. Macro averages, the means of the values of each query, are
ir_measures' ``SetP``, ``SetR`` and ``SetF``.
"""

from __future__ import annotations

from typing import Any

from haybale.evaluation.own_measures import register_ratio


@register_ratio("MicroP")
def micro_precision(n_right: Any, n_ranked: Any, n_relevant: Any) -> tuple[Any, Any]:
    """Divide the relevant documents of the run by all documents of the run."""
    return n_right, n_ranked


@register_ratio("MicroR")
def micro_recall(n_right: Any, n_ranked: Any, n_relevant: Any) -> tuple[Any, Any]:
    """Divide the relevant documents of the run by all relevant documents."""
    return n_right, n_relevant


@register_ratio("MicroF1")
def micro_f1(n_right: Any, n_ranked: Any, n_relevant: Any) -> tuple[Any, Any]:
    """Return the harmonic mean of both: twice the relevant documents of the run, by its documents plus the relevant."""
    return 2 * n_right, n_ranked + n_relevant
