"""The passage index: exact nearest neighbours by inner product, string ids outside, numbers inside.

Dense vectors are searched through a backend on the device where they are, sparse ones through an inverted index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from haybale.collections import Collection
from haybale.device import CPU, Device, device_of, find_device, placed, to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError, VectorError
from haybale.progress import track
from haybale.retrieval.exact import ExactSearch, fallback, find_backend
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.passages import Exclude, Ids, PassageTable, document_offsets
from haybale.retrieval.sparse_search import search_sparse
from haybale.tiling import in_tiles
from haybale.vectors import Matrix, check_like, check_sparse, check_vectors, moved, stored_type

SearchBatch = Callable[[Matrix, int, Ints], tuple[Any, Any]]
_BATCH = 1024  # queries searched at once


class PassageIndex(PassageTable):
    """Exact inner-product search over passage vectors.

    Scores are exact to float32: the backend's product only proposes candidates, whose inner products
    are then summed in float64 and rounded; a row is searched deeper until no passage left out can matter.
    So every backend returns the same hits, and equal vectors get equal scores. (The CPU and a device add in different
    orders: between the two a score may differ by 1 float32 ulp.)

    Sparse vectors, a SciPy CSR matrix such as :class:`TfidfEncoder` makes, are never densified. Of them a passage
    that shares no term with the query is no hit, as in :class:`BM25Index`; a dense index has no such passages, it
    ranks those with score 0 among the others. They are searched on the CPU.

    Parameters: ``vectors`` (n, d), dense (NumPy, CuPy or torch) or CSR; ``doc_offsets`` (n_documents + 1,), where
    documents begin (default: every passage its own document); ``passage_ids`` and ``doc_ids`` (default: the numbers as
    strings); ``backend`` ``"auto"``, on the CPU ``"faiss"`` or ``"numpy"``, on a CUDA device ``"cuvs"``,
    ``"faiss-gpu"`` or ``"cupy"`` (sparse vectors have their own search, and take ``"auto"`` only); ``device`` a name
    (``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"auto"``) or None, where the vectors are, which then are the same memory if
    their type fits; ``dtype`` ``"float32"`` or ``"float16"``, in which the vectors are kept, half as large: scores are
    then the exact inner products of the rounded vectors with float32 queries; ``memory_budget`` bytes for what a search
    computes at once (None: on a device half of what is free).

    Attributes: ``vectors``; ``device``; ``backend`` as asked for, ``backend_used`` the name of the one at work.

    >>> index = PassageIndex(np.eye(3), passage_ids=["a", "b", "c"])
    >>> index
    PassageIndex: 3 × 3 float32, 3 documents, on cpu, backend auto: faiss
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
        device: str | Device | None = None,
        dtype: str = "float32",
        memory_budget: float | None = None,
    ) -> None:
        stored_type(dtype)
        if memory_budget is not None and not memory_budget > 0:
            raise InputError(f"memory_budget is a number of bytes above 0, or None, found {memory_budget!r}")
        if sparse.issparse(vectors):
            _check_sparse_choices(backend, device, dtype)
            self.device = CPU
            self.vectors: Matrix = check_sparse(vectors, "passages")
        else:
            self.device = device_of(vectors) if device is None else find_device(device)
            self.vectors = moved(check_vectors(vectors, "passages", dtype=dtype), self.device, dtype)
        super().__init__(int(self.vectors.shape[0]), doc_offsets, passage_ids, doc_ids)
        self.backend, self.memory_budget = backend, memory_budget
        if not self.is_sparse:
            chosen = find_backend(backend, self.device, dtype)
            self._exact_search = ExactSearch(
                self.vectors, self.doc_offsets, self.device, chosen, fallback(self.device), memory_budget
            )

    @classmethod
    def from_collection(
        cls, collection: Collection, vectors: Matrix, backend: str = "auto", **settings: Any
    ) -> PassageIndex:
        """Index the passages of a collection; ``vectors`` (n_passages, d) in their order; ``settings`` as above."""
        n = int(vectors.shape[0]) if hasattr(vectors, "shape") else len(vectors)
        if n != collection.n_passages:
            raise VectorError(f"expected {collection.n_passages} vectors, one a passage, found {n}")
        passages = collection.passages
        ids = {"passage_ids": passages.ids, "doc_ids": collection.doc_ids}
        return cls(vectors, passages.doc_offsets, backend=backend, **ids, **settings)

    @classmethod
    def from_store(
        cls,
        store: EmbeddingStore,
        backend: str = "auto",
        *,
        device: str | Device | None = None,
        dtype: str = "float32",
        **settings: Any,
    ) -> PassageIndex:
        """Index the passages of a store of embeddings, by its document ids.

        ``device`` (None: the CPU) and ``dtype`` as above: the vectors are read chunk by chunk into an array of that
        type there, so those of a device are never whole on the host.
        """
        offsets, doc_ids = document_offsets(store.doc_ids)
        ids = {"passage_ids": store.passage_ids, "doc_ids": doc_ids}
        vectors = store.vectors(dtype, "cpu" if device is None else device)
        return cls(vectors, offsets, backend=backend, dtype=dtype, **ids, **settings)

    def __repr__(self) -> str:
        n, width = self.vectors.shape
        kind = f"{self.vectors.dtype}{' sparse' if self.is_sparse else ''}"
        return (
            f"{type(self).__name__}: {n:,} × {width:,} {kind}, {len(self.doc_ids):,} documents, on {self.device}, "
            f"backend {self.backend}: {self.backend_used}"
        )

    @property
    def backend_used(self) -> str:
        """The name of the backend at work; ``"inverted index"`` for sparse vectors.

        Where a search goes deeper than faiss-gpu holds, cupy proposes in its place.
        """
        return "inverted index" if self.is_sparse else self._exact_search.backend.name

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
        for a zero vector, which is near nothing. Queries from the CPU give NumPy arrays, wherever the index is; those
        on the index's device (CuPy or torch) give CuPy arrays, and what is found stays there. Errors: vectors of
        another width or with NaN, dense ones for a sparse index or the reverse, k outside 1..n;
        :class:`DeviceError` for queries on another device.
        """
        return self._searched(queries, k, exclude, self._search_batch)

    def _searched(self, queries: Matrix, k: int, exclude: Exclude | None, search_batch: SearchBatch) -> Hits:
        queries, on_host = self._placed(queries)
        self._check_k(k)
        m = int(queries.shape[0])
        own = self.excluded(exclude, m)
        xp = self.device.xp
        with self.device.current():
            passages = xp.empty((m, k), dtype=np.int64)
            scores = xp.empty((m, k), dtype=np.float32)

            def search(rows: slice) -> tuple[slice, Any, Any]:
                return rows, *search_batch(queries[rows], k, own[rows])

            # What is scored exactly and sorted is as wide as k: where that has no room, fewer queries at once.
            done = in_tiles(m, _BATCH, search, what="queries")
            for rows, numbers, best in track(done, "searching", -(-m // _BATCH)):
                passages[rows], scores[rows] = numbers, best
            hits = Hits(passages, scores)
            return hits.to_numpy() if on_host else hits

    def similarities(self, queries: Matrix, document: int) -> Any:
        """(m, passages of the document) inner products of query vectors (m, d) with its passages.

        NumPy or CuPy as in :meth:`search`.
        """
        queries, on_host = self._placed(queries)
        start, end = (int(place) for place in self.doc_offsets[document : document + 2])
        if self.is_sparse:
            return np.asarray((queries @ self.vectors[start:end].T).toarray(), dtype=np.float32)
        xp = self.device.xp
        with self.device.current():
            found = xp.broadcast_to(xp.arange(start, end), (len(queries), end - start))
            products = self._exact_search.inner_products(queries, found)
            return to_numpy(products) if on_host else products

    def _placed(self, queries: Matrix) -> tuple[Matrix, bool]:
        """Queries, checked, on the index's device; and whether they came from the host."""
        here = device_of(queries)
        if self.is_sparse or sparse.issparse(queries):
            return check_like(queries, "queries", self.vectors), True
        if not here.is_cpu:
            queries = placed(queries, self.device, "queries")
        return placed(check_vectors(queries, "queries", self.width), self.device, "queries"), here.is_cpu

    @cached_property
    def _postings(self) -> sparse.csc_matrix:
        """(n, d) the passages of each term; as large as the vectors once more."""
        return self.vectors.tocsc()

    def _search_batch(self, queries: Matrix, k: int, own: Ints) -> tuple[Any, Any]:
        if self.is_sparse:
            return search_sparse(queries, self._postings, k, own, self.doc_offsets)
        return self._exact_search.search(queries, k, own)


def _check_sparse_choices(backend: str, device: str | Device | None, dtype: str) -> None:
    if backend != "auto":
        raise InputError(f"sparse vectors have a search of their own: backend must be 'auto', found {backend!r}")
    if device not in (None, "auto") and not find_device(device).is_cpu:
        raise InputError(f"sparse vectors are searched on the CPU, found device {str(device)!r}")
    if np.dtype(dtype) != np.float32:
        raise InputError(f"sparse vectors are stored as float32, found {dtype!r}")
