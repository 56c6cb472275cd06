"""Similar training queries as a ranker: their relevant documents are ranked by the similarity of the queries."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from haybale.engine import Engine
from haybale.parameters import COUNT, NOT_NEGATIVE
from haybale.rankers.explanation import Explanation, Share, by_size
from haybale.rankers.out_of_fold import OutOfFold
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.retrieval import QueryNeighbours, Run
from haybale.retrieval.hits import Ints


@dataclass(eq=False, repr=False)
class SimilarQueries(OutOfFold, Ranker):
    """score(d) = Σ over the k nearest training queries q' with d relevant of cos(q, q')^power.

    Yang & Chute, "An Example-Based Mapping Method for Text Categorization and Retrieval", ACM TOIS 12(3), 1994. It
    reads no document text, so it finds documents that a text search misses, and only such as were relevant to a
    training query.

    Parameters
    ----------
    k : int, default 50
        Nearest training queries that count, at most.
    power : float, default 2.0
        Exponent of the cosine; 0 counts the neighbours.
    """

    name = "knn-queries"
    variants: ClassVar = {"knn-queries": {}}
    learns_documents = True
    _parameter_constraints: ClassVar = {"k": COUNT, "power": NOT_NEGATIVE}

    k: int = 50
    _: KW_ONLY
    power: float = 2.0

    def fit_batch(self, training: Training) -> None:
        batch = training.batch
        ids = batch.engine.collection.doc_ids
        known: dict[str, Any] = {"query_ids": batch.ids, "groups": batch.queries.groups}
        self.neighbours_ = QueryNeighbours(batch.vectors, training.relevant, ids, k=self.k, power=self.power, **known)
        self.query_ids_ = batch.ids

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, None)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, self.rows_of(batch.ids))

    def _ranked(self, batch: QueryBatch, depth: int, itself: Ints | None) -> Run:
        vectors, neighbours = batch.vectors, self._in(batch.engine)
        with batch.timed("search similar queries"):
            return neighbours.rank(vectors, batch.ids, exclude=batch.own, training_rows=itself, depth=depth)

    def _in(self, engine: Engine) -> QueryNeighbours:
        """Return the neighbours with the document numbers of an engine."""
        ids = engine.collection.doc_ids
        if self.neighbours_.documents.doc_ids is ids:
            return self.neighbours_
        return engine.cached(("similar queries", self.neighbours_), lambda: self.neighbours_.with_documents(ids))

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        found = self._in(batch.engine).explain(batch.vectors, base.doc_id)
        shares = [
            Share(f"training query {query} (cosine {cosine:.3f}), to which it is relevant", share)
            for query, cosine, share in zip(found["query_id"], found["cosine"], found["share"], strict=True)
        ]
        return replace(base, shares=by_size(shares))

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.neighbours_.save(folder / "neighbours")
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.neighbours_ = QueryNeighbours.open(folder / "neighbours")
        self.query_ids_ = self.neighbours_.index.passage_ids.to_pylist()
