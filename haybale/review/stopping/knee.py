"""The knee method: stop when the gain curve has become much flatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from haybale.parameters import COUNT
from haybale.review.screening import Bools, Screening
from haybale.review.stopping.rule import Advice, StoppingRule


class GainKnee(NamedTuple):
    """The knee of a gain curve: its position, the relevant documents up to it, and how much steeper it is before."""

    position: int
    found: int
    ratio: float


def gain_knee(labels: Bools) -> GainKnee:
    """Return the knee of the gain curve of a reading order, the point farthest from the line between its ends.

    The ratio of the slopes before and after it counts one relevant document more after it than there is, so that it is
    finite. It is 0 if nothing was found or fewer than two documents were read.
    """
    n, gain = len(labels), np.cumsum(labels, dtype=np.int64)
    if n < 2 or not gain[-1]:
        return GainKnee(0, 0, 0.0)
    position = int(np.argmax(np.abs(n * gain[:-1] - np.arange(1, n) * gain[-1]))) + 1
    found = int(gain[position - 1])
    before, after = found / position, (int(gain[-1]) - found + 1) / (n - position)
    return GainKnee(position, found, before / after)


@dataclass(frozen=True)
class Knee(StoppingRule):
    """Stop when the gain curve is much steeper before its knee than after it (Cormack and Grossman's knee method).

    The slopes before and after the knee must differ by a factor of 156 - min(r, 150), where r is the number of relevant
    documents up to the knee. The rule is applied at the batches of the BMI system, each a tenth of what has been read.
    Some implementations take r at the current position, or find the knee at batches only; the point farthest from the
    chord and r at the knee are those of Sneyd and Stevenson's code, and of pyterrier-tar.

    Cormack and Grossman, "Engineering quality and reliability in technology-assisted review", SIGIR 2016.

    Parameters
    ----------
    at_least : int, default 1000
        Number of documents before which the rule does not stop, as in the paper. In smaller collections, it never
        stops.
    """

    at_least: int = 1000

    name = "knee"
    kind = "heuristic"
    _parameter_constraints: ClassVar = {"at_least": COUNT}

    @property
    def promise(self) -> str:
        return (
            f"Stops, after at least {self.at_least:,} documents, when relevant documents have become much rarer than "
            "at the beginning. It promises nothing about recall: it was tuned on collections of other kinds."
        )

    def checkpoints(self, n_documents: int) -> Sequence[int]:
        points = [1]
        while points[-1] < n_documents:
            points.append(points[-1] + -(-points[-1] // 10))
        return [point for point in points if self.at_least <= point < n_documents]

    def advise(self, screening: Screening) -> Advice:
        knee = gain_knee(screening.labels)
        needed = 156 - min(knee.found, 150)
        reason = (
            f"after {screening.n_read:,} documents, relevant ones were {knee.ratio:.3g} times as frequent up to "
            f"document {knee.position:,} as after it; the rule asks for {needed}"
        )
        return Advice(knee.ratio >= needed, reason)
