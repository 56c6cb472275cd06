"""How much a hit weighs before anything is summed: w_i(p), (r, N) or (1, N) float64, not yet times its paragraph's."""

from __future__ import annotations

from haybale.retrieval.aggregation.block import Array, Block

_CODE_DEPTH = 1000  # the authors' code takes every list to be this long


def one(block: Block) -> Array:
    """1: every hit alike."""
    return block.xp.ones((1, block.passages.shape[1]))


def score(block: Block) -> Array:
    """The hit's own score; 0 where there is no hit."""
    return block.masked(block.scores).astype(block.xp.float64)


def reciprocal_rank(block: Block) -> Array:
    """1 / (k + rank), ranks from 1 (Cormack et al. 2009).

    The authors' code keeps 1001 - rank of a list of 1000 and turns it back, so that in a list of L hits the first
    has rank 1001 - L; ``code_variant`` does so too.
    """
    rank = _rank(block)
    if block.options.code_variant:
        rank = rank + (_CODE_DEPTH - _length(block))
    return 1 / (block.options.rrf_k + rank)


def falling_rank(block: Block) -> Array:
    """N + 1 - rank; in the authors' code N is the length of the list."""
    n = _length(block) if block.options.code_variant else block.options.n_hits
    return n + 1 - _rank(block)


def _rank(block: Block) -> Array:
    """(1, N)"""
    return block.xp.arange(1, block.passages.shape[1] + 1, dtype=block.xp.float64)[None]


def _length(block: Block) -> Array:
    """(r, 1) hits of a list, those that do not count included."""
    return (block.passages >= 0).sum(axis=1)[:, None]
