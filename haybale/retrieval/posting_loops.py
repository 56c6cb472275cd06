"""Compiled loops over postings and hits, for :class:`.Postings` and :class:`.PassageIndex`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haybale.retrieval.hits import Ints


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


@njit(nogil=True, cache=True, error_model="numpy")
def weigh(
    first: int, end: int, offsets: Any, texts: Any, counts: Any, idf: Any, norm: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Compute the weights of pairs ``first`` to ``end`` in float64, and round them."""
    term = np.searchsorted(offsets, first, side="right") - 1
    for pair in range(first, end):
        while offsets[term + 1] <= pair:
            term += 1
        count = float(counts[pair])
        out[pair] = np.float32(float(idf[term]) * (count / (norm[texts[pair]] + count)))


@njit(nogil=True, cache=True)
def first_hits(row: Ints, document: Ints, n_documents: int) -> Any:  # pragma: no cover - compiled
    """Return (n_hits,) whether a hit is the first of its document in its row; rows rise."""
    last_row, is_first = np.full(n_documents, -1), np.empty(len(row), dtype=np.bool_)
    for hit in range(len(row)):
        is_first[hit] = last_row[document[hit]] != row[hit]
        last_row[document[hit]] = row[hit]
    return is_first
