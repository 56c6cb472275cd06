"""What a backend of exact search is: it proposes a row's k best by inexact products, and says how inexact.

The products of two libraries differ in their last bits, so a proposal is not yet a ranking: the index asks for a
few more than it needs and settles their order itself (:mod:`haybale.retrieval.exact.settling`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Proposal = tuple[Any, Any]  # (m, k) int64 passage numbers and float32 scores, in any order
Propose = Callable[[Any, Any, int, float | None], Proposal]  # (queries, passages, k, memory in bytes) -> proposal
Error = Callable[[int, "np.dtype[Any]"], float]  # (width, type of the passages) -> relative error, see Backend


def nothing_missing() -> Exception | None:
    """Of a backend that is always there."""
    return None


def as_they_are(passages: Any) -> Any:
    """Passages that need no preparation."""
    return passages


@dataclass(frozen=True)
class Backend:
    """One way to search, of a name, on one kind of device.

    ``prepare(passages)`` makes what ``propose`` is given as passages (default: themselves). ``error(width, dtype)`` is
    the e in |proposed score − inner product| ≤ e · |query| · |longest passage|. ``missing()`` says what keeps it from
    working here: None, or the error to raise. ``most`` is its limit on k.
    """

    name: str
    runs_on: str  # "cpu" or "cuda"
    propose: Propose
    error: Error
    missing: Callable[[], Exception | None] = nothing_missing
    prepare: Callable[[Any], Any] = as_they_are
    most: int | None = None
    takes_half: bool = True  # float16 passages proposed without rounding the queries to float16 alone
    is_checked: bool = False  # its scores are compared with the exact ones, and it is left if they are off by more


def float32_error(width: int, dtype: np.dtype[Any]) -> float:
    """A float32 sum of d products in any order: d · 2^-24 (Higham 2002, eq. 3.5).

    >>> float32_error(16, np.dtype("float32")) == 2.0**-20
    True
    """
    return width * 2.0**-24
