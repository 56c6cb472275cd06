"""Warn of queries for which a ranker finds no document."""

from __future__ import annotations

import warnings

import numpy as np

from haybale.retrieval import Run


class EmptyRankingWarning(UserWarning):
    """A ranker finds no document for some queries; the message has their number and the first query id."""


def warn_of_empty(run: Run, name: str) -> None:
    """Warn if the ranker ``name`` finds no document for some queries."""
    has_document = np.zeros(len(run), dtype=bool)
    has_document[run.coded()[0]] = True
    if not has_document.all():
        first, n_empty = run.query_ids[int(np.argmin(has_document))], int((~has_document).sum())
        message = f"{name} finds no document for {n_empty} of {len(run)} queries, such as {first!r}; check their texts"
        warnings.warn(message, EmptyRankingWarning, stacklevel=3)
