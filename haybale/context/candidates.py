"""The passages that a re-ranker scores for each query, and what documents gain from the best of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints, ragged_take
from haybale.context.engine_graph import graph_of
from haybale.rankers.query_batch import QueryBatch, numbered
from haybale.rankers.ranker import Ranker
from haybale.retrieval import Hits
from haybale.retrieval.hits import from_flat
from haybale.vectors import Floats

Scores: TypeAlias = NDArray[np.float64]


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
    rows, ranks, documents = numbered(ranker.rankers_[0].run(batch, ranker.n_documents), batch.engine.collection)
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
