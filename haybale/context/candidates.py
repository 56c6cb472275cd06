"""The documents that a re-ranker orders and learns from, and the passages by the best of which each is scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints, ragged_take
from haybale.context.engine_graph import graph_of
from haybale.errors import InputError
from haybale.rankers import Training
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.retrieval import Hits
from haybale.retrieval.hits import from_flat
from haybale.vectors import Floats

Scores: TypeAlias = NDArray[np.float64]
N_FOLDS = 5


class QueryCandidates(NamedTuple):
    """The passages of the documents that are re-ordered for one query."""

    row: int  # of the query in its batch
    own: int  # the document that the query was taken from, -1 for none
    passages: Ints  # (c,) those of a document side by side
    begins: Ints  # (n + 1,) where the passages of each document begin
    scores: Floats  # (n_nodes,) inner products of the query with all nodes of the graph


def query_candidates(batch: QueryBatch, rows: Ints, documents: Ints) -> Iterator[QueryCandidates]:
    """Iterate over the queries that have documents (n,); ``rows`` (n,) rises."""
    edges = np.searchsorted(rows, np.arange(len(batch) + 1))
    offsets = batch.engine.passages.doc_offsets
    for row, scores in enumerate(graph_of(batch.engine).vectors.scores(batch.vectors)):
        mine = documents[edges[row] : edges[row + 1]]
        if len(mine):
            yield QueryCandidates(row, int(batch.own[row]), *ragged_take(offsets, mine), scores)


class PassageReranker(Protocol):
    """A re-ranker that scores passages."""

    n_documents: int
    rankers_: Sequence[Ranker]

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        """Return the passages' scores (c,), −inf for those that are not read.

        ``fold`` selects the model that did not see the training queries of that fold, -1 the one that saw all.
        """
        ...


def document_scores(
    ranker: PassageReranker, batch: QueryBatch, rows: Ints, documents: Ints, folds: Ints | None = None
) -> Scores:
    """Return the scores of documents (n,), each that of its best passage.

    ``folds`` (m,) are those of the batch's queries, which must not be seen; -1 or None for no fold.
    """
    scores = []
    for each in query_candidates(batch, rows, documents):
        of_passages = ranker.score_passages(batch, each, -1 if folds is None else int(folds[each.row]))
        scores.append(np.maximum.reduceat(of_passages, each.begins[:-1]))
    return np.concatenate(scores)


def best_hits(ranker: PassageReranker, batch: QueryBatch, k: int) -> Hits:
    """Return the k best passages of each query in the documents that are re-ordered."""
    rows, ranks, documents = ranker.rankers_[0].run(batch, ranker.n_documents).numbers_in(batch.engine.collection)
    first = ranks <= ranker.n_documents
    none = np.empty(0, dtype=np.int64)
    queries, passages, values = [none], [none], [np.empty(0, dtype=np.float32)]
    for each in query_candidates(batch, rows[first], documents[first]):
        scores = ranker.score_passages(batch, each, -1)
        order = np.lexsort((each.passages, -scores))[: min(k, int(np.isfinite(scores).sum()))]
        queries.append(np.full(len(order), each.row))
        passages.append(each.passages[order])
        values.append(scores[order].astype(np.float32))
    return from_flat(len(batch), np.concatenate(queries), np.concatenate(passages), np.concatenate(values))


def best_passage(ranker: PassageReranker, batch: QueryBatch, document: int) -> tuple[QueryCandidates, int]:
    """Return a document's passages as candidates for the one query of a batch, and the best of them."""
    (candidates,) = query_candidates(batch, np.array([0]), np.array([document]))
    return candidates, int(candidates.passages[np.argmax(ranker.score_passages(batch, candidates, -1))])


def best_passages(scores: Scores, begins: Ints) -> Ints:
    """Return the place of each document's best passage (n,), the first of equals."""
    best = np.repeat(np.maximum.reduceat(scores, begins[:-1]), np.diff(begins))
    at = np.flatnonzero(scores == best)
    return at[np.searchsorted(at, begins[:-1])]


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
    rows, _, documents = ranker.rankers_[0].run_out_of_fold(batch, ranker.n_documents).numbers_in(collection)
    answers = collection.document_numbers([doc_id for ids in relevant for doc_id in ids])
    known = np.repeat(np.arange(len(batch)), [len(ids) for ids in relevant]) * collection.n_documents + answers
    pairs = np.unique(np.concatenate([rows * collection.n_documents + documents, known]))
    rows, documents = pairs // collection.n_documents, pairs % collection.n_documents
    has_passage = np.diff(batch.engine.passages.doc_offsets)[documents] > 0
    is_relevant = np.isin(pairs, known) & has_passage
    if not is_relevant.any():
        raise InputError(f"{ranker}: no relevant document has a passage: there is nothing to learn")
    return JudgedDocuments(batch, rows[has_passage], documents[has_passage], is_relevant[has_passage])
