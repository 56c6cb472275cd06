"""Cormack and Grossman's budget method: the knee method with a minimum and a maximum of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from haybale.review.screening import Screening
from haybale.review.stopping.knee import gain_knee
from haybale.review.stopping.rule import EVERY, Advice, StoppingRule


@dataclass(frozen=True)
class KneeBudget(StoppingRule):
    """Stop at three quarters of the collection, or earlier at a knee (Cormack and Grossman's budget method).

    A knee counts once 10 N / r of N documents have been read and r relevant ones found, which is ten times as many as
    a random sample needs to find one; the slopes must then differ by a factor of 6.

    Cormack and Grossman, "Engineering quality and reliability in technology-assisted review", SIGIR 2016.

    Parameters
    ----------
    every : int, default 1
        Number of documents between two checks.
    """

    every: int = 1

    name = "knee-budget"
    kind = "heuristic"
    _parameter_constraints: ClassVar = {"every": EVERY}

    @property
    def promise(self) -> str:
        return (
            "Stops after three quarters of the collection, or earlier if relevant documents have become rare. It "
            "promises at most that cost, and nothing about recall."
        )

    def checkpoints(self, n_documents: int) -> Sequence[int]:
        return range(1, n_documents + 1, self.every)

    def advise(self, screening: Screening) -> Advice:
        n, found = screening.n_read, screening.n_relevant
        if n >= 0.75 * screening.n_documents:
            return Advice(True, f"three quarters of {screening.n_documents:,} documents have been read")
        if not found or n < 10 * screening.n_documents / found:
            return Advice(
                False, f"{n:,} documents have been read and {found:,} relevant ones found; too few for a knee"
            )
        ratio = gain_knee(screening.labels).ratio
        return Advice(
            ratio >= 6, f"relevant documents were {ratio:.3g} times as frequent before the knee; asked for: 6"
        )
