"""Texts into batches by token count: neighbours in length together, each batch within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.machine import in_tiles

T = TypeVar("T")


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


def worked(
    batches: Iterable[NDArray[np.int64]], work: Callable[[NDArray[np.int64]], T]
) -> Iterator[tuple[NDArray[np.int64], T]]:
    """``(batch, work(batch))`` of each; where memory runs out a batch is halved, and those after it are cut as finely.

    :class:`DeviceError` where it runs out at a single text.

    >>> def work(batch):
    ...     if len(batch) > 2:
    ...         raise MemoryError
    ...     return len(batch)
    >>> [size for _, size in worked([np.arange(4), np.arange(4)], work)]
    [2, 2, 2, 2]
    """
    cut = 1.0
    for batch in batches:
        sizes = []
        for part, done in in_tiles(len(batch), cut * len(batch), _worked_part(batch, work), what="texts"):
            sizes.append(len(part))
            yield part, done
        cut = min(cut, sizes[max(0, len(sizes) - 2)] / len(batch))  # the last may be what was left


def _worked_part(
    batch: NDArray[np.int64], work: Callable[[NDArray[np.int64]], T]
) -> Callable[[slice], tuple[NDArray[np.int64], T]]:
    return lambda tile: (batch[tile], work(batch[tile]))
