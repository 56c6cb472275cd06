"""Keep the kernel between the rows that were judged and those that are considered.

All rows are considered if there are at most 50,000. In larger collections, the documents that are most similar to the
topic's text are considered, and those nearest to each relevant document; the others are ranked behind them by the text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections.collection import Ints, ragged_take
from haybale.review.growing_matrix import GrowingMatrix, add_products
from haybale.review.term_space import TermSpace, TermVector
from haybale.review.topic_features import TopicFeatures, Vectors
from haybale.vectors import Floats

MAX_ROWS = 50_000  # rows that are considered at most, beside judged documents
_MAX_REFERENCES = 4096  # rows among which the members' ranks of a judged row are estimated
_ROWS_PER_RELEVANT = 500  # nearest rows that are considered in addition for each relevant document


class JudgedRows:
    """The judged rows of a topic, its text included, and their kernels with the considered rows.

    Parameters
    ----------
    features : TopicFeatures
    text : Vectors
        The vectors of the topic's text.
    random_state : int
        Chooses the first considered documents if there are too many, and the text has none of their terms.
    max_rows : int
        The number of rows that are considered at most; a judged document is considered in any case.

    Attributes
    ----------
    rows : (n_considered,) int64 array
    is_whole : bool
        Whether all rows were considered from the start; :attr:`rows` are in order then.
    by_text : (n_rows,) float32 array
        The kernel ``"words"`` of the text with every row.
    references : (n_references,) int64 array
        Positions in :attr:`rows` of those among which a judged row is ranked: all of them, or 4,096 drawn at random
        from those that are considered at first.
    """

    def __init__(self, features: TopicFeatures, text: Vectors, random_state: int = 0, max_rows: int = MAX_ROWS) -> None:
        self.features, self._max_rows, self._n = features, max_rows, 0
        n_rows = self._spaces()[0].matrix.shape[0]
        self.is_whole = n_rows <= max_rows
        self.by_text = self._products_with_all(text["words"])
        self._is_considered = np.ones(n_rows, dtype=bool)
        self._vectors: list[Vectors] = []
        self.rows = np.arange(n_rows)
        self._position_of = np.arange(n_rows)
        self._columns = {name: np.zeros((16, n_rows), dtype=np.float32) for name in features.kernels}
        if not self.is_whole:
            chance = np.random.default_rng(random_state).random(n_rows)
            first = np.lexsort((chance, -self.by_text))[: max_rows // 2]
            self._is_considered[:], self.rows = False, self.rows[:0]
            self._matrices = [GrowingMatrix(space.matrix[:0]) for space in self._spaces()]
            self._columns = {name: np.zeros((16, 0), dtype=np.float32) for name in features.kernels}
            self.consider(np.unique(features.document_of_rows[first]))
        self.references = np.arange(len(self.rows))
        self._reference_columns: dict[str, Floats] = {}
        if len(self.rows) > _MAX_REFERENCES or not self.is_whole:
            n_references = min(len(self.rows), _MAX_REFERENCES)
            drawn = np.random.default_rng([random_state, 1]).choice(len(self.rows), n_references, replace=False)
            self.references = np.sort(drawn)
            empty = np.zeros((16, n_references), dtype=np.float32)
            self._reference_columns = {name: empty.copy() for name in features.kernels}

    def __len__(self) -> int:
        return self._n

    @property
    def documents(self) -> Ints:
        """The document of each considered row, (n_considered,)."""
        return self.features.document_of_rows[self.rows]

    @property
    def is_considered(self) -> NDArray[np.bool_]:
        """Whether each row is considered, (n_rows,)."""
        return self._is_considered

    def columns(self, kernel: str) -> Floats:
        """Return the kernel of the judged with the considered rows, (n_judged, n_considered)."""
        return self._columns[kernel][: self._n]

    @property
    def are_all_references(self) -> bool:
        """Whether all considered rows are references."""
        return not self._reference_columns

    def reference_columns(self, kernel: str) -> Floats:
        """Return the kernel of the judged rows with the references, (n_judged, n_references)."""
        return (self._reference_columns or self._columns)[kernel][: self._n]

    def column(self, kernel: str, row: int) -> Floats:
        """Return the kernel of the judged rows with a considered row, (n_judged, 1)."""
        position = self._position_of[row]
        return self._columns[kernel][: self._n, position : position + 1]

    def vectors(self, position: int) -> Vectors:
        """Return the vectors of a judged row, by its position in the order of judgement."""
        return self._vectors[position]

    def places(self, rows: Ints) -> Ints:
        """Return the positions in :attr:`rows` of some rows, all of which must be considered."""
        positions: Ints = self._position_of[rows]
        return positions

    def add(self, vectors: Vectors, row: int | None) -> dict[str, Floats]:
        """Add a judged row, or with None the text; return its products with all judged rows, itself last, by kernel."""
        n, products = self._n, self._products(vectors)
        kernels = {}
        for name in self._columns:
            columns = self._columns[name] = _with_row(self._columns[name], n, products[name])
            if self._reference_columns:
                of_references = products[name][self.references]
                self._reference_columns[name] = _with_row(self._reference_columns[name], n, of_references)
            itself = float(np.mean([bool(len(vector.columns)) for vector in vectors[name]]))
            before = columns[:n, self._position_of[row]] if row is not None else columns[:n, 0]
            kernels[name] = np.append(before, np.float32(itself))
        self._vectors.append(vectors)
        self._n = n + 1
        return kernels

    def remove(self, position: int) -> None:
        """Remove a judged row, by its position in the order of judgement."""
        for columns in (*self._columns.values(), *self._reference_columns.values()):
            columns[position : self._n - 1] = columns[position + 1 : self._n]
        del self._vectors[position]
        self._n -= 1

    def consider_nearest(self, row: int) -> None:
        """Consider the documents nearest to a row, if there is room for them."""
        if len(self.rows) < min(self._max_rows, len(self._is_considered)):
            near = self._products_with_all(self.features.row(row)["words"])
            near[self._is_considered] = -np.inf
            nearest = np.argpartition(-near, min(_ROWS_PER_RELEVANT, len(near) - 1))[:_ROWS_PER_RELEVANT]
            self.consider(np.unique(self.features.document_of_rows[nearest]))

    def consider(self, documents: Ints) -> bool:
        """Consider all rows of documents; return whether any of them was not considered before."""
        rows, _ = ragged_take(self.features.row_offsets, documents)
        rows = rows[~self._is_considered[rows]]
        if not len(rows):
            return False
        self._is_considered[rows] = True
        self._position_of[rows] = len(self.rows) + np.arange(len(rows))
        self.rows = np.concatenate([self.rows, rows])
        new = [space.matrix[rows] for space in self._spaces()]
        start = 0
        for name, spaces in self.features.kernels.items():
            columns, n_spaces = self._columns[name], len(spaces)
            added = np.zeros((len(columns), len(rows)), dtype=np.float32)
            for number, matrix in enumerate(new[start : start + n_spaces]):
                judged = _stacked([vectors[name][number] for vectors in self._vectors], matrix.shape[1])
                added[: self._n] += (judged @ matrix.T).toarray() / n_spaces
            self._columns[name] = np.concatenate([columns, added], axis=1)
            start += n_spaces
        for growing_matrix, added_rows in zip(self._matrices, new, strict=True):
            growing_matrix.append(added_rows)
        return True

    def _spaces(self) -> list[TermSpace]:
        return [space for spaces in self.features.kernels.values() for space in spaces]

    def _products_with_all(self, vectors: list[TermVector]) -> Floats:
        """Return the kernel ``"words"`` of a text with all rows, (n_rows,)."""
        spaces = self.features.kernels["words"]
        if self.is_whole:
            return _mean([_by_postings(space, vector) for space, vector in zip(spaces, vectors, strict=True)])
        return _mean([_by_rows(space, vector) for space, vector in zip(spaces, vectors, strict=True)])

    def _products(self, vectors: Vectors) -> dict[str, Floats]:
        """Return the products of a text with the considered rows, by kernel."""
        products, start = {}, 0
        for name, spaces in self.features.kernels.items():
            end = start + len(spaces)
            if self.is_whole:
                parts = [_by_postings(space, vector) for space, vector in zip(spaces, vectors[name], strict=True)]
            else:
                matrices = self._matrices[start:end]
                parts = [matrix.product(vector) for matrix, vector in zip(matrices, vectors[name], strict=True)]
            products[name] = _mean(parts)
            start = end
        return products


def _with_row(columns: Floats, n: int, row: Floats) -> Floats:
    """Return columns of which row n is set; there is room for twice as many rows if there was none for it."""
    if n == len(columns):
        columns = np.concatenate([columns, np.zeros_like(columns)])
    columns[n] = row
    return columns


def _by_postings(space: TermSpace, vector: TermVector) -> Floats:
    """Return the products of a vector with all rows; only the postings of its terms are read."""
    products = np.zeros(space.matrix.shape[0], dtype=np.float32)
    add_products(space.postings, vector, products)
    return products


def _by_rows(space: TermSpace, vector: TermVector) -> Floats:
    """Return the products of a vector with all rows, without postings, which take as much memory as the rows."""
    dense = np.zeros(space.matrix.shape[1], dtype=np.float32)
    dense[vector.columns] = vector.weights
    return np.asarray(space.matrix @ dense, dtype=np.float32)


def _mean(products: list[Floats]) -> Floats:
    return np.asarray(sum(products[1:], products[0]) / len(products), dtype=np.float32)


def _stacked(vectors: list[TermVector], n_columns: int) -> sparse.csr_matrix:
    """Return vectors as the rows of a matrix."""
    indptr = np.cumsum([0, *(len(vector.columns) for vector in vectors)])
    indices = np.concatenate([np.empty(0, dtype=np.int64), *(vector.columns for vector in vectors)])
    data = np.concatenate([np.empty(0, dtype=np.float32), *(vector.weights for vector in vectors)])
    return sparse.csr_matrix((data, indices, indptr), shape=(len(vectors), n_columns))
