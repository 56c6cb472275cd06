"""The queries and judgements of a split, as far as queries may find the documents by their dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from haybale.collections import Collection, Queries
from haybale.collections.dates import UNDATED
from haybale.errors import InputError
from haybale.retrieval.exclusion import Cutoffs
from haybale.search.cutoffs import cutoffs_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class DatedSplit:
    """The queries of a split that have a date, and their judgements of documents that are earlier."""

    queries: Queries
    cutoffs: Cutoffs
    qrels: pd.DataFrame
    left_out: dict[str, int]  # numbers of queries without a date, and of judgements of documents that are not earlier

    @classmethod
    def of(cls, collection: Collection, split: str, before: str) -> DatedSplit:
        """Return a split with dates; ``before`` is the column with the dates of documents.

        Raises :class:`~haybale.InputError` if no judgement is left.
        """
        queries, qrels = collection.queries.take(collection.split(split).queries), collection.qrels_frame(split)
        cutoffs = cutoffs_of(collection, queries, before)
        is_dated = cutoffs.queries != UNDATED
        row_of = {query: row for row, query in enumerate(queries.ids.to_pylist())}
        rows = qrels["query_id"].map(row_of).to_numpy(dtype=np.int64)
        documents = collection.document_numbers(qrels["doc_id"].tolist())
        is_judged, is_earlier = is_dated[rows], ~cutoffs.hides(rows, documents)
        left_out = {
            "queries without a date": int((~is_dated).sum()),
            "judgements of documents that are not earlier": int((is_judged & ~is_earlier).sum()),
        }
        kept = qrels[is_judged & is_earlier].reset_index(drop=True)
        if not (kept["relevance"] > 0).any():
            raise InputError(
                f"before={before!r}: expected a query of {split!r} with an earlier relevant document, found none; "
                "check the dates of queries and documents"
            )
        chosen = np.flatnonzero(is_dated)
        return cls(queries.take(chosen), cutoffs.take(chosen), kept, left_out)
