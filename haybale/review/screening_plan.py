"""How many judges judge each document of a topic: one, or for a share of the documents two, blind to each other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from haybale.errors import InputError
from haybale.parameters import FROM_0, SHARE, check_parameters
from haybale.review.judgement_store import TopicEvent

SCREENING_EVENT = "screening"  # the kind of the events of a topic that hold its plan


@dataclass(frozen=True)
class ScreeningPlan:
    """Which documents of a topic two judges must judge before either of them sees the other's judgement.

    Whether a document is one of them depends on its id and the seed only, so that it is the same for all judges and at
    all times. A larger share has the documents of a smaller one with the same seed, and more.

    Parameters
    ----------
    double_share : float, default 0
        The share of the documents that two judges judge, from 0 (single screening) to 1 (double screening of all).
    seed : int, default 0
        Draws the documents if the share is between 0 and 1.

    Raises
    ------
    InputError
        For a share or a seed out of range.

    Examples
    --------
    >>> plan = ScreeningPlan(0.25, seed=1)
    >>> [doc_id for doc_id in ("a", "b", "c", "d", "e", "f") if plan.needs_two(doc_id)]
    ['a', 'e']
    """

    double_share: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        values = {"double_share": self.double_share, "seed": self.seed}
        check_parameters("ScreeningPlan", values, {"double_share": SHARE, "seed": FROM_0})

    @property
    def is_double(self) -> bool:
        """Whether two judges judge at least some of the documents."""
        return self.double_share > 0

    def needs_two(self, doc_id: str) -> bool:
        """Return whether two judges must judge a document."""
        if self.double_share in (0, 1):
            return self.is_double
        digest = hashlib.sha256(f"{self.seed}\0{doc_id}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") < self.double_share * 2**64

    def check_judge(self, judge: str) -> None:
        """Raise :class:`~haybale.InputError` if documents need two judges, and a judge has no name."""
        if self.is_double and not judge.strip():
            raise InputError(f"judge must be a name where documents need two judges, found {judge!r}; say who judges")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


SINGLE_SCREENING = ScreeningPlan()


def plan_of(events: Sequence[TopicEvent], before: ScreeningPlan = SINGLE_SCREENING) -> ScreeningPlan:
    """Return the plan that counts after some decisions about a topic, given the plan that counted before."""
    plans = [event.value for event in events if event.kind == SCREENING_EVENT]
    return ScreeningPlan(**plans[-1]) if plans else before
