"""Similar training queries as a ranker: k-nearest-neighbour classification with documents as categories.

Yang & Chute, "An Example-Based Mapping Method for Text Categorization and Retrieval", ACM TOIS 12(3), 1994.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections.collection import Strings, indptr_from_counts
from haybale.device import is_sparse, to_numpy
from haybale.engine import Engine
from haybale.engine.reattaching import find_renamed
from haybale.errors import FileFormatError
from haybale.manifest import mapped_tensors, read_table, write_table, write_tensors
from haybale.parameters import COUNT, NOT_NEGATIVE
from haybale.ranking.out_of_fold import OutOfFold
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import PassageIndex, Run
from haybale.retrieval.exclusion import Cutoffs, Exclusion
from haybale.retrieval.hits import Ints
from haybale.search.cutoffs import dated_training
from haybale.search.explanation import Explanation, Share, by_size
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Matrix, normalized, normalized_sparse

# The names of the saved folders and files.
_STATE_FOLDER, _INDEX_FOLDER, _DOCUMENTS_FILE = "neighbours", "training", "documents.parquet"
_RELEVANT_FILE = "relevant.safetensors"
_IDS_SCHEMA = pa.schema([("id", pa.large_string())])


@dataclass(eq=False, repr=False)
class SimilarQueries(OutOfFold, Ranker):
    """Rank documents that were relevant to similar training queries.

    score(d) = Σ cos(q, q')^power, over those of the k nearest training queries q' to which d is relevant.

    The ranker does not use document texts. It finds documents that text searches miss, but only those that were
    relevant to a training query. The search is exact. A training query with a cosine of 0 or less is no neighbour; of
    equal cosines, the query with the smaller id comes first. Twins are one neighbour (:mod:`~haybale.ranking.twins`).
    Out of fold, neither a training query itself is a neighbour, nor are queries that were taken from the same document
    or are nearly the same. With ``before=``, no training query that is later than a query is its neighbour.

    Parameters
    ----------
    k : int, default 50
        Largest number of neighbours.
    power : float, default 2.0
        Exponent of the cosine. The larger it is, the more the nearest queries count; 0 counts the neighbours.
    """

    name = "knn-queries"
    variants: ClassVar = {"knn-queries": {}}
    learns_documents = True
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = {"k": COUNT, "power": NOT_NEGATIVE}

    k: int = 50
    _: KW_ONLY
    power: float = 2.0

    def fit_batch(self, training: Training) -> None:
        batch, collection = training.batch, training.batch.engine.collection
        relevant = [list(dict.fromkeys(ids)) for ids in training.relevant]
        self.query_ids_ = batch.ids
        # Queries of one document, and queries that are nearly the same, share a group.
        self.groups_: Ints = batch.groups
        self.days_: Ints | None = None if batch.cutoffs is None else batch.cutoffs.queries
        self.index_ = PassageIndex(_unit(batch.vectors), passage_ids=batch.ids, doc_ids=batch.ids)
        self.doc_ids_: Strings = collection.doc_ids
        # Ragged array: the relevant documents of each training query as numbers in doc_ids_; (n_queries + 1,) offsets.
        self.offsets_: Ints = indptr_from_counts([len(ids) for ids in relevant])
        self.relevant_: Ints = collection.document_numbers([id for ids in relevant for id in ids])

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, np.full(len(batch), -1))

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, self.rows_of(batch.ids))

    def _ranked(self, batch: QueryBatch, depth: int, itself: Ints) -> Run:
        vectors = batch.vectors
        with batch.timed("search similar queries"):
            rows, neighbours, cosines = self._neighbours(vectors, itself, batch.cutoffs)
            ends = indptr_from_counts(np.bincount(rows, minlength=len(batch)))
            shape = len(batch), len(self.index_)
            weights = sparse.csr_matrix((cosines**self.power, neighbours, ends), shape=shape)
            scores = (weights @ self._relevance(batch.engine)).tocoo()
            is_other = ~batch.exclude.hides(scores.row, scores.col)
            triples = scores.row[is_other], scores.col[is_other], scores.data[is_other]
            return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, *triples, depth)

    def _neighbours(
        self, vectors: Matrix, itself: Ints, cutoffs: Cutoffs | None
    ) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Return flat arrays of the query row, the training query and the cosine, nearest first for each query.

        ``itself`` (m,) is the number of each query among the training queries, -1 for others. Training queries of the
        same group are excluded, and those of later days than a query.
        """
        # The index searches all training queries, and can exclude only the query itself. The search is therefore
        # deeper by the size of the largest group, and the rest of the group is removed from the hits.
        more = int(np.bincount(self.groups_).max()) - 1 if (itself >= 0).any() else 0
        hits = self.index_.search(
            _unit(vectors), min(self.k + more, len(self.index_)), exclude=Exclusion(itself, self._cutoffs(cutoffs))
        )
        rows, _, neighbours, cosines = hits.flat()
        near = (cosines > 0) & ((itself[rows] < 0) | (self.groups_[neighbours] != self.groups_[itself[rows]]))
        rows, neighbours, cosines = rows[near], neighbours[near], cosines[near]
        first = np.arange(len(rows)) - np.searchsorted(rows, rows) < self.k
        return rows[first], neighbours[first], cosines[first].astype(np.float64)

    def _cutoffs(self, cutoffs: Cutoffs | None) -> Cutoffs | None:
        """Return the cutoffs of queries among the training queries: those of the same day or earlier are neighbours."""
        return None if cutoffs is None else Cutoffs(dated_training(self.days_, self), cutoffs.queries + 1)

    def _relevance(self, engine: Engine) -> sparse.csr_matrix:
        """Return a matrix (n_queries, n_documents) that is 1 where the engine's document is relevant to the query."""
        collection, shape = engine.collection, (len(self.index_), engine.collection.n_documents)

        def renumbered() -> tuple[Ints, Ints]:
            numbers = find_renamed(collection, self.doc_ids_, engine.folder)[self.relevant_]
            exists = numbers >= 0
            return numbers[exists], indptr_from_counts(exists.astype(np.int64))[self.offsets_]

        numbers, offsets = self.relevant_, self.offsets_
        if collection.doc_ids is not self.doc_ids_:  # the engine's documents have changed or are limited
            numbers, offsets = engine.cached(("similar queries", self._state_key), renumbered)
        return sparse.csr_matrix((np.ones(len(numbers)), numbers, offsets), shape=shape)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        neighbours, cosines, relevance = batch.once(("neighbours", self._cache_key()), lambda: self._near(batch))
        is_relevant = relevance[:, [document]].toarray()[:, 0] > 0
        shares = [
            Share(
                f"training query {self.query_ids_[row]} (cosine {cosine:.3f}), to which it is relevant",
                share,
                query_id=self.query_ids_[row],
            )
            for row, cosine, share in zip(
                neighbours[is_relevant], cosines[is_relevant], cosines[is_relevant] ** self.power, strict=True
            )
        ]
        return replace(base, shares=by_size(shares))

    def _near(self, batch: QueryBatch) -> tuple[Ints, NDArray[np.float64], sparse.csc_matrix]:
        """Return the neighbours (k,) of a batch's only query, their cosines, and their rows of :meth:`_relevance`."""
        _, neighbours, cosines = self._neighbours(batch.vectors, np.array([-1]), batch.cutoffs)
        return neighbours, cosines, self._relevance(batch.engine)[neighbours].tocsc()

    def save_state(self, folder: Path) -> dict[str, Any]:
        """Write the index of the training queries, the document ids, and the relevant pairs as numbers."""
        self.index_.save(folder / _STATE_FOLDER / _INDEX_FOLDER)
        write_table(folder / _STATE_FOLDER / _DOCUMENTS_FILE, pa.table([self.doc_ids_], schema=_IDS_SCHEMA))
        tensors = {"offsets": self.offsets_, "documents": self.relevant_, "groups": self.groups_}
        if self.days_ is not None:
            tensors["days"] = self.days_
        write_tensors(folder / _STATE_FOLDER / _RELEVANT_FILE, tensors)
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        folder = folder / _STATE_FOLDER
        self.index_ = PassageIndex.open(folder / _INDEX_FOLDER)
        ids = self.index_.passage_ids
        self.query_ids_ = ids.to_pylist()
        self.doc_ids_ = read_table(folder / _DOCUMENTS_FILE, _IDS_SCHEMA).column("id")
        tensors = mapped_tensors(folder / _RELEVANT_FILE)
        self.offsets_, self.relevant_, self.groups_ = (tensors[name] for name in ("offsets", "documents", "groups"))
        self.days_ = tensors.get("days")
        shape = len(self.index_), len(self.doc_ids_)
        try:
            pairs = sparse.csr_matrix((np.ones(len(self.relevant_)), self.relevant_, self.offsets_), shape=shape)
            pairs.check_format(full_check=True)
        except ValueError as error:
            message = f"expected pairs of {shape[0]} queries and {shape[1]} documents, found others ({error})"
            raise FileFormatError(folder / _RELEVANT_FILE, None, message) from None


def _unit(vectors: Matrix) -> Matrix:
    """Return vectors of length 1 in main memory."""
    return (normalized_sparse if is_sparse(vectors) else normalized)(to_numpy(vectors))
