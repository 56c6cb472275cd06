"""Stop after a fixed number of documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from haybale.parameters import COUNT
from haybale.review.screening import Screening
from haybale.review.stopping.rule import Advice, StoppingRule


@dataclass(frozen=True)
class Budget(StoppingRule):
    """Stop after a fixed number of documents, such as what a day's work allows.

    Parameters
    ----------
    documents : int, default 500
        Number of documents to read.
    """

    documents: int = 500

    name = "budget"
    kind = "heuristic"
    _parameter_constraints: ClassVar = {"documents": COUNT}

    @property
    def promise(self) -> str:
        return f"Stops after {self.documents:,} documents. It promises what reading costs, and nothing about recall."

    def advise(self, screening: Screening) -> Advice:
        reason = f"{screening.n_read:,} of {self.documents:,} documents have been read"
        return Advice(screening.n_read >= self.documents, reason)

    def find_stop(self, screening: Screening) -> int | None:
        return self.documents if self.documents <= screening.n_read else None
