"""The passage index: exact nearest neighbours by inner product, string ids outside, numbers inside.

Dense vectors are searched through a backend, sparse ones through an inverted index.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse

from haybale.collections import Collection
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError, VectorError
from haybale.progress import track
from haybale.retrieval.exact import backend as find_backend
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints, select
from haybale.retrieval.passages import Exclude, Ids, PassageTable, document_offsets
from haybale.retrieval.sparse_search import search_sparse
from haybale.vectors import Floats, Matrix, check_like, check_matrix

_BATCH = 1024  # queries searched at once
_SLACK = 24  # candidates proposed beyond those asked for, to settle the last places
_RESCORED = 2**18  # float64 values gathered at once when scores are settled: 2 MiB, which a cache holds


class PassageIndex(PassageTable):
    """Exact inner-product search over passage vectors.

    Scores are exact to float32: the backend's float32 product only proposes candidates, whose inner products
    are then summed in float64 and rounded; a row is searched deeper until no passage left out can matter.
    So every backend returns the same hits, and equal vectors get equal scores.

    Sparse vectors, a SciPy CSR matrix such as :class:`TfidfEncoder` makes, are never densified. Of them a passage
    that shares no term with the query is no hit, as in :class:`BM25Index`; a dense index has no such passages, it
    ranks those with score 0 among the others.

    Parameters: ``vectors`` (n, d), dense or CSR; ``doc_offsets`` (n_documents + 1,), where documents begin (default:
    every passage its own document); ``passage_ids`` and ``doc_ids`` (default: the numbers as strings); ``backend``
    ``"auto"``, ``"faiss"`` or ``"numpy"`` (sparse vectors have their own search, and take ``"auto"`` only).

    >>> index = PassageIndex(np.eye(3), passage_ids=["a", "b", "c"])
    >>> hits = index.search(np.array([[0.9, 0.1, 0.5]]), k=2)
    >>> index.ids(hits)
    [['a', 'c']]
    """

    def __init__(
        self,
        vectors: Matrix,
        doc_offsets: Ints | None = None,
        *,
        passage_ids: Ids | None = None,
        doc_ids: Ids | None = None,
        backend: str = "auto",
    ) -> None:
        self.vectors: Matrix = check_matrix(vectors, "passages")
        super().__init__(int(self.vectors.shape[0]), doc_offsets, passage_ids, doc_ids)
        if self.is_sparse and backend != "auto":
            raise InputError(f"sparse vectors have a search of their own: backend must be 'auto', found {backend!r}")
        self.backend = backend
        self._propose = find_backend(backend)

    @classmethod
    def from_collection(cls, collection: Collection, vectors: Matrix, backend: str = "auto") -> PassageIndex:
        """Index the passages of a collection; ``vectors`` (n_passages, d) in their order."""
        n = vectors.shape[0] if sparse.issparse(vectors) else len(vectors)
        if n != collection.n_passages:
            raise VectorError(f"expected {collection.n_passages} vectors, one a passage, found {n}")
        passages = collection.passages
        ids = {"passage_ids": passages.ids, "doc_ids": collection.doc_ids}
        return cls(vectors, passages.doc_offsets, backend=backend, **ids)

    @classmethod
    def from_store(cls, store: EmbeddingStore, backend: str = "auto") -> PassageIndex:
        """Index the passages of a store of embeddings, by its document ids."""
        offsets, doc_ids = document_offsets(store.doc_ids)
        ids = {"passage_ids": store.passage_ids, "doc_ids": doc_ids}
        return cls(store.vectors(), offsets, backend=backend, **ids)

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are a CSR matrix."""
        return bool(sparse.issparse(self.vectors))

    def search(self, queries: Matrix, k: int, *, exclude: Exclude | None = None) -> Hits:
        """The k nearest passages of each query vector.

        ``queries`` (m, d), sparse if the index is; ``exclude`` (m,) a document to leave out of each row: its id (None
        for none) or its number (-1 for none).
        Returns :class:`Hits` (m, k); a row has fewer hits where the excluded document leaves fewer, and none
        for a zero vector, which is near nothing. Errors: vectors of another width or with NaN, dense ones for a
        sparse index or the reverse, k outside 1..n.
        """
        queries = check_like(queries, "queries", self.vectors)
        self._check_k(k)
        m = int(queries.shape[0])
        own = self.excluded(exclude, m)
        passages = np.empty((m, k), dtype=np.int64)
        scores = np.empty((m, k), dtype=np.float32)
        for start in track(range(0, m, _BATCH), "searching"):
            rows = slice(start, start + _BATCH)
            if self.is_sparse:
                found = search_sparse(queries[rows], self._postings, k, own[rows], self.doc_offsets)
            else:
                found = self._search_batch(queries[rows], k, own[rows])
            passages[rows], scores[rows] = found
        return Hits(passages, scores)

    def similarities(self, queries: Matrix, document: int) -> Floats:
        """(m, passages of the document) inner products of query vectors (m, d) with its passages."""
        queries = check_like(queries, "queries", self.vectors)
        start, end = (int(place) for place in self.doc_offsets[document : document + 2])
        if self.is_sparse:
            return np.asarray((queries @ self.vectors[start:end].T).toarray(), dtype=np.float32)
        found = np.broadcast_to(np.arange(start, end), (len(queries), end - start))
        return self._exact(queries, found)

    @cached_property
    def _postings(self) -> sparse.csc_matrix:
        """(n, d) the passages of each term; as large as the vectors once more."""
        return self.vectors.tocsc()

    def _search_batch(self, queries: Floats, k: int, own: Ints) -> tuple[Ints, Floats]:
        n = len(self)
        passages = np.full((len(queries), k), NO_PASSAGE, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        # How far a float32 product may be off: |error| <= d · 2^-24 · |q| · |p| (Higham 2002, eq. 3.5).
        bound = self.width * 2.0**-24 * np.linalg.norm(queries, axis=1) * self._longest
        rows = np.flatnonzero(queries.any(axis=1))
        sizes = np.where(own[rows] >= 0, np.diff(self.doc_offsets)[own[rows]], 0)
        depth = min(n, k + int(sizes.max(initial=0)) + _SLACK)
        while len(rows):
            found, rough = self._propose(queries[rows], self.vectors, depth)
            exact = np.where(self.doc_of[found] == own[rows, None], -np.inf, self._exact(queries[rows], found))
            numbers, best = select(exact.astype(np.float32), k, found)
            passages[rows], scores[rows] = numbers, best
            if depth == n:
                break
            # What was not proposed scores at most the worst proposal plus twice the error bound.
            undecided = best[:, -1] <= rough.min(axis=1) + 2 * bound[rows]
            rows = rows[undecided]
            depth = min(n, 2 * depth)
        return passages, scores

    @cached_property
    def _longest(self) -> float:
        return float(np.sqrt(np.einsum("nd,nd->n", self.vectors, self.vectors).max()))

    def _exact(self, queries: Floats, found: Ints) -> Floats:
        """(m, k) inner products with the passages found, summed in float64, rounded to float32."""
        scores = np.empty(found.shape, dtype=np.float32)
        step = max(1, _RESCORED // self.width)
        for row, query in enumerate(queries.astype(np.float64)):
            for left in range(0, found.shape[1], step):
                near = self.vectors[found[row, left : left + step]].astype(np.float64)  # (step, d)
                scores[row, left : left + step] = np.vecdot(near, query)
        return scores
