"""The documents of another engine's rankings, found in an engine by their ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.collections import Collection
from haybale.collections.collection import Strings, ragged_take, take_strings
from haybale.errors import InputError
from haybale.ranking.ranker import Ranker
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.retrieval.ranked_lists import RankedLists
from haybale.search.query_batch import QueryBatch

_MAX_NAMED_IDS = 3  # ids that an error names


class ExternalDocuments:
    """Find the documents of runs of another engine in an engine.

    The numbers of the documents of the last run are kept, because all batches have the run of a file.

    Parameters
    ----------
    ranker : Ranker
        The ranker that the runs belong to. Its parameter ``unknown_documents`` is "error" or "drop".
    """

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self._last: tuple[Strings, Strings, Ints] | None = None  # ids of the run, of the engine, and numbers

    def in_engine(self, lists: RankedLists, batch: QueryBatch, depth: int) -> Run:
        """Return the first ``depth`` documents of each query of a batch, in the order of the lists.

        A query that the lists do not have gets no document. The documents that queries were taken from are left out,
        and so are documents that are not earlier than a query with a cutoff.
        """
        list_rows = np.array([lists.row_of.get(query_id, -1) for query_id in batch.ids])
        batch_rows = np.flatnonzero(list_rows >= 0)
        at, offsets = ragged_take(lists.offsets, list_rows[batch_rows])
        rows, codes = np.repeat(batch_rows, np.diff(offsets)), lists.documents[at]
        collection = batch.engine.collection
        documents = self._numbers(lists.doc_ids, collection)[codes]
        is_there = documents >= 0
        if not is_there.all() and vars(self.ranker)["unknown_documents"] == "error":
            self._check_known(take_strings(lists.doc_ids, np.unique(codes[~is_there])))
        kept = np.flatnonzero(is_there & ~batch.exclude.hides(rows, documents))
        first = np.searchsorted(rows[kept], rows[kept])  # the position of the first document of the same query
        kept = kept[np.arange(len(kept)) - first < depth]
        return Run(batch.ids, rows[kept], documents[kept], collection.doc_ids, lists.scores[at[kept]])

    def _numbers(self, table: Strings, collection: Collection) -> Ints:
        """Return the number, in a collection, of each document of a table of ids; -1 for others."""
        last = self._last
        if last is None or last[0] is not table or last[1] is not collection.doc_ids:
            self._last = last = table, collection.doc_ids, collection.find_documents(table.to_pylist())
        return last[2]

    def _check_known(self, doc_ids: list[str]) -> None:
        """Raise InputError for documents that the whole engine does not have, whatever part of it the batch ranks."""
        whole = self.ranker.engine_.snapshot().collection
        unknown = [doc_id for doc_id, number in zip(doc_ids, whole.find_documents(doc_ids), strict=True) if number < 0]
        if unknown:
            raise InputError(
                f"{self.ranker}: expected documents of {self.ranker.engine_!r}, found {len(unknown):,} others, such as "
                f"{named_ids(unknown)}; add them to the engine, or set unknown_documents='drop' to leave them out"
            )


def named_ids(ids: Sequence[str]) -> str:
    """Return the first ids for an error message."""
    return ", ".join(map(repr, ids[:_MAX_NAMED_IDS]))
