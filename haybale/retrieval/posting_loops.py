"""Find the pairs of a text and a term in postings by compiled binary searches; :class:`.Postings` calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def find(
    offsets: Any, texts: Any, terms: Any, start: int, end: int, firsts: Any, ends: Any
) -> None:  # pragma: no cover - compiled
    """Find where the pairs of each term with the texts ``start:end`` begin and end."""
    for row in range(len(terms)):
        first, last = offsets[terms[row]], offsets[terms[row] + 1]
        firsts[row] = first + np.searchsorted(texts[first:last], start)
        ends[row] = first + np.searchsorted(texts[first:last], end)


@njit(nogil=True, cache=True)
def fill(
    offsets: Any, texts: Any, values: Any, terms: Any, wanted: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Copy the values of the pairs of each term with each text in ``wanted``."""
    for row in range(len(terms)):
        if terms[row] < 0:
            continue
        first, last = offsets[terms[row]], offsets[terms[row] + 1]
        for column in range(len(wanted)):
            pair = first + np.searchsorted(texts[first:last], wanted[column])
            if pair < last and texts[pair] == wanted[column]:
                out[row, column] = values[pair]
