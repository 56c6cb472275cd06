"""The days before which documents must lie to be found by queries with dates."""

from __future__ import annotations

import numpy as np

from haybale.collections import Collection, Queries
from haybale.collections.dates import UNDATED, days_of
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.exclusion import NO_DATE, Cutoffs
from haybale.retrieval.hits import Ints


def cutoffs_of(collection: Collection, queries: Queries, before: str) -> Cutoffs:
    """Return the cutoffs of queries on the documents of a collection.

    Parameters
    ----------
    collection : Collection
    queries : Queries
        Their dates are those of ``queries.dates``; a query without one has the date of its own document, and UNDATED
        stands for no date at all.
    before : str
        The column of the metadata with the dates of documents. A document without a date is earlier than no query.

    Raises
    ------
    InputError
        If no document has such a column, or a value in it is not a date.
    """
    columns = [] if collection.metadata is None else collection.metadata.column_names
    if before not in columns:
        if not columns:
            raise InputError(f"before={before!r} needs documents with a date in this column, but they have no metadata")
        raise UnknownNameError("date column", before, columns)
    assert collection.metadata is not None
    first, last = days_of(collection.metadata[before], collection.doc_ids, NO_DATE)
    days = np.full(len(queries), UNDATED) if queries.dates is None else queries.dates.copy()
    of_document = (days == UNDATED) & (queries.own >= 0)
    days[of_document] = first[queries.own[of_document]]
    return Cutoffs(last, np.where(days == NO_DATE, UNDATED, days))


def dated_training(days: Ints | None, ranker: object) -> Ints:
    """Return the days (n,) of a ranker's training queries; raise InputError if it was fitted without dates."""
    if days is None:
        raise InputError(f"{ranker} was fitted without dates of its training queries; fit it with before=…, too")
    return days


def check_dated(queries: Queries, cutoffs: Cutoffs) -> None:
    """Raise InputError if a query has no date."""
    undated = np.flatnonzero(cutoffs.queries == UNDATED)
    if len(undated):
        query = queries.ids[int(undated[0])].as_py()
        raise InputError(
            f"before= needs a date of each query, but {len(undated):,} of {len(queries):,} have none, such as "
            f"{query!r}; give them a date, or leave them out"
        )
