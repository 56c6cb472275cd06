"""Warn of queries for which a ranker finds no document."""

from __future__ import annotations

import warnings

import numpy as np

from haybale.ranking.contract import RankerContract
from haybale.retrieval import Run


class EmptyRankingWarning(UserWarning):
    """A ranker finds no document for some queries; the message has their number and the first query id."""


def warn_of_empty(run: Run, ranker: RankerContract, name: str | None = None) -> None:
    """Warn if a ranker, called ``name`` or by its text, finds no document for some queries and should find some."""
    if ranker.may_answer_nothing:
        return
    has_document = np.zeros(len(run), dtype=bool)
    has_document[run.coded()[0]] = True
    if not has_document.all():
        first, n_empty = run.query_ids[int(np.argmin(has_document))], int((~has_document).sum())
        which = f"{n_empty} of {len(run)} queries, such as {first!r}"
        message = f"{name or ranker} finds no document for {which}; check their texts"
        warnings.warn(message, EmptyRankingWarning, stacklevel=3)
