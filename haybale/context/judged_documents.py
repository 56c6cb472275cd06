"""The documents of training queries that context rankers learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints
from haybale.context.candidates import PassageReranker
from haybale.errors import InputError
from haybale.rankers import QueryBatch, Training
from haybale.rankers.query_batch import numbered

N_FOLDS = 5


class JudgedDocuments(NamedTuple):
    """Documents of training queries: those that a ranker re-orders, and the relevant ones, if they have passages."""

    batch: QueryBatch  # the queries that are learned from
    rows: Ints  # (n,) the query of each document, rising
    documents: Ints
    relevant: NDArray[np.bool_]

    def of(self, row: int) -> slice:
        """Return the place of one query's documents."""
        return slice(*np.searchsorted(self.rows, [row, row + 1]))


class LearningReranker(PassageReranker, Protocol):
    """A re-ranker that scores passages by what it learned fold by fold."""

    n_queries: int
    random_state: int | None
    query_ids_: Sequence[str]
    fold_of_: Ints


def judged_documents(ranker: LearningReranker, training: Training) -> JudgedDocuments:
    """Draw at most ``n_queries`` with a relevant document, deal them into folds, and return their documents."""
    judged = np.flatnonzero(list(map(bool, training.relevant)))
    rng, size = np.random.default_rng(ranker.random_state), min(ranker.n_queries, len(judged))
    drawn = np.sort(rng.choice(judged, size=size, replace=False))
    batch = training.batch.take(drawn) if len(drawn) < len(training) else training.batch
    ranker.query_ids_, ranker.fold_of_ = batch.ids, batch.folds(N_FOLDS, ranker.random_state)
    relevant = [training.relevant[row] for row in drawn]
    collection = batch.engine.collection
    rows, _, documents = numbered(ranker.rankers_[0].run_out_of_fold(batch, ranker.n_documents), collection)
    answers = collection.document_numbers([doc_id for ids in relevant for doc_id in ids])
    known = np.repeat(np.arange(len(batch)), [len(ids) for ids in relevant]) * collection.n_documents + answers
    pairs = np.unique(np.concatenate([rows * collection.n_documents + documents, known]))
    rows, documents = pairs // collection.n_documents, pairs % collection.n_documents
    has_passage = np.diff(batch.engine.passages.doc_offsets)[documents] > 0
    is_relevant = np.isin(pairs, known) & has_passage
    if not is_relevant.any():
        raise InputError(f"{ranker}: no relevant document has a passage: there is nothing to learn")
    return JudgedDocuments(batch, rows[has_passage], documents[has_passage], is_relevant[has_passage])
