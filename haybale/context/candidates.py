"""The candidate documents of context re-rankers, and the rule that a document scores by its best passage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints, ragged_take
from haybale.collections.ids import in_order_of_ids
from haybale.context.engine_graph import graph_of
from haybale.errors import InputError
from haybale.rankers import OutOfFold, QueryBatch, Ranker, Training
from haybale.retrieval import Hits
from haybale.retrieval.hits import from_flat
from haybale.vectors import Floats

Scores: TypeAlias = NDArray[np.float64]
N_FOLDS = 5


class QueryCandidates(NamedTuple):
    """The passages of one query's candidate documents."""

    row: int  # the query's row in its batch
    own: int  # the document that the query was taken from, -1 for none
    passages: Ints  # (c,) the passages, grouped by document
    begins: Ints  # (n + 1,) where the passages of each document begin
    scores: Floats  # (n_nodes,) inner products of the query with all nodes of the graph


def query_candidates(batch: QueryBatch, rows: Ints, documents: Ints) -> Iterator[QueryCandidates]:
    """Yield the candidates of each query that has some.

    ``documents`` (n,) are the candidates of the queries in ``rows`` (n,), which must be sorted.
    """
    edges = np.searchsorted(rows, np.arange(len(batch) + 1))
    offsets = batch.engine.passages.doc_offsets
    for row, scores in enumerate(graph_of(batch.engine).vectors.scores(batch.vectors)):
        candidates = documents[edges[row] : edges[row + 1]]
        if len(candidates):
            yield QueryCandidates(row, int(batch.own[row]), *ragged_take(offsets, candidates), scores)


class BestPassage:
    """Mixin of re-rankers that score passages with :meth:`score_passages`; a document scores by its best passage."""

    n_documents: int
    rankers_: Sequence[Ranker]

    @abstractmethod
    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        """Return the scores (c,) of the passages, −inf for passages that are not read.

        ``fold`` selects the model that was trained without the queries of that fold, -1 the one trained on all queries.
        """

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        folds = self.folds_of(batch.ids) if out_of_fold and isinstance(self, OutOfFold) else np.full(len(batch), -1)
        best_scores = []
        for candidates in query_candidates(batch, rows, documents):
            passage_scores = self.score_passages(batch, candidates, int(folds[candidates.row]))
            best_scores.append(np.maximum.reduceat(passage_scores, candidates.begins[:-1]))
        return np.concatenate(best_scores)

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """Return the k best passages of each query among its first ``n_documents`` documents."""
        collection = batch.engine.collection
        rows, ranks, documents = self.rankers_[0].run(batch, self.n_documents).numbers_in(collection)
        first = ranks <= self.n_documents
        none = np.empty(0, dtype=np.int64)
        queries, passages, values = [none], [none], [np.empty(0, dtype=np.float32)]
        for candidates in query_candidates(batch, rows[first], documents[first]):
            scores = self.score_passages(batch, candidates, -1)
            _, by_id = in_order_of_ids(collection.doc_ids, collection.passages.doc_of[candidates.passages])
            order = np.lexsort((candidates.passages, by_id, -scores))[: min(k, int(np.isfinite(scores).sum()))]
            queries.append(np.full(len(order), candidates.row))
            passages.append(candidates.passages[order])
            values.append(scores[order].astype(np.float32))
        return from_flat(len(batch), np.concatenate(queries), np.concatenate(passages), np.concatenate(values))

    def best_passage(self, batch: QueryBatch, document: int) -> tuple[QueryCandidates, int]:
        """Return the passages of a document as candidates for the one query of a batch, and the best of them."""
        (candidates,) = query_candidates(batch, np.array([0]), np.array([document]))
        return candidates, int(candidates.passages[np.argmax(self.score_passages(batch, candidates, -1))])


def best_passages(scores: Scores, begins: Ints) -> Ints:
    """Return the index (n,) of each document's best passage, the first of equals.

    ``scores`` (c,) are grouped by document; ``begins`` (n + 1,) says where each document begins.
    """
    best = np.repeat(np.maximum.reduceat(scores, begins[:-1]), np.diff(begins))
    at = np.flatnonzero(scores == best)
    return at[np.searchsorted(at, begins[:-1])]


class JudgedDocuments(NamedTuple):
    """The documents that a re-ranker learns from: the candidates of training queries and their relevant documents."""

    batch: QueryBatch  # the training queries
    rows: Ints  # (n,) the row of each document's query, sorted
    documents: Ints  # (n,) documents with a passage
    relevant: NDArray[np.bool_]  # (n,)

    def of(self, row: int) -> slice:
        """Return the slice of one query's documents."""
        return slice(*np.searchsorted(self.rows, [row, row + 1]))


class LearningReranker(Protocol):
    """A re-ranker that learns in folds."""

    n_documents: int
    n_queries: int
    random_state: int | None
    rankers_: Sequence[Ranker]
    query_ids_: Sequence[str]
    fold_of_: Ints

    def learnable_rows(self, training: Training) -> Ints: ...


def judged_documents(ranker: LearningReranker, training: Training) -> JudgedDocuments:
    """Sample at most ``n_queries`` judged queries, split them into folds, and return their documents.

    Queries that an encoder was trained on are left out. Sets ``query_ids_`` and ``fold_of_`` of the ranker. Raises
    :class:`InputError` if no relevant document has a passage.
    """
    learnable = ranker.learnable_rows(training)
    judged = learnable[[len(training.relevant[row]) > 0 for row in learnable]]
    rng, size = np.random.default_rng(ranker.random_state), min(ranker.n_queries, len(judged))
    drawn = np.sort(rng.choice(judged, size=size, replace=False))
    batch = training.batch.take(drawn) if len(drawn) < len(training) else training.batch
    ranker.query_ids_, ranker.fold_of_ = batch.ids, batch.folds(N_FOLDS, ranker.random_state)
    relevant = [training.relevant[row] for row in drawn]
    collection = batch.engine.collection
    rows, _, documents = ranker.rankers_[0].run(batch, ranker.n_documents, out_of_fold=True).numbers_in(collection)
    answers = collection.document_numbers([doc_id for ids in relevant for doc_id in ids])
    relevant_pairs = np.repeat(np.arange(len(batch)), [len(ids) for ids in relevant]) * collection.n_documents + answers
    pairs = np.unique(np.concatenate([rows * collection.n_documents + documents, relevant_pairs]))
    rows, documents = pairs // collection.n_documents, pairs % collection.n_documents
    has_passage = np.diff(batch.engine.passages.doc_offsets)[documents] > 0
    is_relevant = np.isin(pairs, relevant_pairs) & has_passage
    if not is_relevant.any():
        raise InputError(
            f"{ranker}: no relevant document of the training queries has a passage; add texts to these documents"
        )
    return JudgedDocuments(batch, rows[has_passage], documents[has_passage], is_relevant[has_passage])
