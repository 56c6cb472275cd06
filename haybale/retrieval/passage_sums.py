"""Sums of the scores of a document's best passages.

The score of a document is that of its best passage, plus those of its next ``top`` − 1 passages that are positive. Sums
are taken in float64 from the highest score down, and rounded to float32.
"""

from __future__ import annotations

import numpy as np

from haybale.retrieval.hits import Ints
from haybale.vectors import Floats


def sums_of_best(documents: Ints, scores: Floats, top: int) -> tuple[Ints, Floats, Ints]:
    """Return the documents of hits, rising, with their sums and the number of passages in each sum.

    ``documents`` and ``scores`` (n_hits,) are the document and the score of each hit of one query, best first.
    """
    order = np.argsort(documents, kind="stable")
    distinct, starts, sizes = np.unique(documents[order], return_index=True, return_counts=True)
    ranks = np.arange(len(order)) - np.repeat(starts, sizes)  # from 0, within the document
    added = np.where(ranks == 0, scores[order], np.maximum(scores[order], 0)).astype(np.float64)
    chosen = ranks < top
    sums = np.bincount(np.repeat(np.arange(len(distinct)), sizes)[chosen], added[chosen], len(distinct))
    return distinct, sums.astype(np.float32), np.minimum(sizes, top)
