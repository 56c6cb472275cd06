"""The aggregations by name. A new one is a function in ``weights`` or ``score``, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from haybale.retrieval.aggregation import score, weights
from haybale.retrieval.aggregation.block import Array, Block

Weigh = Callable[[Block], Array]
Score = Callable[[Block, Array, Any], score.Scored]


class Aggregation(NamedTuple):
    """``weigh`` gives every hit a weight, ``score`` makes of a document's hits one score."""

    weigh: Weigh
    score: Score
    formula: str
    vectors: str | None = None  # None, "products" or the name of the extreme
    only_first: bool = False  # hits on first passages alone count


AGGREGATIONS: dict[str, Aggregation] = {
    "maxp": Aggregation(weights.score, score.largest, "max over i, p of score_i(p)"),
    "firstp": Aggregation(weights.score, score.largest, "max over i of score_i(first p)", only_first=True),
    "combsum": Aggregation(weights.score, score.total, "Σ_i Σ_p score_i(p)"),
    "rrf": Aggregation(weights.reciprocal_rank, score.total, "Σ_i Σ_p 1/(k + rank_i(p))"),
    "vsum": Aggregation(weights.one, score.weighted_products, "⟨Σ_i q_i, Σ_i Σ_p p⟩", "products"),
    "vavg": Aggregation(weights.one, score.mean_products, "⟨mean_i q_i, mean_{i,p} p⟩", "products"),
    "vmin": Aggregation(weights.one, score.minimum, "⟨min_i q_i, min_{i,p} p⟩", "minimum"),
    "vmax": Aggregation(weights.one, score.maximum, "⟨max_i q_i, max_{i,p} p⟩", "maximum"),
    "vscores": Aggregation(weights.score, score.weighted_products, "⟨Σ_i q_i, Σ_i Σ_p score_i(p) p⟩", "products"),
    "vranks": Aggregation(
        weights.falling_rank, score.weighted_products, "⟨Σ_i q_i, Σ_i Σ_p (N + 1 - rank_i(p)) p⟩", "products"
    ),
    "vrrf": Aggregation(
        weights.reciprocal_rank, score.weighted_products, "⟨Σ_i q_i, Σ_i Σ_p p/(k + rank_i(p))⟩", "products"
    ),
}
