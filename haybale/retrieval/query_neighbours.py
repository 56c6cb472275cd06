"""Rank documents by the training queries they are relevant to: k-nearest-neighbour classification of queries.

Training queries are the examples, documents the categories: Yang & Chute, "An Example-Based Mapping Method for Text
Categorization and Retrieval", ACM TOIS 12(3), 1994. Documents are not read, so it finds documents that no text search
can find, and it cannot find a document that is relevant to no training query.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections.collection import indptr_from_counts
from haybale.collections.ids import Lookup
from haybale.device import is_sparse, to_numpy
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.manifest import (
    MANIFEST,
    check_files,
    mapped_tensors,
    read_manifest,
    read_table,
    write_manifest,
    write_table,
    write_tensors,
)
from haybale.parameters import COUNT, NOT_NEGATIVE, check_parameters
from haybale.retrieval.hits import Ints
from haybale.retrieval.index import PassageIndex
from haybale.retrieval.passages import Exclude, Ids, PassageTable
from haybale.retrieval.run import DEPTH, Run
from haybale.vectors import Matrix, check_like, check_matrix, normalized, normalized_sparse

if TYPE_CHECKING:
    import pandas as pd

_HEAD = {"format": "haybale query neighbours", "version": 1, "kind": "QueryNeighbours"}
_INDEX, _DOCUMENTS, _RELEVANT = "training", "documents.parquet", "relevant.safetensors"
_IDS = pa.schema([("id", pa.large_string())])
_RANGES = {"k": COUNT, "power": NOT_NEGATIVE}


class QueryNeighbours:
    """score(d) = Σ over the k nearest training queries q' with d relevant of cos(q, q')^power.

    A training query with a cosine of 0 or less is no neighbour. Neighbours are exact; among equal cosines, lower rows
    come first.

    Parameters
    ----------
    query_vectors : (m, d) array or sparse matrix
        The vectors of the training queries; they are normalised.
    relevant : (m,) sequences of str
        The ids of the relevant documents of each training query; may be empty.
    doc_ids : (n,) str
        The ids of all documents.
    k : int, default 50
        Most neighbours of a query.
    power : float, default 2.0
        Exponent of the cosine; with 0, the score is the number of neighbours.
    query_ids : (m,) str, optional
        The names that :meth:`explain` shows; the default is the rows.
    groups : (m,) int, optional
        Group numbers: training queries of one group (for example, taken from one document) are held out together.

    Examples
    --------
    >>> training = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
    >>> neighbours = QueryNeighbours(training, [["a"], ["b"], ["a", "c"]], ["a", "b", "c"], k=2)
    >>> neighbours.rank(np.array([[1.0, 0.0]]), ["q"])["q"]
    [('a', 1.3600...), ('c', 0.3600...)]
    >>> neighbours.rank(training[:1], ["q"], training_rows=[0])["q"]
    [('a', 0.3600...), ('c', 0.3600...)]
    """

    def __init__(
        self,
        query_vectors: Matrix,
        relevant: Sequence[Sequence[str]],
        doc_ids: Ids,
        *,
        k: int = 50,
        power: float = 2.0,
        query_ids: Ids | None = None,
        groups: Ints | None = None,
    ) -> None:
        check_parameters("QueryNeighbours", {"k": k, "power": power}, _RANGES)
        vectors = _unit(check_matrix(query_vectors, "training queries"))
        n = int(vectors.shape[0])
        if n == 0:
            raise InputError("there must be at least one training query")
        if len(relevant) != n:
            raise InputError(f"{len(relevant)} lists of relevant documents for {n} training queries")
        if any(isinstance(ids, str) for ids in relevant):
            raise InputError("relevant must hold a sequence of document ids for each query, found a string")
        self.k, self.power = k, power
        self.documents = _documents(doc_ids)
        distinct = [list(dict.fromkeys(ids)) for ids in relevant]
        # (m + 1,) where the relevant documents of each training query begin
        self._offsets = indptr_from_counts([len(ids) for ids in distinct])
        self._relevant = self.documents.document_numbers([id for ids in distinct for id in ids])
        self._groups = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
        if self._groups.shape != (n,):
            raise InputError(f"groups: expected one of each of {n} training queries, found {self._groups.shape}")
        self.index = PassageIndex(vectors, passage_ids=query_ids)

    def save(self, folder: Path | str) -> None:
        """Write to a new folder, all of it or nothing."""
        with whole_folder(Path(folder)) as aside:
            self.index.save(aside / _INDEX)
            write_table(aside / _DOCUMENTS, pa.table([self.documents.doc_ids], schema=_IDS))
            tensors = {"offsets": self._offsets, "documents": self._relevant, "groups": self._groups}
            write_tensors(aside / _RELEVANT, tensors)
            write_manifest(aside, _HEAD | {"k": int(self.k), "power": float(self.power)})

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder that :meth:`save` wrote; the vectors of the training queries are memory-mapped.

        Parameters
        ----------
        folder : Path or str
            It must not change while it is in use. Any other folder raises :class:`FileFormatError`.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "query neighbours", _HEAD)
        check_files(folder, manifest, (f"{_INDEX}/{MANIFEST}", _DOCUMENTS, _RELEVANT))
        found = cls.__new__(cls)
        try:
            found.k, found.power = manifest["k"], manifest["power"]
            check_parameters("QueryNeighbours", {"k": found.k, "power": found.power}, _RANGES)
        except (KeyError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"settings: {error}") from None
        found.documents = _documents(read_table(folder / _DOCUMENTS, _IDS).column("id"))
        found.index = PassageIndex.open(folder / _INDEX)
        tensors = mapped_tensors(folder / _RELEVANT)
        found._offsets, found._relevant = (tensors.get(name, np.zeros(0)) for name in ("offsets", "documents"))
        found._groups = np.unique(tensors.get("groups", np.arange(len(found.index))), return_inverse=True)[1]
        fits = found._groups.shape == (len(found.index),)
        if not fits or not _fit(found._offsets, found._relevant, len(found.index), len(found.documents)):
            raise FileFormatError(folder / _RELEVANT, None, "the relevant documents do not fit the training queries")
        return found

    def with_documents(self, doc_ids: Ids) -> Self:
        """Return the same neighbours over another list of documents; relevant documents not in it are left out.

        The training queries and their index are shared.
        """
        other = copy.copy(self)
        other.documents = _documents(doc_ids)
        new = Lookup(other.documents.doc_ids).find(self.documents.doc_ids, "document")[self._relevant]
        # The number of kept documents before each offset is its new value.
        other._offsets, other._relevant = indptr_from_counts((new >= 0).astype(np.int64))[self._offsets], new[new >= 0]
        return other

    def __len__(self) -> int:
        """Return the number of training queries."""
        return len(self.index)

    def rank(
        self,
        query_vectors: Matrix,
        query_ids: Sequence[str],
        *,
        exclude: Exclude | None = None,
        training_rows: Sequence[int] | Ints | None = None,
        depth: int = DEPTH,
    ) -> Run:
        """Rank the documents that are relevant to each query's neighbours.

        Parameters
        ----------
        query_vectors : (m, d) array or sparse matrix
            Sparse if the training queries are.
        query_ids : (m,) str
        exclude : (m,), optional
            As in :meth:`PassageIndex.search`.
        training_rows : (m,) int, optional
            The row of the training query that *is* this query (-1: none). It and its group are held out, so training
            queries are ranked as if they were new.
        depth : int, default 1000
            Documents kept for each query.
        """
        check_parameters("QueryNeighbours.rank", {"depth": depth}, {"depth": COUNT})
        queries = check_like(query_vectors, "queries", self.index.vectors)
        m = int(queries.shape[0])
        if len(query_ids) != m:
            raise InputError(f"{len(query_ids)} query ids for {m} query vectors")
        excluded = self.documents.excluded(exclude, m)
        rows, neighbours, cosines = self._neighbours(queries, training_rows)
        ends = indptr_from_counts(np.bincount(rows, minlength=m))
        weights = sparse.csr_matrix((cosines**self.power, neighbours, ends), shape=(m, len(self)))
        found = (weights @ self._relevance).tocoo()
        kept = found.col != excluded[found.row]
        triples = found.row[kept], found.col[kept], found.data[kept]
        return Run.from_numbers(query_ids, self.documents.doc_ids, *triples, depth)

    def explain(self, query_vector: Matrix, doc_id: str, *, training_row: int = -1) -> pd.DataFrame:
        """Return the neighbours that contribute to a document's score, nearest first.

        Columns ``query_id``, ``row`` (of the training query), ``cosine`` and ``share``. Shares sum to the score.

        Parameters
        ----------
        query_vector : (d,) or (1, d) array, or CSR row
        doc_id : str
        training_row : int, default -1
            As in :meth:`rank`.
        """
        import pandas as pd

        document = int(self.documents.document_numbers([doc_id])[0])
        query = query_vector if is_sparse(query_vector) else np.atleast_2d(to_numpy(query_vector))
        if query.shape[0] != 1:
            raise InputError(f"explain takes one query vector, found {query.shape[0]}")
        _, rows, cosines = self._neighbours(query, [training_row])
        near = self._relevance[:, [document]].toarray()[rows, 0] > 0
        rows, cosines = rows[near], cosines[near]
        names = np.asarray(self.index.passage_ids.take(rows).to_pylist(), dtype=object)
        return pd.DataFrame({"query_id": names, "row": rows, "cosine": cosines, "share": cosines**self.power})

    @property
    def _relevance(self) -> sparse.csr_matrix:
        """Return the (m, n) matrix with 1 where a document is relevant to a training query."""
        ones, shape = np.ones(len(self._relevant)), (len(self), len(self.documents))
        return sparse.csr_matrix((ones, self._relevant, self._offsets), shape=shape)

    def _neighbours(
        self, queries: Matrix, training_rows: Sequence[int] | Ints | None
    ) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Return flat ``(query row, training query, cosine)``, nearest first for each query."""
        queries = _unit(check_like(queries, "queries", self.index.vectors))
        m, n = int(queries.shape[0]), len(self)
        itself = np.full(m, -1) if training_rows is None else np.asarray(training_rows)
        if itself.shape != (m,) or itself.dtype.kind != "i" or ((itself < -1) | (itself >= n)).any():
            raise InputError(f"training_rows must hold {m} rows of training queries, below {n}, or -1 for none")
        # Every training query is a document of the index, so the query itself is an excluded document. The rest of its
        # group is removed from the hits; the search is deeper by the size of the largest group.
        more = int(np.bincount(self._groups).max()) - 1 if (itself >= 0).any() else 0
        hits = self.index.search(queries, min(self.k + more, n), exclude=itself)
        rows, _, neighbours, cosines = hits.flat()
        near = (cosines > 0) & ((itself[rows] < 0) | (self._groups[neighbours] != self._groups[itself[rows]]))
        rows, neighbours, cosines = rows[near], neighbours[near], cosines[near]
        first = np.arange(len(rows)) - np.searchsorted(rows, rows) < self.k
        return rows[first], neighbours[first], cosines[first].astype(np.float64)


def _documents(doc_ids: Ids) -> PassageTable:
    if len(doc_ids) == 0:
        raise InputError("there must be at least one document")
    return PassageTable(len(doc_ids), doc_ids=doc_ids)


def _fit(offsets: Ints, relevant: Ints, m: int, n: int) -> bool:
    """Return whether these can be the relevant documents, of n, of m training queries."""
    if offsets.shape != (m + 1,) or relevant.ndim != 1 or {offsets.dtype.kind, relevant.dtype.kind} != {"i"}:
        return False
    rises = offsets[0] == 0 and offsets[-1] == len(relevant) and (np.diff(offsets) >= 0).all()
    return bool(rises and ((relevant >= 0) & (relevant < n)).all())


def _unit(vectors: Any) -> Matrix:
    """Return vectors of length 1 in main memory."""
    return (normalized_sparse if is_sparse(vectors) else normalized)(to_numpy(vectors))
