"""Test every possible number of relevant documents by bets on documents that are drawn at random from the unread ones.

With r relevant documents in total, f found and u unread, the next draw is relevant with probability p = (r - f) / u,
whatever was read before and why. A bet against r that the share of relevant draws is c p, with c below 1, multiplies
its capital by c if the draw is relevant, and by (1 - c p) / (1 - p) if it is not: the ratio of two likelihoods. If r is
the true number, the expected capital never grows, so that the probability that it ever reaches 1 / α is at most α
(Ville's inequality). A number against which the capital has reached 1 / α is excluded for good, and the true one is
left with probability 1 - α, at every look.

The capital is spread over several c. After each draw a part of it is spread anew, so that a fraction that lost all
takes part again: a mixture whose weights depend on earlier draws only is a fair bet, too.

Waudby-Smith, Stark and Ramdas, "RiLACS: risk limiting audits via confidence sequences", E-Vote-ID 2021; Shekhar, Xu,
Lipton, Liang and Ramdas, "Risk-limiting financial audits via weighted sampling without replacement", UAI 2023; Herbster
and Warmuth, "Tracking the best expert", Machine Learning 32, 1998 (the part that is spread anew).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

FRACTIONS = (0.0, 0.2, 0.5)  # the share of relevant draws that is bet on, relative to the one that is tested
WEIGHTS = (0.6, 0.2, 0.2)  # the part of the capital that is first set on each fraction
SWITCHED = 0.1  # the part of the capital that is spread anew by the weights after each draw


class BettingTest:
    """The numbers of relevant documents that are not excluded after some draws.

    Parameters
    ----------
    n_documents : int
        Number of documents, read or unread; 0 to all of them can be relevant.
    confidence : float
        The probability with which the true number is never excluded.

    Examples
    --------
    A quarter of 100 documents was drawn, and none is relevant; 40 of 100 others that were read are relevant.

    >>> test = BettingTest(200, confidence=0.95)
    >>> for n_drawn in range(25):
    ...     test.draw(False, n_found=40, n_unread=100 - n_drawn)
    >>> test.largest_total(n_found=40, n_unread=75)
    50
    """

    def __init__(self, n_documents: int, confidence: float) -> None:
        self._threshold = 1 / (1 - confidence)
        self._totals = np.arange(n_documents + 1)
        self._capital = np.repeat(np.array(WEIGHTS)[:, None], n_documents + 1, axis=1)

    def draw(self, is_relevant: bool, n_found: int, n_unread: int) -> None:
        """Bet on a draw.

        Parameters
        ----------
        is_relevant : bool
            Whether the document that was drawn is relevant.
        n_found, n_unread : int
            Number of relevant documents among those that had been read or drawn before, and of all others.
        """
        n_left = bet(self._totals, self._capital, len(self._totals), is_relevant, n_found, n_unread, self._threshold)
        if n_left < len(self._totals):
            self._totals, self._capital = self._totals[:n_left], self._capital[:, :n_left]

    def largest_total(self, n_found: int, n_unread: int) -> int:
        """Return the largest number of relevant documents that is possible and not excluded.

        If all possible ones are excluded, which has a probability of at most 1 - confidence, it is ``n_found``.

        Parameters
        ----------
        n_found, n_unread : int
            Number of relevant documents among those that are read now, and of all others.
        """
        end = int(np.searchsorted(self._totals, n_found + n_unread, side="right"))
        return max(n_found, int(self._totals[end - 1]) if end else 0)


@njit(nogil=True, cache=True)
def bet(
    totals: NDArray[np.int64],
    capital: NDArray[np.float64],
    n_totals: int,
    is_relevant: bool,
    n_found: int,
    n_unread: int,
    threshold: float,
) -> int:  # pragma: no cover - compiled
    """Bet on a draw against the first ``n_totals`` totals, move those that are left to the front, and count them.

    Parameters
    ----------
    totals : (n,) int64 array
        Possible numbers of relevant documents, rising.
    capital : (n_fractions, n) float64 array
        The capital of the bets on each fraction against each total.
    n_totals : int
    is_relevant : bool
    n_found, n_unread : int
        Before the draw.
    threshold : float
        The capital at which a total is excluded.
    """
    n_left = 0
    after = np.empty(len(FRACTIONS))
    for i in range(n_totals):
        missing = totals[i] - n_found
        if missing < 0 or missing > n_unread or missing == (0 if is_relevant else n_unread):
            continue  # the total is impossible
        odds = 0.0 if is_relevant else missing / (n_unread - missing)
        whole = 0.0
        for k in range(len(FRACTIONS)):
            after[k] = capital[k, i] * (FRACTIONS[k] if is_relevant else 1 + (1 - FRACTIONS[k]) * odds)
            whole += after[k]
        if whole >= threshold:
            continue
        for k in range(len(FRACTIONS)):
            capital[k, n_left] = (1 - SWITCHED) * after[k] + SWITCHED * WEIGHTS[k] * whole
        totals[n_left] = totals[i]
        n_left += 1
    return n_left
