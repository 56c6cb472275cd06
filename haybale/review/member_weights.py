"""Combine the rankings of several members, each with a weight that it earns by what it said of judged documents.

A document's score is the sum of w_m / (c + rank) over the members m, a weighted reciprocal rank fusion. The weights are
those of a Bayesian mixture: before a document's judgement is learned, its rank by a member, in proportion to the
reciprocals of all ranks, gives the member's probability that the document is relevant. The probability that it gave to
the judgement multiplies its weight; a member that could not rank yet takes the probability that the others gave
together (Freund, Schapire, Singer & Warmuth, "Using and combining predictors that specialize", STOC 1997). On request,
a share of all weight is then given to all members alike, so that a member whose time has come can return sooner
(Herbster & Warmuth, "Tracking the best expert", Machine Learning 32, 1998).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Values = NDArray[np.float64]

RANK_CONSTANT = 20.0
SHARE_FOR_ALL = 0.0
_MIN_WEIGHT = 1e-100  # so that no weight is rounded to 0, from which it could not grow
_N_BINS = 4096  # bins of equal width between the lowest and the highest score, by which documents are ranked


@njit(nogil=True, cache=True)
def score_ranks(scores: Values, is_open: NDArray[np.bool_]) -> Values:  # pragma: no cover - compiled
    """Return the rank of each document among the open ones, for each member, without sorting.

    Ranks are exact where scores are sparse, as at the top. Between documents in one bin of scores, ranks are
    interpolated, so they are no whole numbers. Equal scores have equal ranks.

    Parameters
    ----------
    scores : (n_members, n) array
    is_open : (n,) bool
        Which documents are counted; at least one is.

    Returns
    -------
    (n_members, n) array
        From 0.5 to the number of open documents and 0.5.
    """
    n_members, n = scores.shape
    ranks, bins = np.empty((n_members, n)), np.empty(n, dtype=np.int64)
    for m in range(n_members):
        highest, lowest = -np.inf, np.inf
        for k in range(n):
            if is_open[k]:
                highest, lowest = max(highest, scores[m, k]), min(lowest, scores[m, k])
        scale = _N_BINS / (highest - lowest) if highest - lowest > 1e-9 else 0.0
        n_above = np.zeros(_N_BINS + 1)
        for k in range(n):
            bins[k] = min(max(int((highest - scores[m, k]) * scale), 0), _N_BINS - 1)
            if is_open[k]:
                n_above[bins[k] + 1] += 1
        n_above = np.cumsum(n_above)
        for k in range(n):
            b = bins[k]
            within = min(max((highest - scores[m, k]) * scale - b, 0.0), 1.0) if scale else 0.5
            ranks[m, k] = n_above[b] + 0.5 + within * (n_above[b + 1] - n_above[b])
    return ranks


class MemberWeights:
    """The weights of members, from the losses of each at the judgements so far.

    Parameters
    ----------
    n_members : int
    rank_constant : float, default 20
        The constant c. The smaller it is, the more the first ranks of each member count.
    share_for_all : float, default 0
        The share of all weight that is given to all members alike after each judgement. With 1, weights stay equal.

    Attributes
    ----------
    values : (n_members,) array
        The present weights, which sum to 1.

    Examples
    --------
    >>> weights = MemberWeights(2)
    >>> weights.add(weights.losses(np.array([1.0, 40.0]), 1000, True, 0.01))
    >>> weights.values.round(2)
    array([0.73, 0.27])
    """

    def __init__(
        self, n_members: int, rank_constant: float = RANK_CONSTANT, share_for_all: float = SHARE_FOR_ALL
    ) -> None:
        self._rank_constant, self._share_for_all = rank_constant, share_for_all
        self._losses: list[Values | None] = []
        self._equal = np.full(n_members, 1 / n_members)
        self.values: Values = self._equal

    def __len__(self) -> int:
        return len(self._losses)

    def scores(self, ranks: Values, members: NDArray[np.bool_]) -> Values:
        """Return the scores (n,) of documents from their ranks (n_chosen, n) by the chosen ``members`` (n_members,)."""
        return np.asarray(self.values[members] @ (1 / (ranks + self._rank_constant)))

    def losses(self, ranks: Values, n_open: int, is_relevant: bool, share: float) -> Values:
        """Return members' log losses at a judgement, from the ranks that they had given to the document.

        Parameters
        ----------
        ranks : array
            Among the ``n_open`` documents that were not judged, one for each member.
        n_open : int
        is_relevant : bool
        share : float
            The assumed share of relevant documents among those that were not judged.
        """
        c = self._rank_constant
        sum_of_reciprocals = np.log((n_open + 0.5 + c) / (0.5 + c))  # nearly
        odds = share / (1 - share) * n_open / ((ranks + c) * sum_of_reciprocals)
        return np.asarray(np.log1p(1 / odds) if is_relevant else np.log1p(odds))

    def add(self, losses: Values | None) -> None:
        """Learn the losses (n_members,) at a judgement, NaN for members that could not rank; None if none could."""
        self._losses.append(losses)
        if losses is None:
            return
        could_rank = ~np.isnan(losses)
        likelihoods = np.exp(np.nanmin(losses) - losses)
        likelihoods[~could_rank] = np.average(likelihoods[could_rank], weights=self.values[could_rank])
        weights = np.maximum(self.values * likelihoods, _MIN_WEIGHT)
        self.values = (1 - self._share_for_all) * weights / weights.sum() + self._share_for_all * self._equal

    def remove(self, position: int) -> None:
        """Forget a judgement, by its position in the order of judgements."""
        losses = self._losses[:position] + self._losses[position + 1 :]
        self._losses, self.values = [], self._equal
        for losses_of_judgement in losses:
            self.add(losses_of_judgement)
