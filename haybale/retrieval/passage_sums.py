"""Sums of the scores of a document's best passages.

The score of a document is that of its best passage, plus those of its next ``top`` − 1 passages that are positive. Sums
are taken in float64 from the highest score down, and rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haybale.retrieval.hits import Ints
from haybale.vectors import Floats


def sums_of_best(documents: Ints, scores: Floats, top: int) -> tuple[Ints, Floats, Ints]:
    """Return the documents of hits, rising, with their sums and the number of passages in each sum.

    ``documents`` and ``scores`` (n_hits,) are the document and the score of each hit of one query, best first.
    """
    order = np.argsort(documents, kind="stable")
    found, starts, sizes = np.unique(documents[order], return_index=True, return_counts=True)
    places = np.arange(len(order)) - np.repeat(starts, sizes)  # within the document
    added = np.where(places == 0, scores[order], np.maximum(scores[order], 0)).astype(np.float64)
    chosen = places < top
    sums = np.bincount(np.repeat(np.arange(len(found)), sizes)[chosen], added[chosen], len(found))
    return found, sums.astype(np.float32), np.minimum(sizes, top)


@njit(nogil=True, cache=True)
def sum_by_document(scores: Any, is_hit: Any, doc_offsets: Any, best: Any, sums: Any) -> None:
    """Set ``sums`` to the sum of each document's best passages, -inf without a hit."""  # pragma: no cover - compiled
    for document in range(len(sums)):
        n = 0  # best[:n] has the highest scores so far, falling
        for passage in range(doc_offsets[document], doc_offsets[document + 1]):
            score = scores[passage]
            if is_hit[passage] and (n < len(best) or score > best[n - 1]):
                place = min(n, len(best) - 1)
                while place > 0 and best[place - 1] < score:
                    best[place] = best[place - 1]
                    place -= 1
                best[place] = score
                n = min(n + 1, len(best))
        total = float(best[0]) if n else -np.inf
        for place in range(1, n):
            total += max(float(best[place]), 0.0)
        sums[document] = total
