"""The certificate of Lewis, Yang and Frieder: a binomial bound on the recall, from a random sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from haybale.review.screening import Screening
from haybale.review.stopping.rule import CONFIDENCE, TARGET, Advice, StoppingRule


@dataclass(frozen=True)
class QBCB(StoppingRule):
    """Stop when enough relevant documents of a random sample were reached (quantile binomial confidence bound).

    A random sample of the collection is judged too, before or while documents are read; the ranking does not learn from
    it (:class:`~haybale.review.Screening`). With r relevant documents in the sample, the rule stops when the reading
    order reaches the j-th of them, where j is the smallest number for which a Binomial(r, target) variable is below j
    with at least the asked confidence. If r is too small, there is no such j, and the rule never stops. The sample must
    be fixed before the first of its documents is reached: enlarging it until the rule stops voids the certificate.
    There is no certificate while a document of the sample is not judged, because it was skipped or not read yet.

    Lewis, Yang and Frieder, "Certifying one-phase technology-assisted reviews", CIKM 2021.

    Parameters
    ----------
    target : float, default 0.95
        The recall to reach.
    confidence : float, default 0.95
        The probability, over the draw of the sample, with which the recall is at least the target.
    """

    target: float = 0.95
    confidence: float = 0.95

    name = "qbcb"
    kind = "certificate"
    _parameter_constraints: ClassVar = {"target": TARGET, "confidence": CONFIDENCE}

    @property
    def promise(self) -> str:
        needed = self.fewest_relevant()
        needs = f"at least {needed:,} relevant documents" if needed else "more relevant documents than can be drawn"
        return (
            f"When it stops, at least {self.target:.0%} of the relevant documents were found with probability "
            f"{self.confidence:.0%} over the draw of a random sample, whatever the ranking. The sample must hold "
            f"{needs}; with fewer, it never stops. It holds for one target and one sample that were fixed beforehand, "
            "and takes the judgements to be right."
        )

    def required(self, n_relevant: int) -> int | None:
        """Return how many of the sample's relevant documents must be reached; None if no number is enough."""
        from scipy.special import bdtr

        below = bdtr(np.arange(n_relevant, dtype=np.float64), n_relevant, self.target)  # P(X < j) for j = 1, …
        enough = np.flatnonzero(below >= self.confidence)
        return int(enough[0]) + 1 if len(enough) else None

    def fewest_relevant(self) -> int | None:
        """Return how many relevant documents a sample must hold at least; None if no number is enough.

        >>> QBCB(target=0.95, confidence=0.95).fewest_relevant()
        59
        """
        if self.target == 1:
            return None
        n = max(1, int(np.log(1 - self.confidence) / np.log(self.target)))  # 1 - target^n ≥ confidence, up to rounding
        while self.required(n) is None:
            n += 1
        return n

    def advise(self, screening: Screening) -> Advice:
        from scipy.special import betaincinv

        if screening.sample_gap:
            return Advice(False, f"no certificate: {screening.sample_gap}")
        reached = int((screening.labels & screening.sampled).sum())
        drawn = reached + int(screening.held_out.sum())
        needed = self.required(drawn)
        reason = f"{reached:,} of the sample's {drawn:,} relevant documents were reached; {needed or 0:,} are needed"
        if needed is None:
            reason = (
                f"the random sample has {drawn:,} relevant documents; {self.fewest_relevant() or 'more'} are needed"
            )
        if not drawn:
            return Advice(False, reason)
        # The Clopper-Pearson bounds, each with the asked confidence.
        low = float(betaincinv(reached, drawn - reached + 1, 1 - self.confidence)) if reached else 0.0
        high = float(betaincinv(reached + 1, drawn - reached, self.confidence)) if reached < drawn else 1.0
        return Advice(needed is not None and reached >= needed, reason, reached / drawn, low, high)

    def find_stop(self, screening: Screening) -> int | None:
        if screening.sample_gap:
            return None
        positions = np.flatnonzero(screening.labels & screening.sampled) + 1
        needed = self.required(len(positions) + int(screening.held_out.sum()))
        return None if needed is None or needed > len(positions) else int(positions[needed - 1])
