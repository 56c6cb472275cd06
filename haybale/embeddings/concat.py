"""Encode with several encoders and concatenate their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from haybale.embeddings.encoder import Encoder, Encodes, description_of, encode_queries, encode_texts
from haybale.embeddings.token_batches import check_texts
from haybale.errors import InputError, VectorError
from haybale.vectors import Matrix, check_matrix, normalized, normalized_sparse, reals


class ConcatEncoder(Encoder):
    """Encode with several encoders and concatenate: the inner product is the weighted mean of their cosines.

    The vectors of each encoder are scaled to length 1, then by the square root of its weight. Rows therefore have
    length 1, unless an encoder returns the zero vector for a text.

    Parameters
    ----------
    encoders : sequence of encoders
        At least one. All must return dense vectors, or all CSR matrices; the concatenation is of the same kind.
    weights : sequence of float, optional
        A positive weight for each encoder, scaled to sum to 1; default: equal weights.

    Raises
    ------
    InputError
        There is no encoder, or the weights are not one positive number for each encoder.

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
        n, raw_weights = len(encoders), reals([1] * len(encoders) if weights is None else weights, "weights")
        if not n:
            raise InputError(f"encoders must be at least one encoder, found {encoders!r}")
        if raw_weights.shape != (n,) or not (np.isfinite(raw_weights).all() and (raw_weights > 0).all()):
            raise InputError(f"expected {n} positive weights, one for each encoder, found {weights}")
        self.encoders, self.weights = list(encoders), raw_weights / raw_weights.sum()

    @property
    def dim(self) -> int:
        """The number of columns of all encoders together."""
        return sum(encoder.dim for encoder in self.encoders)  # type: ignore[attr-defined]

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Encode (n,) texts to (n, d) float32; raise :class:`VectorError` if dense and sparse vectors are mixed."""
        return self._joined(texts, encode_texts)

    def encode_queries(self, texts: Sequence[str]) -> Matrix:
        """Encode (n,) queries to (n, d) float32, with each encoder's own ``encode_queries`` if it has one."""
        return self._joined(texts, encode_queries)

    def describe(self) -> dict[str, Any]:
        """Return the descriptions of the encoders, their weights and the width."""
        for i, encoder in enumerate(self.encoders):
            if not hasattr(encoder, "describe"):
                raise InputError(f"encoder {i}, {type(encoder).__name__}, has no describe(); add the method to it")
        members = [description_of(encoder) for encoder in self.encoders]
        weights = self.weights.tolist()
        return {"class": type(self).__name__, "encoders": members, "weights": weights, "width": self.dim}

    def _joined(self, texts: Sequence[str], encode: Callable[[Encodes, Sequence[str]], Matrix]) -> Matrix:
        check_texts(texts)
        parts = [check_matrix(encode(encoder, texts), f"encoder {i}") for i, encoder in enumerate(self.encoders)]
        is_sparse = [sparse.issparse(part) for part in parts]
        if any(is_sparse) and not all(is_sparse):
            raise VectorError(
                f"encoder {is_sparse.index(False)} is dense, but encoder {is_sparse.index(True)} is sparse; "
                "use one kind only, and give an ensemble the other as a further space"
            )
        unit: Callable[[Any], Any] = normalized_sparse if is_sparse[0] else normalized
        scaled = [unit(part) * np.float32(root) for part, root in zip(parts, np.sqrt(self.weights), strict=True)]
        return sparse.hstack(scaled, format="csr") if is_sparse[0] else np.concatenate(scaled, axis=1)
