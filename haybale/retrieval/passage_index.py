"""The passage index: exact nearest-neighbour search by inner product.

A saved index is a folder:

    manifest.json          format, version, kind, and the SHA-256 of every other file
    vectors.safetensors    the vectors; a sparse matrix is stored in CSR form and in CSC form, its inverted index
    passages.parquet       the id of each passage
    documents.parquet      the id of each document and its number of passages

The device and the backend are chosen when the index is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import ragged_take
from haybale.device import CPU, Device, device_of, find_device, is_sparse, placed, tell_once, to_device, to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError, VectorError
from haybale.folders import whole_folder
from haybale.manifest import Tensors, check_files, mapped_tensors, read_manifest, write_manifest, write_tensors
from haybale.parallel import iter_blocks
from haybale.parameters import COUNT, check_parameters
from haybale.progress import track
from haybale.retrieval.backends import find_backend
from haybale.retrieval.exact import ExactSearch
from haybale.retrieval.exclusion import Exclusion
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.passage_sums import sums_of_best
from haybale.retrieval.passages import TABLE_FILES, Columns, Exclude, Ids, PassageTable, document_offsets
from haybale.retrieval.sparse_search import InvertedIndex
from haybale.vectors import Floats, Matrix, check_like, check_matrix, moved

_HEAD = {"format": "haybale index", "version": 1, "kind": "PassageIndex"}
_VECTORS = "vectors.safetensors"
FILES = (_VECTORS, "documents.parquet")  # distinguish an index from an embedding store, even without its manifest
_MATRIX_TYPES = {"rows": sparse.csr_matrix, "columns": sparse.csc_matrix}
_CSR_ARRAYS = ("data", "indices", "indptr")
_QUERIES_PER_BATCH = 1024


class PassageIndex(PassageTable):
    """Exact inner-product search over passage vectors.

    Scores are exact to float32. A backend only proposes candidates; their inner products are summed in float64 and
    rounded, and the search goes deeper until no other passage can be among the best. So all backends return the same
    hits, and equal vectors get equal scores. A CPU and a GPU add in different orders, so their scores may differ by 1
    float32 ulp. Sparse vectors, such as those of :class:`TfidfEncoder`, are never densified; their hits are passages
    that share a term with the query, as in :class:`BM25Index`. They stay on the CPU, where an inverted index searches
    them faster than a device; ``device`` then is only where models that learn from the index compute.

    Parameters
    ----------
    vectors : (n, d) array or sparse matrix
        A NumPy, CuPy or torch array, or a CSR matrix of SciPy or CuPy; kept as float32.
    doc_offsets : (n_documents + 1,) int array, optional
        Passages ``doc_offsets[i]:doc_offsets[i + 1]`` belong to document i. By default, every passage is a document.
    passage_ids, doc_ids : (n,) and (n_documents,) str, optional
        Distinct ids. The defaults are the numbers as strings.
    backend : str, default "auto"
        The library that proposes candidates: one of the :data:`~haybale.retrieval.BACKENDS` of the device. "auto"
        selects the first that is installed, which is haybale's own: "numpy", or "tensor-cores" on a device. Sparse
        vectors allow only "auto".
    device : str, optional
        "cpu", "cuda", "cuda:1" or "auto". By default, the vectors stay on their device, and are not copied if they are
        float32 in C order.

    Raises
    ------
    VectorError
        If vectors have NaN, or are no matrix.
    InputError
        If offsets or ids do not fit the vectors, or the backend does not fit the device.
    MissingExtraError, DeviceError
        If the backend or the device is not available.

    Examples
    --------
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
        device: str | Device | None = None,
    ) -> None:
        target = device_of(vectors) if device is None else find_device(device)
        vectors = check_matrix(vectors, "passages")
        vectors = vectors if is_sparse(vectors) else _on_device(vectors, target)
        super().__init__(int(vectors.shape[0]), doc_offsets, passage_ids, doc_ids)
        self._set(self.columns, vectors, target, backend)

    @classmethod
    def of_columns(cls, columns: Columns, vectors: Matrix, device: Device, backend: str = "auto") -> Self:
        """Return the index of checked columns and vectors, which are on the device unless they are sparse."""
        return cls.__new__(cls)._set(columns, vectors, device, backend)

    def _set(self, columns: Columns, vectors: Matrix, device: Device, backend: str) -> Self:
        """Set all attributes, from checked columns and vectors."""
        self.columns, self.vectors, self.device, self.backend = columns, vectors, device, backend
        if not self.is_sparse:
            self._exact_search = ExactSearch(
                vectors, self.doc_offsets, device, find_backend(backend, device), columns.order
            )
        elif not device.is_cpu:
            tell_once(f"sparse vectors are searched on the CPU by an inverted index; models compute on {device}")
        if self.is_sparse and backend != "auto":
            raise InputError(f"with sparse vectors, backend must be 'auto', found {backend!r}")
        return self

    @classmethod
    def from_collection(cls, collection: Collection, vectors: Matrix, **settings: Any) -> PassageIndex:
        """Index the passages of a collection.

        Parameters
        ----------
        collection : Collection
        vectors : (n_passages, d) array or sparse matrix
            The vectors of the passages, in their order.
        **settings
            ``backend`` and ``device``, as in the class.
        """
        if vectors.shape[0] != collection.n_passages:
            raise VectorError(f"expected {collection.n_passages} vectors, one per passage, found {vectors.shape[0]}")
        passages = collection.passages
        return cls(vectors, passages.doc_offsets, passage_ids=passages.ids, doc_ids=collection.doc_ids, **settings)

    @classmethod
    def from_store(cls, store: EmbeddingStore, *, device: str | Device = "cpu", **settings: Any) -> PassageIndex:
        """Index the passages of an embedding store.

        Parameters
        ----------
        store : EmbeddingStore
            Read to the device chunk by chunk, so its vectors need not fit into main memory.
        device : str, default "cpu"
            Where the vectors are searched.
        **settings
            ``backend``, as in the class.
        """
        offsets, doc_ids = document_offsets(store.doc_ids)
        check_vectors_fit((len(store), store.dim), find_device(device))
        vectors = store.vectors(device=device)
        return cls(vectors, offsets, passage_ids=store.passage_ids, doc_ids=doc_ids, **settings)

    def save(self, folder: Path | str) -> None:
        """Write the index to a new folder, atomically. Equal indexes give equal bytes.

        Raises :class:`OutputExistsError` if the folder is not empty.
        """
        vectors = to_numpy(self.vectors)
        tensors: Tensors = {"vectors": vectors}
        if self.is_sparse:
            sides = {"rows": vectors, "columns": self._sparse_search.postings}
            tensors = {f"{side}.{part}": getattr(sides[side], part) for side in sides for part in _CSR_ARRAYS}
        with whole_folder(Path(folder)) as aside:
            write_tensors(aside / _VECTORS, tensors)
            self.columns.write(aside)
            write_manifest(aside, _HEAD)

    @classmethod
    def open(cls, folder: Path | str, *, backend: str = "auto", device: str | Device | None = None) -> Self:
        """Open a saved index. On the CPU, its vectors are memory-mapped.

        Parameters
        ----------
        folder : Path or str
            A folder that :meth:`save` wrote. It must not change while the index is in use.
        backend : str, default "auto"
            As in the class.
        device : str, optional
            Where the vectors are searched; the default is the CPU.

        Raises
        ------
        FileFormatError
            If the folder is not a saved index, has another version, or has changed since it was written.
        """
        folder, target = Path(folder), CPU if device is None else find_device(device)
        manifest = read_manifest(folder, "index", _HEAD)
        check_files(folder, manifest, (_VECTORS, *TABLE_FILES))
        columns = Columns.read(folder)
        vectors, postings = _read_vectors(folder / _VECTORS)
        if postings is None:
            check_vectors_fit(vectors.shape, target)
            vectors = moved(vectors, target)
        index = cls.of_columns(columns, vectors, target, backend)
        if postings is not None:
            index._sparse_search = InvertedIndex(postings, columns.doc_offsets, columns.order)
        return index

    def take(self, documents: Sequence[int] | Ints) -> Self:
        """Return the index of some documents, which are renumbered from 0.

        Parameters
        ----------
        documents : (n,) int
            Rising document numbers; at least one of the documents must have a passage. Dense vectors of consecutive
            documents are not copied.
        """
        rows, columns = self.columns.take(documents)
        first, end = int(rows[0]), int(rows[-1]) + 1
        with self.search_device.current():
            consecutive = end - first == len(rows)
            some = self.vectors[first:end] if consecutive else self.vectors[to_device(rows, self.search_device)]
        return self.of_columns(columns, some, self.device, self.backend)

    def extended(
        self, vectors: Matrix, doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids, distinct: bool = True
    ) -> Self:
        """Return an index with more documents.

        Parameters
        ----------
        vectors, doc_offsets, passage_ids, doc_ids
            The new documents, as in the class; ``doc_offsets`` begin at 0, and the vectors are sparse if the index is.
            InputError is raised for an existing id.
        distinct : bool, default True
            With False, existing ids are accepted: :meth:`take` one document with each id before looking ids up.
        """
        more = to_device(check_like(vectors, "passages", self.vectors), self.search_device)
        new = Columns.validated(int(more.shape[0]), doc_offsets, passage_ids, doc_ids, distinct=distinct)
        columns = self.columns.joined(new, distinct=distinct)
        if self.is_sparse:
            both = sparse.vstack([self.vectors, more], format="csr")
        else:
            check_vectors_fit((len(self) + len(more), self.dim), self.device)  # beside those of this index
            with self.device.current():
                both = self.device.xp.concatenate([self.vectors, more])
        return self.of_columns(columns, both, self.device, self.backend)

    def __repr__(self) -> str:
        n, width = self.vectors.shape
        kind, where = f"float32{' sparse' if self.is_sparse else ''}", self.search_device
        return (
            f"{type(self).__name__}: {n:,} × {width:,} {kind}, {len(self.doc_ids):,} documents, on {where}, "
            f"backend {self.backend}: {self.backend_used}"
        )

    @property
    def backend_used(self) -> str:
        """The name of the backend in use. It changes if the chosen backend returns inexact scores."""
        return self._exact_search.backend.name if not self.is_sparse else self._sparse_search.name

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are a CSR matrix."""
        return is_sparse(self.vectors)

    @property
    def search_device(self) -> Device:
        """The device that holds the vectors and searches them: the CPU for sparse vectors."""
        return CPU if self.is_sparse else self.device

    @cached_property
    def _sparse_search(self) -> InvertedIndex:
        """The search over sparse vectors; it needs as much memory as the vectors."""
        return InvertedIndex(sparse.csc_matrix(self.vectors), self.doc_offsets, self.columns.order)

    def search(self, queries: Matrix, k: int, *, exclude: Exclude | None = None) -> Hits:
        """Return the k nearest passages of each query vector.

        Parameters
        ----------
        queries : (m, d) array or sparse matrix
            Sparse if the index is. Queries from the CPU may search an index on a device.
        k : int
            Number of passages for each query, from 1 to the number of passages of the index.
        exclude : (m,), optional
            The document that each query must not find: its id (None for none) or its number (-1 for none).

        Returns
        -------
        Hits
            (m, k), by falling score, then by document id, then by position in the document: NumPy arrays for queries
            from the CPU and CuPy arrays for queries on a device. A row has fewer hits if the excluded document leaves
            fewer passages, and none for a zero vector.

        Raises
        ------
        InputError, DeviceError
            If queries have another width, kind or device than the index, k is out of range, or a document is unknown.
        """
        queries, home = self._place_queries(queries)
        self.check_k(k)
        m, where = int(queries.shape[0]), self.search_device
        excluded = self.excluded(exclude, m)
        searcher = self._sparse_search if self.is_sparse else self._exact_search
        with where.current():
            passages = where.xp.empty((m, k), dtype=np.int64)
            scores = where.xp.empty((m, k), dtype=np.float32)

            def search(rows: slice) -> tuple[slice, Any, Any]:
                return rows, *searcher.search(queries[rows], k, excluded[rows])

            # A batch that runs out of memory is searched again in smaller ones.
            size = _QUERIES_PER_BATCH if self.is_sparse else self._exact_search.queries_at_once(k)
            done = iter_blocks(m, size, search, what="queries")
            for rows, numbers, best in track(done, "searching", -(-m // size)):
                if len(numbers) == m and not self.is_sparse:  # one batch is not copied
                    passages, scores = numbers, best
                else:
                    passages[rows], scores[rows] = numbers, best
        return Hits(to_device(passages, home), to_device(scores, home))

    def documents(
        self, queries: Matrix, k: int, *, exclude: Exclude | None = None, hits: Hits | None = None, top: int = 1
    ) -> tuple[Ints, Ints, Floats]:
        """Rank all documents by their nearest passage (MaxP), or by the sum of the nearest ones.

        Parameters
        ----------
        queries, exclude : (m, d) array or sparse matrix; (m,), optional
            As in :meth:`search`.
        k : int
            Number of documents for each query, at least 1.
        hits : Hits, optional
            The result of :meth:`search` for the same queries, with any k. It saves the search of the queries for which
            it is deep enough. Not used if ``top`` is more than 1.
        top : int, default 1
            Number of passages whose scores are summed, the nearest ones of each document. Beyond the nearest passage,
            negative scores add nothing.

        Returns
        -------
        (query row, document, score), each (n_found,) NumPy
            All documents that score at least as high as the ``k``-th best, sorted by row.
        """
        check_parameters("documents", {"k": k, "top": top}, {"k": COUNT, "top": COUNT})
        queries, _ = self._place_queries(queries)
        excluded = self.excluded(exclude, int(queries.shape[0]))
        if top > 1:
            return self._document_sums(queries, k, top, excluded)
        none = np.empty(0, dtype=np.int64)
        ranked: list[tuple[Ints, Ints, Floats]] = [(none, none, np.empty(0, dtype=np.float32))]
        open_rows, depth = np.arange(len(excluded)), min(len(self), 3 * k)  # the rows that are still to be searched
        if hits is not None:
            if len(hits) != len(open_rows):
                raise InputError(f"hits must have one row for each of the {len(open_rows)} queries, found {len(hits)}")
            open_rows = add_best_documents(self, hits, k, open_rows, ranked)
        if self.is_sparse:
            chosen = queries[open_rows], k, excluded[open_rows], self.doc_of
            rows, documents, scores = self._sparse_search.documents(*chosen)
            ranked.append((open_rows[rows], documents, scores))
            open_rows = none
        while len(open_rows):
            with self.device.current():
                open_queries = queries[self.device.xp.asarray(open_rows)]
            more_hits = self.search(open_queries, depth, exclude=excluded[open_rows])
            open_rows = add_best_documents(self, more_hits, k, open_rows, ranked)
            depth = min(len(self), 4 * depth)
        rows, documents, scores = (np.concatenate(column) for column in zip(*ranked, strict=True))
        order = np.argsort(rows, kind="stable")
        return rows[order], documents[order], scores[order]

    def _document_sums(self, queries: Matrix, k: int, top: int, excluded: Exclusion) -> tuple[Ints, Ints, Floats]:
        """Rank documents by the sum of their best passages, as :meth:`documents` does."""
        if self.is_sparse:
            return self._sparse_search.documents(queries, k, excluded, self.doc_of, top)
        sums_of_rows: dict[int, tuple[Ints, Floats]] = {}
        left, depth = np.arange(len(excluded)), min(len(self), 3 * top * k)
        while len(left):
            with self.device.current():
                some = queries[self.device.xp.asarray(left)]
            hits = self.search(some, depth, exclude=excluded[left]).to_numpy()
            for i, row in enumerate(left):
                sums = self._sums_of(some[i : i + 1], hits.passages[i], hits.scores[i], k, top)
                if sums is not None:
                    sums_of_rows[int(row)] = sums
            left = np.array([row for row in left if row not in sums_of_rows], dtype=np.int64)
            depth = min(len(self), 4 * depth)
        parts = [sums_of_rows[row] for row in range(len(excluded))]
        rows = np.repeat(np.arange(len(parts)), [len(documents) for documents, _ in parts])
        documents = np.concatenate([np.empty(0, dtype=np.int64), *(documents for documents, _ in parts)])
        return rows, documents, np.concatenate([np.empty(0, dtype=np.float32), *(sums for _, sums in parts)])

    def _sums_of(self, query: Matrix, passages: Ints, scores: Floats, k: int, top: int) -> tuple[Ints, Floats] | None:
        """Return the k best documents of one query, with ties, and their sums; None if it needs more hits."""
        is_hit = passages != NO_PASSAGE
        documents, sums, counts = sums_of_best(self.doc_of[passages[is_hit]], scores[is_hit], top)
        if is_hit.all() and len(passages) < len(self):  # other passages score at most as high as the last hit
            if len(documents) < k:
                return None
            last, kth = float(scores[-1]), np.partition(sums, -k)[-k]
            most = max(last, 0.0)  # what a passage adds at most if it is not the best one of its document
            missing = np.minimum(np.diff(self.doc_offsets)[documents], top) - counts
            # The next greater float32 is a bound on what a sum is rounded to.
            highest_unseen = np.nextafter(np.float32(last + (top - 1) * most), np.float32(np.inf))
            if highest_unseen >= kth:  # a document without hits may be among the best
                return None
            above = np.nextafter((sums + missing * most).astype(np.float32), np.float32(np.inf)) >= kth
            partial = np.flatnonzero(above & (missing > 0) & (most > 0))
            if len(partial):
                sums[partial] = self._exact_sums(query, documents[partial], top)
            documents, sums = documents[above], sums[above]
        if len(sums) > k:
            best = sums >= np.partition(sums, -k)[-k]
            documents, sums = documents[best], sums[best]
        return documents, sums

    def _exact_sums(self, query: Matrix, documents: Ints, top: int) -> Floats:
        """Return the sums of documents, in rising order, for one query, from all of their passages."""
        passages, _ = ragged_take(self.doc_offsets, documents)
        with self.device.current():
            numbers = self.device.xp.asarray(passages)
            scores = to_numpy(self._exact_search.inner_products(query, numbers[None])[0])
        order = np.argsort(-scores, kind="stable")
        return sums_of_best(self.doc_of[passages[order]], scores[order], top)[1]

    def similarities(self, queries: Matrix, document: int) -> Floats:
        """Return the inner products of query vectors (m, d) with a document's passages, (m, n_passages)."""
        queries, _ = self._place_queries(queries)
        start, end = (int(edge) for edge in self.doc_offsets[document : document + 2])
        with self.search_device.current():
            products = queries.astype(np.float64) @ self.vectors[start:end].astype(np.float64).T
            similarities: Floats = to_numpy(products.toarray() if self.is_sparse else products).astype(np.float32)
            return similarities

    def _place_queries(self, queries: Matrix) -> tuple[Matrix, Device]:
        """Check queries and copy them to the device that searches; return them, and the device they came from."""
        home = device_of(queries)
        if not home.is_cpu:
            queries = placed(queries, self.device, "queries")
        return placed(check_like(queries, "queries", self.vectors), self.search_device, "queries"), home


