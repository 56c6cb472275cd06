"""Plan batches in which the passages of every row are valid negatives for all other rows, as the loss assumes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from haybale.retrieval.hits import Ints


def plan_batches(pairs: pa.Table, batch_size: int, epochs: int, random_state: int | None = 0) -> list[list[int]]:
    """Return the rows of ``pairs`` in each batch of a training, in order.

    A batch has at most one row of each group. No passage in it belongs to a document that is forbidden to another row,
    or has the text of another row's anchor or positive. The rows of a group are spread evenly over an epoch. Batches
    smaller than half the largest one are dropped; their rows are skipped for that epoch.

    Parameters
    ----------
    pairs : pa.Table
        As :func:`training_pairs` returns them.
    batch_size : int
        The largest number of rows in a batch.
    epochs : int
        The number of passes over the pairs.
    random_state : int, default 0
        Seed of the order of the rows.
    """
    rng = np.random.default_rng(random_state)
    columns = [name for name in pairs.column_names if name == "positive" or name.startswith("negative")]
    numbers: dict[str, int] = {}

    def number(kind: str, name: str) -> int:
        return numbers.setdefault(kind + name, len(numbers))

    texts = zip(*(pairs.column(name).to_pylist() for name in columns), strict=True)
    documents = pairs.column("documents").to_pylist()
    contents = [  # the texts and documents that a row adds to its batch
        {number("t", text) for text in row} | {number("d", document) for document in docs}
        for row, docs in zip(texts, documents, strict=True)
    ]
    own_texts = zip(pairs.column("anchor").to_pylist(), pairs.column("positive").to_pylist(), strict=True)
    forbidden = [  # the texts and documents that other rows must not add
        {number("t", anchor), number("t", positive)} | {number("d", document) for document in docs}
        for (anchor, positive), docs in zip(own_texts, pairs.column("forbidden").to_pylist(), strict=True)
    ]
    smallest = 2 if len(columns) == 1 else 1  # a single row without a negative column has no negative
    groups: Ints = pairs.column("group").to_numpy()
    plan: list[list[int]] = []
    for _ in range(epochs):
        batches = _packed(_spread(groups, rng), groups, contents, forbidden, batch_size)
        half = max(map(len, batches), default=0) / 2
        plan += [batch for batch in batches if len(batch) >= max(smallest, half)]
    return plan


def _spread(groups: Ints, rng: np.random.Generator) -> list[int]:
    """Return all rows in random order, with the rows of each group evenly spread."""
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    _, first, size = np.unique(groups[order], return_index=True, return_counts=True)
    within = np.arange(len(order)) - np.repeat(first, size)
    positions = (within + rng.random(len(order))) / np.repeat(size, size)
    return [int(row) for row in order[np.argsort(positions, kind="stable")]]


def _packed(
    order: list[int],
    groups: Ints,
    contents: Sequence[set[int]],
    forbidden: Sequence[set[int]],
    batch_size: int,
) -> list[list[int]]:
    """Pack rows into batches greedily: each batch takes the first remaining rows that are compatible with its rows."""
    remaining, batches = deque(order), []
    while remaining:
        batch: list[int] = []
        skipped: list[int] = []
        batch_contents: set[int] = set()
        batch_forbidden: set[int] = set()
        batch_groups: set[int] = set()
        while remaining and len(batch) < batch_size:
            row = remaining.popleft()
            group = int(groups[row])
            clashes = not (batch_forbidden.isdisjoint(contents[row]) and batch_contents.isdisjoint(forbidden[row]))
            if group in batch_groups or clashes:
                skipped.append(row)
                continue
            batch.append(row)
            batch_groups.add(group)
            batch_contents |= contents[row]
            batch_forbidden |= forbidden[row]
        remaining.extendleft(reversed(skipped))
        batches.append(batch)
    return batches
