"""Latent semantic vectors of documents: those that share no word are near if they share words with the same others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from haybale.cached import cached_property
from haybale.review.term_space import TermSpace, TermVector
from haybale.vectors import Floats

_DIMENSIONS = 64


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """The vectors of a :class:`TermSpace` in the directions of its first 64 singular vectors; made by :meth:`of`.

    See Deerwester et al., "Indexing by latent semantic analysis", JASIS 41 (1990).

    Attributes
    ----------
    matrix : (n_texts, n_dimensions) CSR matrix of float32
        Rows of unit length, or of length 0.
    terms : TermSpace
    directions : (n_terms, n_dimensions) float32 array
    """

    matrix: sparse.csr_matrix
    terms: TermSpace
    directions: Floats

    @classmethod
    def of(cls, terms: TermSpace) -> LatentSpace | None:
        """Return the space of some texts; None if there are too few for it."""
        from scipy.sparse.linalg import svds

        n = min(_DIMENSIONS, *(size - 2 for size in terms.matrix.shape))
        if n < 2:
            return None
        first = np.random.default_rng(0).standard_normal(min(terms.matrix.shape))  # the iteration begins here
        _, values, directions = svds(terms.matrix.astype(np.float64), k=n, v0=first, return_singular_vectors="vh")
        kept = values > 1e-9 * max(float(values.max()), 1e-9)
        found = np.ascontiguousarray(directions[kept].T, dtype=np.float32)
        if not kept.any():
            return None
        return cls(sparse.csr_matrix(_unit(np.asarray(terms.matrix @ found))), terms, found)

    @cached_property
    def postings(self) -> sparse.csc_matrix:
        """The same matrix by columns."""
        return self.matrix.tocsc()

    def row(self, row: int) -> TermVector:
        """Return the vector of a text."""
        start, end = self.matrix.indptr[row : row + 2]
        return TermVector(self.matrix.indices[start:end], self.matrix.data[start:end])

    def vector(self, text: str) -> TermVector:
        """Return the vector of another text."""
        known = self.terms.vector(text)
        [weights] = _unit((known.weights @ self.directions[known.columns])[None])
        columns = np.flatnonzero(weights)
        return TermVector(columns, weights[columns])


def _unit(vectors: Floats) -> Floats:
    """Return vectors divided by their lengths; those of length 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-9)
    return scaled