def add_best_documents(
    index: PassageTable, hits: Hits, k: int, rows: Ints, ranked: list[tuple[Ints, Ints, Floats]]
) -> Ints:
    """Add the best documents of hits on an index to ``ranked``; return the rows whose hits are too few for that.

    ``rows`` (m,) are the query rows of the hits, and ``ranked`` has arrays of query rows, documents and scores.
    """
    from haybale.retrieval.posting_loops import first_hits

    open_rows = []
    for start in range(0, len(hits), _QUERIES_PER_BATCH):
        batch = slice(start, start + _QUERIES_PER_BATCH)
        part = Hits(hits.passages[batch], hits.scores[batch]).to_numpy()
        row, _, passages, scores = part.flat()
        document = index.doc_of[passages]
        first = first_hits(row, document, len(index.doc_ids))  # a document's first passage in the list is its best
        row, document, scores = row[first], document[first], scores[first]
        counts = np.bincount(row, minlength=len(part))
        enough = counts >= k
        kth = np.full(len(part), -np.inf)
        kth[enough] = scores[(np.cumsum(counts) - counts)[enough] + k - 1]
        # A row is complete if it has all passages, or if its last passage scores below the k-th document.
        last = part.scores[:, -1]
        complete = np.isneginf(last) | (enough & (kth > last)) | (part.scores.shape[1] >= len(index))
        kept = complete[row] & (scores >= kth[row])
        ranked.append((rows[batch][row[kept]], document[kept], scores[kept]))
        open_rows.append(rows[batch][~complete])
    return np.concatenate([rows[:0], *open_rows])


