"""A part of pydocs, for tests that need no more of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from haybale.collections import Collection


def part_of_pydocs(pydocs: Collection, step: int) -> Collection:
    """Return every ``step``-th document; the splits keep the queries with a relevant one among these."""
    part = pydocs.take(np.arange(0, pydocs.n_documents, step))
    splits = {name: replace(of, queries=np.unique(of.relevant()[0])) for name, of in part.splits.items()}
    return replace(part, splits=splits)
