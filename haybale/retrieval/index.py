"""The passage index: exact nearest neighbours by inner product, string ids outside, numbers inside.

Dense vectors are searched through a backend on the device where they are, sparse ones through an inverted index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

from haybale.collections import Collection
from haybale.device import CPU, Device, device_of, find_device, placed, to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError, VectorError
from haybale.folders import whole_folder
from haybale.progress import track
from haybale.retrieval.exact import ExactSearch, fallback, find_backend
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.index_files import IndexParts, read_index, write_index
from haybale.retrieval.passages import Columns, Exclude, Ids, PassageTable, document_offsets
from haybale.retrieval.sparse_search import InvertedIndex
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
        _check_budget(memory_budget)
        if sparse.issparse(vectors):
            _check_sparse_choices(backend, device, dtype)
            there, kept = CPU, check_sparse(vectors, "passages")
        else:
            there = device_of(vectors) if device is None else find_device(device)
            kept = moved(check_vectors(vectors, "passages", dtype=dtype), there, dtype)
        super().__init__(int(kept.shape[0]), doc_offsets, passage_ids, doc_ids)
        self._search_in(kept, there, backend, memory_budget)

    def _search_in(self, vectors: Matrix, device: Device, backend: str, memory_budget: float | None) -> None:
        """Take vectors that are in order, where they are."""
        self.vectors, self.device, self.backend, self.memory_budget = vectors, device, backend, memory_budget
        if not self.is_sparse:
            chosen = find_backend(backend, device, vectors.dtype)
            self._exact_search = ExactSearch(vectors, self.doc_offsets, device, chosen, fallback(device), memory_budget)

    @classmethod
    def _made(
        cls, vectors: Matrix, columns: Columns, device: Device, backend: str, memory_budget: float | None
    ) -> Self:
        """An index of what is known to be in order: nothing is looked through again."""
        index = cls.__new__(cls)
        index._adopt(columns)
        index._search_in(vectors, device, backend, memory_budget)
        return index

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

    # on disk, and of other documents -------------------------------------------------------------------

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, whole or not at all; the same index gives the same bytes.

        Vectors are written in the type the index keeps them in, sparse ones with their inverted index; device, backend
        and memory budget are not. Nothing that is written could be executed.

        Parameters
        ----------
        folder
            A folder that does not exist, or is empty.

        Raises
        ------
        OutputExistsError
            For any other folder.
        InputError
            For an :class:`ApproximateIndex`, which is made again of a :class:`PassageIndex`.
        """
        self._check_exact("saved")
        postings = self._inverted.postings if self.is_sparse else None
        with whole_folder(Path(folder)) as aside:
            write_index(aside, IndexParts(self.vectors, self._columns, postings))

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        backend: str = "auto",
        device: str | Device | None = None,
        dtype: str | None = None,
        memory_budget: float | None = None,
        verify: bool = True,
    ) -> Self:
        """A saved index, which finds what it found; on the CPU its vectors are read from disk as they are used.

        Parameters
        ----------
        folder
            What :meth:`save` wrote. It must stay as it is while the index is in use.
        backend, memory_budget
            As for a new index.
        device
            A name; None is the CPU. To a CUDA device the vectors are copied.
        dtype
            ``"float32"`` or ``"float16"``; None is the type that was saved, which takes no copy.
        verify
            Whether the digest of every file is computed, for which all of it is read once. Without it, opening takes no
            time, and is for folders that nobody else writes to: damage to the vectors is not found.

        Returns
        -------
        PassageIndex
            Vectors and ids are known to be in order, and not looked through again.

        Raises
        ------
        FileFormatError
            For a folder that is no saved index, of another version, or whose files are not what was written.
        """
        cls._check_exact("opened")
        _check_budget(memory_budget)
        vectors, columns, postings = read_index(Path(folder), verify=verify)
        if postings is not None:
            _check_sparse_choices(backend, device, "float32" if dtype is None else dtype)
            index = cls._made(vectors, columns, CPU, backend, memory_budget)
            index._inverted = InvertedIndex(postings, columns.doc_offsets)
            return index
        there = CPU if device is None else find_device(device)
        kept = moved(vectors, there, vectors.dtype if dtype is None else stored_type(dtype))
        return cls._made(kept, columns, there, backend, memory_budget)

    def take(self, documents: Sequence[int] | Ints) -> Self:
        """The index of some documents alone, with the same settings; their passages are numbered anew.

        Parameters
        ----------
        documents
            (n,) document numbers, rising. Where they follow one another, dense vectors are the same memory.

        Raises
        ------
        InputError
            For numbers that do not rise or are no documents, and where none of these has a passage.
        """
        self._check_exact("cut")
        rows, columns = self._columns.take(documents)
        first, end = int(rows[0]), int(rows[-1]) + 1
        with self.device.current():
            side_by_side = end - first == len(rows)
            part = self.vectors[first:end] if side_by_side else self.vectors[self.device.xp.asarray(rows)]
        return self._made(part, columns, self.device, self.backend, self.memory_budget)

    def extended(self, vectors: Matrix, doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids) -> Self:
        """The index with further documents behind the present ones, with the same settings.

        Parameters
        ----------
        vectors
            (m, d) of their passages, sparse if the index is.
        doc_offsets
            (n_documents + 1,) where they begin, from 0; None: every passage its own document.
        passage_ids, doc_ids
            (m,) and (n_documents,).

        Raises
        ------
        InputError
            For ids that are in the index already, or twice among these.
        VectorError
            For vectors of another width or kind, or with NaN or infinity.
        """
        self._check_exact("extended")
        if sparse.issparse(vectors) or self.is_sparse:
            more = check_like(vectors, "passages", self.vectors)
        else:
            more = moved(
                check_vectors(vectors, "passages", self.width, self.vectors.dtype), self.device, self.vectors.dtype
            )
        columns = self._columns.joined(Columns.checked(int(more.shape[0]), doc_offsets, passage_ids, doc_ids))
        if self.is_sparse:
            both = sparse.vstack([self.vectors, more], format="csr")
        else:
            with self.device.current():
                both = self.device.xp.concatenate([self.vectors, more])
        return self._made(both, columns, self.device, self.backend, self.memory_budget)

    @classmethod
    def _check_exact(cls, done: str) -> None:
        if cls is not PassageIndex:
            raise InputError(f"an index of class {cls.__name__} cannot be {done}; a PassageIndex can")

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

    def documents(self, queries: Matrix, depth: int, *, exclude: Exclude | None = None) -> tuple[Ints, Ints, Any]:
        """Documents by their nearest passage (MaxP), over all passages: no list of passages is cut off.

        Parameters
        ----------
        queries : (m, d) Matrix
        depth : int
            Of each query, every document is found that scores at least as high as its ``depth``-th best: ties at the
            end are for the :class:`Run` to break.
        exclude : (m,), optional
            As in :meth:`search`.

        Returns
        -------
        tuple
            ``(query row, document, score)``, flat, rows rising; NumPy arrays.
        """
        given, _ = self._placed(queries)
        own = self.excluded(exclude, int(given.shape[0]))
        if self.is_sparse:
            return self._inverted.documents(given, depth, own, self.doc_of)
        parts: list[tuple[Ints, Ints, Any]] = []
        wanted, k = np.arange(len(own)), min(len(self), 3 * depth)
        while len(wanted):
            with self.device.current():
                part = given[self.device.xp.asarray(wanted)]
            hits = self.search(part, k, exclude=own[wanted]).to_numpy()
            rows, _, passages, scores = hits.flat()
            documents = self.doc_of[passages]
            _, first = np.unique(rows * len(self.doc_ids) + documents, return_index=True)
            first.sort()  # a document's best passage is the first in the list
            rows, documents, scores = rows[first], documents[first], scores[first]
            counts = np.bincount(rows, minlength=len(hits))
            nth = np.full(len(hits), -np.inf)
            enough = counts >= depth
            nth[enough] = scores[(np.cumsum(counts) - counts)[enough] + depth - 1]
            # Of too few documents, or with a further passage that may tie with the last one wanted: search deeper.
            last = np.where(hits.passages[:, -1] >= 0, hits.scores[:, -1], -np.inf)
            done = np.isneginf(last) | (enough & (nth > last)) | (k >= len(self))
            kept = done[rows] & (scores >= nth[rows])
            parts.append((wanted[rows[kept]], documents[kept], scores[kept]))
            wanted, k = wanted[~done], min(len(self), 4 * k)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return columns[0][order], columns[1][order], columns[2][order]

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
    def _inverted(self) -> InvertedIndex:
        """The passages of each term; as large as the vectors once more."""
        return InvertedIndex(self.vectors.tocsc(), self.doc_offsets)

    def _search_batch(self, queries: Matrix, k: int, own: Ints) -> tuple[Any, Any]:
        if self.is_sparse:
            return self._inverted.search(queries, k, own)
        return self._exact_search.search(queries, k, own)


def _check_budget(memory_budget: float | None) -> None:
    if memory_budget is not None and not memory_budget > 0:
        raise InputError(f"memory_budget is a number of bytes above 0, or None, found {memory_budget!r}")


def _check_sparse_choices(backend: str, device: str | Device | None, dtype: str) -> None:
    if backend != "auto":
        raise InputError(f"sparse vectors have a search of their own: backend must be 'auto', found {backend!r}")
    if device not in (None, "auto") and not find_device(device).is_cpu:
        raise InputError(f"sparse vectors are searched on the CPU, found device {str(device)!r}")
    if np.dtype(dtype) != np.float32:
        raise InputError(f"sparse vectors are stored as float32, found {dtype!r}")