def check_vectors_fit(shape: tuple[int, ...], device: Device) -> None:
    """Raise :class:`DeviceError` if float32 vectors of passages do not fit the memory of the device."""
    device.check_fits(shape[0], 4 * shape[1], "vectors of passages")


def _on_device(vectors: Matrix, device: Device) -> Matrix:
    """Move dense vectors to the device, if they fit."""
    if device_of(vectors) != device:
        check_vectors_fit(vectors.shape, device)
    moved_vectors: Matrix = to_device(vectors, device)
    return moved_vectors


def _read_vectors(path: Path) -> tuple[Matrix, sparse.csc_matrix | None]:
    """Return the memory-mapped vectors and, if they are sparse, their inverted index."""
    tensors = mapped_tensors(path)
    if "vectors" in tensors:
        return tensors["vectors"], None
    rows, columns = (_mapped_matrix(tensors, side) for side in _MATRIX_TYPES)
    return rows, columns


def _mapped_matrix(tensors: Tensors, side: str) -> Any:
    """Make a sparse matrix of mapped arrays, without a copy; check its indexes, because compiled loops do not."""
    parts = tuple(tensors[f"{side}.{part}"] for part in _CSR_ARRAYS)
    matrix = _MATRIX_TYPES[side](parts, shape=tuple(len(tensors[f"{axis}.indptr"]) - 1 for axis in _MATRIX_TYPES))
    matrix.check_format(full_check=True)
    matrix.data, matrix.indices, matrix.indptr = parts
    matrix.has_canonical_format = True  # as check_sparse made it before it was saved
    return matrix
