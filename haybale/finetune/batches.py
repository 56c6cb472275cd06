"""Batches in which every passage may stand as a negative for every other row: that is what their loss takes it for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from haybale.retrieval.hits import Ints


def plan_batches(pairs: pa.Table, batch_size: int, epochs: int, random_state: int | None = 0) -> list[list[int]]:
    """The rows of every batch of a training, in the order in which they come.

    No two rows of a group meet, nor a row and a passage of a document that is forbidden to it, nor a row and the text
    of its own anchor or positive from elsewhere. The rows of a group lie evenly over an epoch. What is left at its end
    goes with few others: batches of less than half the largest one's size are none, their rows sit the epoch out.

    Parameters
    ----------
    pairs : pa.Table
        As :func:`training_pairs` makes them.
    batch_size : int
        Of batches, but where too few groups are left.
    epochs : int
    random_state : int, default 0
    """
    rng = np.random.default_rng(random_state)
    columns = [name for name in pairs.column_names if name == "positive" or name.startswith("negative")]
    numbers: dict[str, int] = {}

    def number(kind: str, name: str) -> int:
        return numbers.setdefault(kind + name, len(numbers))

    texts = zip(*(pairs.column(name).to_pylist() for name in columns), strict=True)
    documents = pairs.column("documents").to_pylist()
    brought = [
        {number("t", text) for text in row} | {number("d", each) for each in docs}
        for row, docs in zip(texts, documents, strict=True)
    ]
    own = zip(pairs.column("anchor").to_pylist(), pairs.column("positive").to_pylist(), strict=True)
    forbidden = [
        {number("t", anchor), number("t", positive)} | {number("d", each) for each in docs}
        for (anchor, positive), docs in zip(own, pairs.column("forbidden").to_pylist(), strict=True)
    ]
    least = 2 if len(columns) == 1 else 1  # without a negative of its own a row alone has nothing to be told from
    groups: Ints = pairs.column("group").to_numpy()
    plan: list[list[int]] = []
    for _ in range(epochs):
        batches = _packed(_spread(groups, rng), groups, brought, forbidden, batch_size)
        half = max(map(len, batches), default=0) / 2
        plan += [batch for batch in batches if len(batch) >= max(least, half)]
    return plan


def _spread(groups: Ints, rng: np.random.Generator) -> list[int]:
    """All rows at random, those of a group evenly."""
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    _, first, size = np.unique(groups[order], return_index=True, return_counts=True)
    within = np.arange(len(order)) - np.repeat(first, size)
    places = (within + rng.random(len(order))) / np.repeat(size, size)
    return [int(row) for row in order[np.argsort(places, kind="stable")]]


def _packed(
    order: list[int],
    groups: Ints,
    brought: Sequence[set[int]],
    forbidden: Sequence[set[int]],
    batch_size: int,
) -> list[list[int]]:
    """Rows in batches: each takes the first rows that go with those it has."""
    left, batches = deque(order), []
    while left:
        batch: list[int] = []
        passed: list[int] = []
        there: set[int] = set()
        refused: set[int] = set()
        met: set[int] = set()
        while left and len(batch) < batch_size:
            row = left.popleft()
            group = int(groups[row])
            if group in met or not refused.isdisjoint(brought[row]) or not there.isdisjoint(forbidden[row]):
                passed.append(row)
                continue
            batch.append(row)
            met.add(group)
            there |= brought[row]
            refused |= forbidden[row]
        left.extendleft(reversed(passed))
        batches.append(batch)
    return batches
