"""Warn of queries for which a ranker finds no document."""

from __future__ import annotations

import warnings

import numpy as np

from haybale.ranking.contract import RankerContract
from haybale.retrieval import Run


class EmptyRankingWarning(UserWarning):
    """A ranker finds no document for some queries; the message has their number and the first query id."""


def warn_of_empty(run: Run, ranker: RankerContract, name: str | None = None, dated: bool = False) -> None:
    """Warn if a ranker, called ``name`` or by its text, finds no document for some queries and should find some.

    ``dated`` says that queries find earlier documents only.
    """
    if ranker.may_answer_nothing:
        return
    has_document = np.zeros(len(run), dtype=bool)
    has_document[run.coded()[0]] = True
    if not has_document.all():
        first, n_empty = run.query_ids[int(np.argmin(has_document))], int((~has_document).sum())
        which = f"{n_empty} of {len(run)} queries, such as {first!r}"
        dates = ", and that documents are earlier" if dated else ""
        message = f"{name or ranker} finds no document for {which}; check their texts{dates}"
        warnings.warn(message, EmptyRankingWarning, stacklevel=3)
