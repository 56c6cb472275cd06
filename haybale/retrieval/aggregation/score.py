"""From the weights of a block's hits to the scores of its documents.

Each function takes the block, the weights of its hits, and what it may need of the vectors; it gives a score a cell
and, where the score is a sum or a maximum over hits, the share of each hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from haybale.retrieval.aggregation.block import Array, Block
from haybale.retrieval.aggregation.elementwise import elementwise
from haybale.retrieval.aggregation.products import Products
from haybale.retrieval.aggregation.reduce import maxima, sums, terms_on_grid
from haybale.vectors import Matrix


@dataclass(frozen=True)
class QueryVectors:
    """What is known of the vectors for the queries of one block."""

    passages: Matrix  # (n_passages, d)
    products: Products | None  # for the linear aggregations
    extremes: Array | None  # (q, d), for VMin and VMax
    total_weight: Array  # (q,) of all paragraphs, with hits or without
    query: Array  # (r,) row in the table of products


class Scored(NamedTuple):
    """(n_cells,) scores, anything where a cell is empty; (r, N) shares, None where a score has none by hit.

    Shares are still to be divided by what is in ``divisor`` (n_cells,), where there is one: few are ever looked at.
    """

    score: Array
    share: Array | None
    divisor: Array | None = None


def total(block: Block, weight: Array, vectors: QueryVectors | None) -> Scored:
    """Σ w."""
    share = terms_on_grid(block, weight)
    return Scored(sums(block, share), share)


def largest(block: Block, weight: Array, vectors: QueryVectors | None) -> Scored:
    """max w; the first hit that has it carries all."""
    return Scored(maxima(block, block.masked(weight, -block.xp.inf)), None)


def weighted_products(block: Block, weight: Array, vectors: QueryVectors | None) -> Scored:
    """⟨q̂, Σ w p⟩ = Σ w ⟨q̂, p⟩."""
    assert vectors is not None
    assert vectors.products is not None
    share = terms_on_grid(block, weight * vectors.products.of(block.passages, vectors.query))
    return Scored(sums(block, share), share)


def mean_products(block: Block, weight: Array, vectors: QueryVectors | None) -> Scored:
    """⟨q̂ / Σ_i w_i, Σ w p / Σ w⟩: both sides divided by their weights."""
    assert vectors is not None
    score, share, _ = weighted_products(block, weight, vectors)
    xp = block.xp
    weights = sums(block, terms_on_grid(block, weight))
    by = xp.where(weights > 0, weights, 1) * xp.repeat(
        xp.where(vectors.total_weight > 0, vectors.total_weight, 1), block.width
    )
    return Scored(score / by, share, by)


def minimum(block: Block, weight: Array, vectors: QueryVectors | None) -> Scored:
    """⟨min q, min p⟩, element by element."""
    assert vectors is not None
    return Scored(elementwise(block, vectors.passages, vectors.extremes, "minimum"), None)


def maximum(block: Block, weight: Array, vectors: QueryVectors | None) -> Scored:
    """⟨max q, max p⟩, element by element."""
    assert vectors is not None
    return Scored(elementwise(block, vectors.passages, vectors.extremes, "maximum"), None)
