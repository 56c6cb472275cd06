"""Stop after a run of irrelevant documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from haybale.parameters import COUNT
from haybale.review.screening import Screening
from haybale.review.stopping.rule import Advice, StoppingRule


@dataclass(frozen=True)
class Consecutive(StoppingRule):
    """Stop after a number of irrelevant documents in a row, the most common rule of thumb.

    Parameters
    ----------
    count : int, default 100
        Number of irrelevant documents in a row. Increase it if relevant documents are rare or differ from each other.
    """

    count: int = 100

    name = "consecutive"
    kind = "heuristic"
    _parameter_constraints: ClassVar = {"count": COUNT}

    @property
    def promise(self) -> str:
        return (
            f"Stops after {self.count:,} irrelevant documents in a row. It promises nothing about recall: a group of "
            "relevant documents that differs from those found may be untouched."
        )

    def advise(self, screening: Screening) -> Advice:
        positions = np.flatnonzero(screening.labels)
        run = screening.n_read - (int(positions[-1]) + 1 if len(positions) else 0)
        return Advice(run >= self.count, f"the last {run:,} documents are irrelevant; the rule asks for {self.count:,}")

    def find_stop(self, screening: Screening) -> int | None:
        after = np.concatenate([[0], np.flatnonzero(screening.labels) + 1])  # a run begins here
        runs = np.diff([*after, screening.n_read + 1]) - 1
        long = np.flatnonzero(runs >= self.count)
        return int(after[long[0]]) + self.count if len(long) else None
