"""Texts into batches by token count: neighbours in length together, each batch within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError


def token_batches(
    lengths: Sequence[int] | NDArray[np.int64], budget: int, *, padded: bool = False
) -> list[NDArray[np.int64]]:
    """Every text once, longest first, in batches of at most ``budget`` tokens.

    ``lengths`` (n,) are token counts. With ``padded`` a batch costs its texts times its longest one, otherwise
    the sum of its lengths. A text beyond the budget is a batch of its own. Equal lengths keep their order.

    >>> token_batches([3, 9, 3, 2], budget=8)
    [array([1]), array([0, 2, 3])]
    >>> token_batches([3, 9, 3, 2], budget=8, padded=True)
    [array([1]), array([0, 2]), array([3])]
    """
    if budget < 1:
        raise InputError(f"the token budget of a batch must be at least 1, found {budget}")
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches: list[NDArray[np.int64]] = []
    start, longest, used = 0, 0, 0
    for stop, length in enumerate(np.asarray(lengths, dtype=np.int64)[order].tolist()):
        cost = longest * (stop - start + 1) if padded else used + length
        if stop > start and cost > budget:
            batches.append(order[start:stop])
            start = stop
        if stop == start:
            longest, used = length, 0
        used += length
    return [*batches, order[start:]] if len(order) else batches
