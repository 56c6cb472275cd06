"""Re-ranking by passages and what stands around them in the graph of the collection: what its rankers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints, ragged_take
from haybale.context.document_graph import DocumentGraph, Mask
from haybale.context.node_vectors import NodeVectors
from haybale.context.relation_paths import RelationPaths
from haybale.engine import Engine
from haybale.parameters import COUNT, one_of
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.out_of_fold import positions
from haybale.rankers.query_batch import QueryBatch, numbered
from haybale.rankers.ranker import Ranker
from haybale.rankers.reranker import Reranker
from haybale.rankers.training import Training
from haybale.retrieval import Hits, Run
from haybale.retrieval.hits import from_flat
from haybale.timing import timed
from haybale.vectors import Floats

MASKS = ("own", "relevant", "off")
N_FOLDS = 5
Scores = NDArray[np.float64]


class QueryCandidates(NamedTuple):
    """One query, at the passages of the documents that are re-ordered, side by side."""

    row: int  # of the batch
    own: int
    passages: Ints  # (c,)
    begins: Ints  # (n + 1,) where the passages of each document begin
    scores: Floats  # (n_nodes,) inner products of the query with all nodes


class Masking(Protocol):
    """A ranker that hides links."""

    mask: str
    mask_: dict[str, list[str]] | None  # relevant documents by the document that training queries came from
    training_digest: str | None


class ContextRanker(Reranker):
    """The base of rankers that re-order the first documents of another by passages in context.

    A passage's score is a weighted sum of parts, the first of which is its own inner product with the query; a
    document's is that of its best passage. A ranker has ``_parts`` and ``_weights``, and what it learns in ``_learn``.
    """

    mask: str
    mask_: dict[str, list[str]] | None = None  # relevant documents by the document that training queries came from
    fold_of_: Ints
    _ranges: ClassVar = {"ranker": [Ranker], "n_documents": COUNT, "mask": one_of(MASKS)}

    def fit_batch(self, training: Training) -> None:
        _ = graph_of(training.batch.engine)  # without a graph: refused before any work
        self.rankers_ = [self.ranker.fitted(training)]
        self.mask_ = relevant_by_own(training) if self.mask == "relevant" else None
        self._learn(training)

    def _learn(self, training: Training) -> None:
        """Learn weights; a ranker without this has none to learn."""

    @abstractmethod
    def _parts(self, asked: QueryCandidates, batch: QueryBatch, fold: int) -> Floats:
        """(c, k) parts of the passages' scores; ``fold``: of the models that did not see it, -1 for that of all."""

    @abstractmethod
    def _weights(self, fold: int) -> Scores:
        """(k,)"""

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        """Of each document, that of its best passage."""
        where = (
            positions(self.query_ids_, batch.ids) if out_of_fold and len(self.query_ids_) else np.full(len(batch), -1)
        )
        folds = np.where(where >= 0, self.fold_of_[where], -1) if (where >= 0).any() else where
        return np.concatenate(
            [
                np.maximum.reduceat(
                    self._parts(asked, batch, int(folds[asked.row])) @ self._weights(int(folds[asked.row])),
                    asked.begins[:-1],
                )
                for asked in self._asked(batch, rows, documents)
            ]
        )

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """The k best passages of each query, of the first documents."""
        rows, ranks, documents = numbered(self.rankers_[0].run(batch, self.n_documents), batch.engine.collection)
        first = ranks <= self.n_documents
        none = np.empty(0, dtype=np.int64)
        of, best, values = [none], [none], [np.empty(0, dtype=np.float32)]
        for asked in self._asked(batch, rows[first], documents[first]):
            found = self._parts(asked, batch, -1) @ self._weights(-1)
            order = np.lexsort((asked.passages, -found))[:k]
            of.append(np.full(len(order), asked.row))
            best.append(asked.passages[order])
            values.append(found[order].astype(np.float32))
        return from_flat(len(batch), np.concatenate(of), np.concatenate(best), np.concatenate(values))

    def _asked(self, batch: QueryBatch, rows: Ints, documents: Ints) -> Iterator[QueryCandidates]:
        """Queries one by one, at the passages of their documents; of those that have one."""
        edges = np.searchsorted(rows, np.arange(len(batch) + 1))
        offsets = batch.engine.passages.doc_offsets
        for row, scores in enumerate(graph_of(batch.engine).vectors.scores(batch.vectors)):
            mine = documents[edges[row] : edges[row + 1]]
            if len(mine):
                passages, begins = ragged_take(offsets, mine)
                yield QueryCandidates(row, int(batch.own[row]), passages, begins, scores)

    def _hidden(self, engine: Engine) -> Mask | None:
        """What of the links of a query's own document it must not see."""
        return hidden_links(self, engine)

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """What a document's best passage, and each of its neighbours, carries."""
        asked = next(self._asked(batch, np.array([0]), np.array([document])))
        parts = self._parts(asked, batch, -1) * self._weights(-1)
        best = int(np.argmax(parts.sum(axis=1)))
        passage = int(asked.passages[best])
        called, text = self._neighbour(batch.engine, np.array([passage]))
        itself = [Share(called, float(parts[best, 0]), text)] if self._itself else []
        return by_size([*itself, *self._around(batch, asked, passage)])

    @property
    def _itself(self) -> bool:
        """Whether the first part is the passage's own inner product."""
        return True

    @abstractmethod
    def _around(self, batch: QueryBatch, asked: QueryCandidates, passage: int) -> list[Share]:
        """What each neighbour carries of a passage's score, beyond its own inner product."""

    def _neighbour(self, engine: Engine, nodes: Ints) -> tuple[str, str | None]:
        """How a passage, a section or a whole document is called, and its text."""
        graph, collection = graph_of(engine).graph, engine.collection
        if len(nodes) > 1:
            return f"document {collection.doc_ids[int(graph.doc_of[nodes[0]])].as_py()}", None
        node = int(nodes[0])
        if node >= graph.n_passages:
            return f"section “{graph.titles[node - graph.n_passages]}”", None
        return f"passage {collection.passages.ids[node].as_py()}", collection.passages.texts[node].as_py()


