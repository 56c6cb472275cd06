"""The RBF kernel on [q ; p], as the product it is.

    exp(-γ |[q;p] - [q';p']|²) = exp(-γ |q - q'|²) · exp(-γ |p - p'|²)

exactly, with any scaling of the features and with a γ for each half. So a kernel matrix over candidate rows is
gathered from two small Gram matrices, over the distinct queries and the distinct passages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haybale.ensemble.rows import CandidateRows
from haybale.errors import InputError
from haybale.vectors import Floats, array_namespace

Gamma = float | tuple[float, float] | str


def rbf(a: Any, b: Any, gamma: float) -> Any:
    """(n, d), (m, d) to (n, m) float32: exp(-γ |a_i - b_j|²), by one matrix product.

    >>> rbf(np.zeros((1, 2), dtype=np.float32), np.ones((1, 2), dtype=np.float32), 0.5)
    array([[0.36787942]], dtype=float32)
    """
    xp = array_namespace(a)
    distances = a @ b.T
    distances *= -2
    distances += xp.einsum("nd,nd->n", a, a)[:, None]
    distances += xp.einsum("md,md->m", b, b)[None, :]
    xp.maximum(distances, 0, out=distances)  # rounding can leave a tiny negative distance
    distances *= -gamma
    return xp.exp(distances, out=distances)


@dataclass(frozen=True)
class Scaling:
    """z-scores of both halves: x -> (x - mean) / scale, feature by feature."""

    query_mean: Floats  # (d,)
    query_scale: Floats
    passage_mean: Floats
    passage_scale: Floats

    def queries(self, vectors: Floats) -> Floats:
        """Scaled query vectors, (m, d) float32."""
        return (vectors - self.query_mean) / self.query_scale

    def passages(self, vectors: Floats) -> Floats:
        """Scaled passage vectors, (n, d) float32."""
        return (vectors - self.passage_mean) / self.passage_scale


def fit_scaling(rows: CandidateRows, queries: Floats, passages: Floats, standardize: bool) -> Scaling:
    """Statistics over the candidate rows, from the triples: a vector counts as often as rows use it.

    A constant feature keeps its values (scale 1), as in scikit-learn's StandardScaler. With
    ``standardize=False``, nothing is changed.
    """
    d = queries.shape[1]
    if not standardize:
        zero, one = np.zeros(d, dtype=np.float32), np.ones(d, dtype=np.float32)
        return Scaling(zero, one, zero, one)
    return Scaling(*_moments(rows.query, queries), *_moments(rows.passage, passages))


def _moments(used: Any, vectors: Floats) -> tuple[Floats, Floats]:
    numbers, counts = np.unique(used, return_counts=True)
    share = counts / counts.sum()
    chosen = vectors[numbers].astype(np.float64)
    mean = share @ chosen
    chosen -= mean
    deviation = np.sqrt(share @ np.square(chosen, out=chosen))
    constant = deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
    return mean.astype(np.float32), np.where(constant, 1, deviation).astype(np.float32)


def resolve_gamma(gamma: Gamma, rows: CandidateRows, queries: Floats, passages: Floats) -> tuple[float, float]:
    """``(γ of the query half, γ of the passage half)``.

    ``"scale"`` is scikit-learn's 1 / (n_features · Var X), X being all candidate rows (n, 2d); a number is both;
    a pair is itself. ``queries`` and ``passages`` are scaled already.
    """
    if isinstance(gamma, str):
        if gamma != "scale":
            raise InputError(f"gamma must be 'scale', a number or a pair of numbers, found {gamma!r}")
        total = squares = 0.0
        for used, vectors in ((rows.query, queries), (rows.passage, passages)):
            numbers, counts = np.unique(used, return_counts=True)
            share = counts / (2 * counts.sum() * vectors.shape[1])
            chosen = vectors[numbers].astype(np.float64)
            total += float(share @ chosen.sum(axis=1))
            squares += float(share @ np.einsum("nd,nd->n", chosen, chosen))
        variance = squares - total**2
        value = 1 / (2 * queries.shape[1] * variance) if variance > 0 else 1.0
        return value, value
    pair = gamma if isinstance(gamma, tuple) else (gamma, gamma)
    if len(pair) != 2 or not all(value > 0 for value in pair):
        raise InputError(f"gamma must be positive, found {gamma}")
    return float(pair[0]), float(pair[1])
