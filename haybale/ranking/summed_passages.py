"""Rankers that score a document by the sum of its best passages: their parameter and their explanation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from haybale.errors import InputError
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Floats


def check_top(unit: str, top: int) -> None:
    """Raise InputError if several passages are to be summed, and the ranker does not score passages."""
    if top > 1 and unit != "passage":
        raise InputError(f"top={top} needs unit='passage', found {unit!r}; omit top, or set the unit")


def summed(
    batch: QueryBatch,
    base: Explanation,
    first: int,
    within: Floats,
    top: int,
    shares: Callable[[int], list[Share]],
    matcher: Any = None,
) -> Explanation:
    """Return ``base`` with a share for each of a document's best passages.

    Parameters
    ----------
    batch : QueryBatch
    base : Explanation
    first : int
        The number of the document's first passage.
    within : (n_passages,)
        The scores of the document's passages.
    top : int
    shares : callable
        ``shares(passage)`` returns the shares of a passage's score.
    matcher : object, optional
        As in :class:`Explanation`.
    """
    best = np.argsort(-within, kind="stable")[:top]
    rows = [int(row) for row in best if row == best[0] or within[row] > 0]
    passages, passage_shares = batch.engine.collection.passages, []
    for rank, row in enumerate(rows, 1):
        passage_id, score = passages.ids[first + row].as_py(), float(within[row])
        inner = replace(
            base, score=score, rank=rank, shares=shares(first + row), passage_id=passage_id, matcher=matcher
        )
        text = passages.texts[first + row].as_py()
        passage_shares.append(Share(f"passage {passage_id}", score, text=text, of=inner, passage_id=passage_id))
    return replace(base, shares=passage_shares, matcher=matcher)