class EngineGraph(NamedTuple):
    """The graph of an engine's documents, with what is asked of it."""

    graph: DocumentGraph
    paths: RelationPaths
    vectors: NodeVectors


def graph_of(engine: Engine) -> EngineGraph:
    """The graph of the documents that an engine has now; of one limited to some documents, of these alone."""

    def made() -> EngineGraph:
        with timed("build graph"):
            graph = DocumentGraph.from_collection(engine.collection)
            return EngineGraph(graph, RelationPaths(graph), NodeVectors(graph, engine.passages.vectors, engine.encoder))

    return engine.cached("graph", made)


def hidden_links(ranker: Masking, engine: Engine) -> Mask | None:
    """What of the links of its own document a query must not see; None: it sees all."""
    collection = engine.collection
    if ranker.mask == "off":
        return None
    if ranker.mask_ is None:
        return Mask(None, collection.n_documents)

    def made() -> Mask:
        pairs = [(own, other) for own, others in (ranker.mask_ or {}).items() for other in others]
        found = collection.find_documents([doc_id for pair in pairs for doc_id in pair]).reshape(-1, 2)
        found = found[(found >= 0).all(axis=1)]
        return Mask(np.unique(found[:, 0] * collection.n_documents + found[:, 1]), collection.n_documents)

    return engine.cached(("mask", ranker.training_digest or ranker), made)


def relevant_by_own(training: Training) -> dict[str, list[str]]:
    """The relevant documents of all queries that were taken from a document, by its id."""
    ids, found = training.batch.engine.collection.doc_ids, dict[str, set[str]]()
    for own, relevant in zip(training.batch.own.tolist(), training.relevant, strict=True):
        if own >= 0:
            found.setdefault(str(ids[own].as_py()), set()).update(relevant)
    return {own: sorted(relevant) for own, relevant in sorted(found.items())}
