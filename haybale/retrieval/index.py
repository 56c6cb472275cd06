"""The passage index: exact nearest neighbours by inner product, string ids outside, numbers inside.

A saved index is a folder:

    manifest.json          format, version, kind, and the SHA-256 of every other file
    vectors.safetensors    the vectors; a sparse matrix by its rows and, for the inverted index, by its columns
    passages.parquet       the id of each passage
    documents.parquet      the id of each document, and how many passages it has

It does not say on which device the index was, nor which backend searched it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections import Collection
from haybale.device import CPU, Device, device_of, find_device, is_sparse, placed, to_device, to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.errors import FileFormatError, InputError, VectorError
from haybale.folders import whole_folder
from haybale.manifest import Tensors, check_files, mapped_tensors, read_manifest, write_manifest, write_tensors
from haybale.parallel import iter_chunks
from haybale.parameters import COUNT, MEMORY, check_parameters
from haybale.progress import track
from haybale.retrieval.backends import find_backend
from haybale.retrieval.exact import ExactSearch
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.passages import TABLE_FILES, Columns, Exclude, Ids, PassageTable, document_offsets
from haybale.retrieval.sparse_search import InvertedIndex, ProductSearch
from haybale.vectors import Matrix, check_like, check_matrix, moved

FORMAT, VERSION = "haybale index", 1
_HEAD = {"format": FORMAT, "version": VERSION, "kind": "PassageIndex"}
_VECTORS = "vectors.safetensors"
FILES = (_VECTORS, "documents.parquet")  # by which the folder is known where the manifest is lost
_KINDS = {"rows": sparse.csr_matrix, "columns": sparse.csc_matrix}
_PARTS = ("data", "indices", "indptr")
_BATCH = 1024  # queries searched at once


class PassageIndex(PassageTable):
    """Exact inner-product search over passage vectors.

    Scores are exact to float32: the backend's product only proposes candidates, whose inner products are then summed in
    float64 and rounded; a row is searched deeper until no passage left out can matter. So every backend returns the
    same hits, and equal vectors get equal scores. (The CPU and a device add in different orders: between the two a
    score may differ by 1 float32 ulp.) Sparse vectors, such as :class:`TfidfEncoder` makes, are never densified; of
    them a passage that shares no term with the query is no hit, as in :class:`BM25Index`.

    Parameters
    ----------
    vectors : (n, d) array or sparse matrix
        Of NumPy, CuPy or torch, or a CSR matrix of SciPy or CuPy; kept as float32.
    doc_offsets : (n_documents + 1,) int array, optional
        Where documents begin; None: every passage is its own document.
    passage_ids, doc_ids : (n,) and (n_documents,) str, optional
        None: the numbers.
    backend : str, default "auto"
        On the CPU "numpy" or "faiss", on a CUDA device "cuvs", "faiss-gpu" or "cupy"; sparse vectors take "auto" only.
    device : str, optional
        "cpu", "cuda", "cuda:1" or "auto"; None: where the vectors are, which then are the same memory if they fit.
    memory_budget : float, optional
        Bytes for what a search computes at once; None: on a device half of what is free.

    Examples
    --------
    >>> index = PassageIndex(np.eye(3), passage_ids=["a", "b", "c"])
    >>> index
    PassageIndex: 3 × 3 float32, 3 documents, on cpu, backend auto: numpy
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
        memory_budget: float | None = None,
    ) -> None:
        there = device_of(vectors) if device is None else find_device(device)
        vectors = to_device(check_matrix(vectors, "passages"), there)
        super().__init__(int(vectors.shape[0]), doc_offsets, passage_ids, doc_ids)
        self._set(vectors, self._columns, there, backend, memory_budget)

    def _set(
        self, vectors: Matrix, columns: Columns, device: Device, backend: str, memory_budget: float | None
    ) -> Self:
        """Take what is known to be in order, where it is: nothing is looked through again."""
        check_parameters(type(self).__name__, {"memory_budget": memory_budget}, {"memory_budget": MEMORY})
        self._adopt(columns)
        self.vectors, self.device, self.backend, self.memory_budget = vectors, device, backend, memory_budget
        if not self.is_sparse:
            chosen = find_backend(backend, device)
            self._exact_search = ExactSearch(vectors, self.doc_offsets, device, chosen, memory_budget)
        elif backend != "auto":
            raise InputError(f"sparse vectors have a search of their own: backend must be 'auto', found {backend!r}")
        return self

    @classmethod
    def from_collection(cls, collection: Collection, vectors: Matrix, **settings: Any) -> PassageIndex:
        """Index the passages of a collection.

        Parameters
        ----------
        collection : Collection
        vectors : (n_passages, d) array or sparse matrix
            In the order of the passages.
        **settings
            As those of the class.
        """
        if vectors.shape[0] != collection.n_passages:
            raise VectorError(f"expected {collection.n_passages} vectors, one a passage, found {vectors.shape[0]}")
        passages = collection.passages
        return cls(vectors, passages.doc_offsets, passage_ids=passages.ids, doc_ids=collection.doc_ids, **settings)

    @classmethod
    def from_store(cls, store: EmbeddingStore, *, device: str | Device = "cpu", **settings: Any) -> PassageIndex:
        """Index the passages of a store of embeddings, by its document ids.

        Parameters
        ----------
        store : EmbeddingStore
            Read chunk by chunk into an array on ``device``: on a device never whole on the host.
        device : str, default "cpu"
        **settings
            As those of the class.
        """
        offsets, doc_ids = document_offsets(store.doc_ids)
        vectors = store.vectors(device=device)
        return cls(vectors, offsets, passage_ids=store.passage_ids, doc_ids=doc_ids, **settings)

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, whole or not at all; the same index gives the same bytes.

        Sparse vectors are written with their inverted index; device, backend and memory budget are not. Errors:
        :class:`OutputExistsError` for a folder that exists and is not empty.
        """
        vectors = to_numpy(self.vectors)
        tensors: Tensors = {"vectors": vectors}
        if self.is_sparse:
            search = self._sparse_search
            columns = search.postings if isinstance(search, InvertedIndex) else vectors.tocsc()
            sides = {"rows": vectors, "columns": columns}
            tensors = {f"{side}.{part}": getattr(sides[side], part) for side in sides for part in _PARTS}
        with whole_folder(Path(folder)) as aside:
            write_tensors(aside / _VECTORS, tensors)
            self._columns.write(aside)
            write_manifest(aside, _HEAD)

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        backend: str = "auto",
        device: str | Device | None = None,
        memory_budget: float | None = None,
    ) -> Self:
        """A saved index, which finds what it found; on the CPU its vectors are read from disk as they are used.

        Parameters
        ----------
        folder : Path or str
            What :meth:`save` wrote. It must stay as it is while the index is in use.
        backend, memory_budget
            As for a new index.
        device : str, optional
            None is the CPU. To a CUDA device the vectors are copied.

        Raises
        ------
        FileFormatError
            For a folder that is no saved index, of another version, or whose files are not what was written.
        """
        folder, there = Path(folder), CPU if device is None else find_device(device)
        manifest = read_manifest(folder, "index", _HEAD)
        check_files(folder, manifest, (_VECTORS, *TABLE_FILES))
        columns = Columns.read(folder)
        vectors, postings = _read_vectors(folder / _VECTORS, len(columns.passage_ids))
        vectors = moved(vectors, there) if postings is None else to_device(vectors, there)
        index = cls.__new__(cls)._set(vectors, columns, there, backend, memory_budget)
        if postings is not None and there.is_cpu:
            index._sparse_search = InvertedIndex(postings, columns.doc_offsets)
        return index

    def take(self, documents: Sequence[int] | Ints) -> Self:
        """The index of some documents alone, with the same settings; their passages are numbered anew.

        Parameters
        ----------
        documents : (n,) int
            Rising numbers, with a passage among them; where they follow one another, dense vectors are the same memory.
        """
        rows, columns = self._columns.take(documents)
        first, end = int(rows[0]), int(rows[-1]) + 1
        with self.device.current():
            side_by_side = end - first == len(rows)
            some = self.vectors[first:end] if side_by_side else self.vectors[self.device.xp.asarray(rows)]
        return self._with(some, columns)

    def extended(self, vectors: Matrix, doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids) -> Self:
        """The index with further documents behind the present ones, with the same settings.

        Parameters
        ----------
        vectors : (m, d) array or sparse matrix
            Of their passages; sparse if the index is.
        doc_offsets : (n_documents + 1,) int, or None
            Where they begin, from 0; None: every passage its own document.
        passage_ids, doc_ids : (m,) and (n_documents,) str
            :class:`InputError` for one that is in the index already, or twice among these.
        """
        more = to_device(check_like(vectors, "passages", self.vectors), self.device)
        columns = self._columns.joined(Columns.checked(int(more.shape[0]), doc_offsets, passage_ids, doc_ids))
        with self.device.current():
            if self.is_sparse:
                both = self.device.sparse.vstack([self.vectors, more], format="csr")
            else:
                both = self.device.xp.concatenate([self.vectors, more])
        return self._with(both, columns)

    def _with(self, vectors: Matrix, columns: Columns) -> Self:
        """An index of other vectors with the same settings."""
        return type(self).__new__(type(self))._set(vectors, columns, self.device, self.backend, self.memory_budget)

    def __repr__(self) -> str:
        n, width = self.vectors.shape
        kind = f"float32{' sparse' if self.is_sparse else ''}"
        return (
            f"{type(self).__name__}: {n:,} × {width:,} {kind}, {len(self.doc_ids):,} documents, on {self.device}, "
            f"backend {self.backend}: {self.backend_used}"
        )

    @property
    def backend_used(self) -> str:
        """The name of what searches; beyond the k that faiss-gpu holds, cupy does in its place."""
        if not self.is_sparse:
            return self._exact_search.backend.name
        return InvertedIndex.name if self.device.is_cpu else ProductSearch.name

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are a CSR matrix."""
        return is_sparse(self.vectors)

    @cached_property
    def _sparse_search(self) -> InvertedIndex | ProductSearch:
        """Over sparse vectors; as large as these once more."""
        if self.device.is_cpu:
            return InvertedIndex(self.vectors.tocsc(), self.doc_offsets)
        with self.device.current():
            return ProductSearch(self.vectors, self.doc_offsets, self.memory_budget)

    def search(self, queries: Matrix, k: int, *, exclude: Exclude | None = None) -> Hits:
        """The k nearest passages of each query vector.

        Parameters
        ----------
        queries : (m, d) array or sparse matrix
            Sparse if the index is.
        k : int
            From 1 to the number of passages.
        exclude : (m,), optional
            A document to leave out of each row: its id (None for none) or its number (-1 for none).

        Returns
        -------
        Hits
            (m, k); a row has fewer where the excluded document leaves fewer, and none for a zero vector, which is near
            nothing. Of NumPy arrays for queries from the CPU, wherever the index is, else of CuPy arrays.

        Raises
        ------
        InputError
            For vectors of another width, kind or with NaN, another k, or an unknown document; :class:`DeviceError` for
            queries on another device than the index.
        """
        queries, on_host = self._placed(queries)
        self._check_k(k)
        m = int(queries.shape[0])
        excluded = self.excluded(exclude, m)
        searcher = self._sparse_search if self.is_sparse else self._exact_search
        with self.device.current():
            passages = self.device.xp.empty((m, k), dtype=np.int64)
            scores = self.device.xp.empty((m, k), dtype=np.float32)

            def search(rows: slice) -> tuple[slice, Any, Any]:
                return rows, *searcher.search(queries[rows], k, excluded[rows])

            # What is scored exactly and sorted is as wide as k: where that has no room, fewer queries at once.
            done = iter_chunks(m, _BATCH, search, what="queries")
            for rows, numbers, best in track(done, "searching", -(-m // _BATCH)):
                passages[rows], scores[rows] = numbers, best
            hits = Hits(passages, scores)
            return hits.to_numpy() if on_host else hits

    def documents(
        self, queries: Matrix, k: int, *, exclude: Exclude | None = None, hits: Hits | None = None
    ) -> tuple[Ints, Ints, Any]:
        """Documents by their nearest passage (MaxP), over all passages: no list of passages is cut off.

        Parameters
        ----------
        queries, exclude : (m, d) array or sparse matrix; (m,), optional
            As in :meth:`search`.
        k : int
            From 1 on.
        hits : Hits, optional
            What :meth:`search` found for the same: only rows that these are too few for are searched.

        Returns
        -------
        (query row, document, score), flat NumPy arrays
            Of each query every document that scores at least as high as its ``k``-th best: ties at the end are for the
            :class:`Run` to break. Rows rise.
        """
        check_parameters("documents", {"k": k}, {"k": COUNT})
        given, _ = self._placed(queries)
        excluded = self.excluded(exclude, int(given.shape[0]))
        parts: list[tuple[Ints, Ints, Any]] = []
        wanted, depth = np.arange(len(excluded)), min(len(self), 3 * k)
        if hits is not None:
            if len(hits) != len(wanted):
                raise InputError(f"hits of {len(hits)} queries for {len(wanted)}")
            too_few = []
            for start in range(0, len(hits), _BATCH):
                tile = slice(start, start + _BATCH)
                whole, found = self._by_document(Hits(hits.passages[tile], hits.scores[tile]), k)
                parts.append((wanted[tile][found[0]], *found[1:]))
                too_few.append(wanted[tile][~whole])
            wanted = np.concatenate(too_few or [wanted])
        if self.is_sparse and isinstance(self._sparse_search, InvertedIndex) and (len(wanted) or not parts):
            rows, documents, scores = self._sparse_search.documents(given[wanted], k, excluded[wanted], self.doc_of)
            parts.append((wanted[rows], documents, scores))
            wanted = wanted[:0]
        while len(wanted) or not parts:
            with self.device.current():
                asked = given[self.device.xp.asarray(wanted)]
            whole, found = self._by_document(self.search(asked, depth, exclude=excluded[wanted]), k)
            parts.append((wanted[found[0]], *found[1:]))
            wanted, depth = wanted[~whole], min(len(self), 4 * depth)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return columns[0][order], columns[1][order], columns[2][order]

    def _by_document(self, hits: Hits, k: int) -> tuple[NDArray[np.bool_], tuple[Ints, Ints, Any]]:
        """(m,) bool, rows whose hits are enough to tell which documents score as high as the k-th best; these."""
        hits = hits.to_numpy()
        rows, _, passages, scores = hits.flat()
        documents = self.doc_of[passages]
        _, first = np.unique(rows * len(self.doc_ids) + documents, return_index=True)
        first.sort()  # a document's best passage is the first in the list
        rows, documents, scores = rows[first], documents[first], scores[first]
        counts = np.bincount(rows, minlength=len(hits))
        nth = np.full(len(hits), -np.inf)
        enough = counts >= k
        nth[enough] = scores[(np.cumsum(counts) - counts)[enough] + k - 1]
        # Of too few documents, or with a further passage that may tie with the last one wanted, there may be more.
        last = hits.scores[:, -1]  # -inf where all are found
        whole = np.isneginf(last) | (enough & (nth > last)) | (hits.scores.shape[1] >= len(self))
        found = whole[rows] & (scores >= nth[rows])
        return whole, (rows[found], documents[found], scores[found])

    def similarities(self, queries: Matrix, document: int) -> Any:
        """(m, passages of the document) inner products of query vectors (m, d) with its passages; NumPy."""
        queries, _ = self._placed(queries)
        start, end = (int(edge) for edge in self.doc_offsets[document : document + 2])
        with self.device.current():
            products = queries.astype(np.float64) @ self.vectors[start:end].astype(np.float64).T
            return to_numpy(products.toarray() if self.is_sparse else products).astype(np.float32)

    def _placed(self, queries: Matrix) -> tuple[Matrix, bool]:
        """Queries, checked, on the index's device; and whether they came from the host."""
        here = device_of(queries)
        if not here.is_cpu:
            queries = placed(queries, self.device, "queries")
        return placed(check_like(queries, "queries", self.vectors), self.device, "queries"), here.is_cpu


def _read_vectors(path: Path, n: int) -> tuple[Matrix, sparse.csc_matrix | None]:
    """The vectors of n passages, and the passages of each term if they are sparse; mapped, not read."""
    tensors = mapped_tensors(path)
    if set(tensors) == {"vectors"}:
        vectors = tensors["vectors"]
        if vectors.ndim != 2 or len(vectors) != n or vectors.dtype not in (np.float32, np.float16):  # 0.1 wrote these
            message = f"expected {n} vectors of float32 or float16, found {vectors.shape} of {vectors.dtype}"
            raise FileFormatError(path, None, message)
        return vectors, None
    if set(tensors) != {f"{side}.{part}" for side in _KINDS for part in _PARTS}:
        raise FileFormatError(path, None, f"expected vectors, or rows and columns of a matrix; found {sorted(tensors)}")
    try:
        rows, terms = (_matrix(tensors, side, (n, len(tensors["columns.indptr"]) - 1)) for side in _KINDS)
    except ValueError as error:
        raise FileFormatError(path, None, f"not the parts of a sparse matrix of {n} rows: {error}") from None
    if rows.nnz != terms.nnz:
        raise FileFormatError(path, None, "the rows and the columns of the matrix differ")
    return rows, terms


def _matrix(tensors: Tensors, side: str, shape: tuple[int, int]) -> Any:
    """The matrix of arrays, which stay those of the file."""
    parts = data, indices, indptr = tuple(tensors[f"{side}.{part}"] for part in _PARTS)
    if data.dtype != np.float32 or indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        raise ValueError(f"{side} of {data.dtype}, {indices.dtype} and {indptr.dtype}")
    matrix = _KINDS[side](parts, shape=shape)
    matrix.check_format(full_check=True)
    matrix.data, matrix.indices, matrix.indptr = parts
    matrix.has_canonical_format = True  # as check_sparse made it
    return matrix
