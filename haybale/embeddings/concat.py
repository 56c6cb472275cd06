"""Encoding with several encoders, whose columns are put side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from haybale.embeddings.encoder import Encoder, Encodes, encode_queries
from haybale.embeddings.token_batches import check_texts
from haybale.errors import InputError, VectorError
from haybale.vectors import Matrix, check_matrix, normalized, normalized_sparse, reals


class ConcatEncoder(Encoder):
    """Encode with several encoders and concatenate: the inner product is the weighted mean of their cosines.

    The vectors of each encoder are scaled to length 1, then by the square root of its weight. So rows have length 1;
    where one of the encoders knows no term of a text, its columns are zero.

    Parameters
    ----------
    encoders : sequence of encoders
        At least one; all return dense vectors, or all CSR matrices, and so does the concatenation.
    weights : sequence of float, optional
        A weight above 0 for each encoder, scaled to sum to 1; default: equal weights.

    Examples
    --------
    >>> from haybale.embeddings import TfidfEncoder
    >>> texts = ["dogs bark", "cats meow", "dogs and cats"]
    >>> words, grams = TfidfEncoder(min_df=1).fit(texts), TfidfEncoder(char_ngrams=(3, 3)).fit(texts)
    >>> encoder = ConcatEncoder([words, grams], weights=[3, 1])
    >>> encoder.encode(["dogs", "a cat"]).shape == (2, encoder.dim)
    True
    """

    def __init__(self, encoders: Sequence[Encodes], weights: Sequence[float] | None = None) -> None:
        n, given = len(encoders), reals([1] * len(encoders) if weights is None else weights, "weights")
        if not n:
            raise InputError("ConcatEncoder needs at least one encoder")
        if given.shape != (n,) or not (np.isfinite(given).all() and (given > 0).all()):
            raise InputError(f"expected {n} positive weights, one an encoder, found {weights}")
        self.encoders, self.weights = list(encoders), given / given.sum()

    @property
    def dim(self) -> int:
        """The number of columns, over all encoders."""
        return sum(encoder.dim for encoder in self.encoders)  # type: ignore[attr-defined]

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Encode (n,) texts to (n, d) float32; VectorError for dense and sparse vectors mixed."""
        return self._joined(texts, lambda encoder, texts: encoder.encode(texts))

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Encode (n,) queries to (n, d) float32, each encoder by its own ``encode_queries`` if it has one."""
        return self._joined(texts, encode_queries)

    def describe(self) -> dict[str, Any]:
        """Return the descriptions of the encoders, and their weights."""
        for i, encoder in enumerate(self.encoders):
            if not hasattr(encoder, "describe"):
                raise InputError(f"encoder {i}, {type(encoder).__name__}, does not describe itself")
        members = [encoder.describe() for encoder in self.encoders]  # type: ignore[attr-defined]
        weights = self.weights.tolist()
        return {"class": type(self).__name__, "encoders": members, "weights": weights, "width": self.dim}

    def _joined(self, texts: Sequence[str], encode: Callable[[Encodes, Sequence[str]], Matrix]) -> Matrix:
        check_texts(texts)
        parts = [check_matrix(encode(encoder, texts), f"encoder {i}") for i, encoder in enumerate(self.encoders)]
        wide = [sparse.issparse(part) for part in parts]
        if any(wide) and not all(wide):
            raise VectorError(
                f"encoder {wide.index(False)} is dense and encoder {wide.index(True)} sparse: concatenate dense ones "
                "or sparse ones, and give an ensemble the other as a further space"
            )
        unit: Callable[[Any], Any] = normalized_sparse if wide[0] else normalized
        scaled = [unit(part) * np.float32(root) for part, root in zip(parts, np.sqrt(self.weights), strict=True)]
        return sparse.hstack(scaled, format="csr") if wide[0] else np.concatenate(scaled, axis=1)
