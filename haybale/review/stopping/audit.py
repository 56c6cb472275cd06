"""A certificate that holds at every look: documents are drawn at random while the review goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from haybale.review.betting import BettingTest
from haybale.review.draws import DrawPlan, most_total
from haybale.review.screening import Screening
from haybale.review.stopping.rule import CONFIDENCE, TARGET, Advice, StoppingRule


@dataclass(frozen=True)
class Audit(StoppingRule):
    """Stop when the found relevant documents are the target share of the largest number that draws do not exclude.

    When the ranking hardly finds any more, documents are drawn at random from the unread ones and judged in turn. Each
    draw tests every possible number of relevant documents by betting
    (:mod:`haybale.review.betting`). The certificate holds for every ranking, whenever somebody looks at the bound, and
    however the decision to stop is made. :class:`~haybale.review.draws.DrawPlan` says when a document is drawn.

    Parameters
    ----------
    target : float, default 0.8
        The recall to reach. It decides when documents are drawn; the bound holds for every recall.
    confidence : float, default 0.95
        The probability, over the draws, with which no bound that is ever shown exceeds the recall at that moment.
    """

    target: float = 0.8
    confidence: float = 0.95

    name = "audit"
    kind = "certificate"
    _parameter_constraints: ClassVar = {"target": TARGET, "confidence": CONFIDENCE}

    @property
    def promise(self) -> str:
        return (
            f"When it stops, at least {self.target:.0%} of the relevant documents were found, with probability "
            f"{self.confidence:.0%} over draws from the unread documents that are judged in turn, whatever the "
            "ranking. The bound holds at every look, also if you go on or stop earlier. It takes the judgements to be "
            "right, and to be the same whether a document was drawn or not."
        )

    def draw_plan(self) -> DrawPlan | None:
        return DrawPlan(self.target)

    def advise(self, screening: Screening) -> Advice:
        draws = screening.draws
        in_order = screening.n_found, screening.n_unread, screening.n_documents + len(draws.others_relevant)
        n_found, n_unread, n_documents = draws.now or in_order
        gap = f"; {draws.gap}" if draws.gap else ""
        if not len(draws):
            return Advice(False, f"no draw counts{gap or '; no document was drawn at random yet'}")
        test = draws.test(n_documents, self.confidence)
        total = test.largest_total(n_found, n_unread)
        reason = (
            f"{n_found:,} relevant documents were found, and {len(draws):,} draws, {int(draws.is_relevant.sum()):,} of "
            f"them relevant, exclude that there are more than {total:,}{gap}"
        )
        low = n_found / total if total else 0.0
        return Advice(0 < total <= most_total(n_found, self.target), reason, low=low, high=1.0)

    def find_stop(self, screening: Screening) -> int | None:
        draws, n_read = screening.draws, screening.n_read
        n_all = screening.n_documents + len(draws.others_relevant)
        test, n_tested, counts = BettingTest(n_all, self.confidence), 0, np.arange(n_read + 1)
        n_draws = np.searchsorted(draws.read_before, counts)
        sampled, labels = np.append(0, np.cumsum(screening.sampled)), np.append(0, np.cumsum(screening.labels))
        sampled_relevant = np.append(0, np.cumsum(screening.labels & screening.sampled))
        others = np.append(0, np.cumsum(draws.others_relevant))
        # Documents of the random sample count as judged before the reading begins.
        n_found = labels + sampled_relevant[-1] - sampled_relevant + int(screening.held_out.sum())
        n_found = n_found + others[np.searchsorted(draws.others_after, counts, "right")]
        n_unread = screening.n_documents - counts - sampled[-1] + sampled - len(screening.held_out)
        for n in range(1, min(n_read, screening.n_documents - 1) + 1):
            for i in range(n_tested, n_draws[n]):
                test.draw(bool(draws.is_relevant[i]), int(draws.n_found[i]), int(draws.n_unread[i]))
            n_tested = n_draws[n]
            total = test.largest_total(int(n_found[n]), int(n_unread[n])) if n_tested else 0
            if 0 < total <= most_total(int(n_found[n]), self.target):
                return n
        return None
