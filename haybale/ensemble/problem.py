"""One bag's ε-SVR problem, and what solving it gives: the interface of the solvers.

A solver learns; it does not predict. Prediction needs only the support rows and their coefficients
(:mod:`haybale.ensemble.support`), so a model does not depend on the solver that trained it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.ensemble.gram import gram, kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.vectors import Floats


@dataclass(frozen=True)
class Problem:
    """min ½‖w‖² + C Σ weight_i (ξ_i + ξ*_i), with |label_i - f_i| <= ε + ξ, over candidate rows (n,).

    Row i is the pair ``queries[query[i]]``, ``passages[passage[i]]``; its kernel with row j is
    Kq · Kp · Kr + r_i r_j Ks. Kr, over ``interactions``, and Ks, over ``evidence``, are RBFs with γ = 1 as the halves'
    are, and absent where those are None; ``evidence_root`` r is √η, or 0 for a row that has no evidence.
    """

    queries: Half  # (n_queries, ·)
    passages: Half  # (n_passages, ·)
    query: Ints  # (n,)
    passage: Ints  # (n,)
    label: NDArray[np.float64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    C: float = 1.0
    epsilon: float = 0.1
    tol: float = 1e-3
    max_iter: int = -1  # -1: as many as it takes
    interactions: Floats | None = None  # (n, r)
    evidence: Floats | None = None  # (n, f)
    evidence_root: Floats | None = None  # (n,)
    memory_budget: float = 2e9  # bytes a solver may hold in kernel values
    grams: tuple[Floats, Floats] | None = None  # of both halves, where somebody holds them already
    threads: int | None = None  # None: one a core

    def __post_init__(self) -> None:
        n = len(self.label)
        if n == 0:
            raise InputError("an empty bag: there is no row to learn from")
        for name in ("query", "passage", "weight", "interactions", "evidence", "evidence_root"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise InputError(f"{name}: expected {n} rows, as there are labels, found {len(value)}")
        if (self.evidence is None) != (self.evidence_root is None):
            raise InputError("evidence and evidence_root belong together")
        for name, numbers, size in (
            ("query", self.query, len(self.queries)),
            ("passage", self.passage, len(self.passages)),
        ):
            if numbers.min() < 0 or numbers.max() >= size:
                raise InputError(f"{name} numbers must lie in 0..{size - 1}, found {numbers.min()}..{numbers.max()}")
        if not np.isfinite(self.label).all():
            raise InputError(f"label of row {int(np.argmin(np.isfinite(self.label)))} is NaN or infinite")
        if not (np.isfinite(self.weight).all() and (self.weight >= 0).all()):
            raise InputError("weights must be finite and not negative")
        if not self.weight.any():
            raise InputError("all weights are zero: there is no row to learn from")

    @property
    def diagonal(self) -> Floats:
        """(n,) the kernel of each row with itself."""
        root = np.zeros(len(self.label)) if self.evidence_root is None else self.evidence_root
        return np.asarray(1 + np.square(root), dtype=np.float32)

    def gram(self, rows: Ints | slice = slice(None)) -> Floats:
        """(n_rows, n) float32 kernel values of some rows with all rows."""
        query, passage = self.query[rows], self.passage[rows]
        if self.grams is not None:
            values = np.take(self.grams[0][query], self.query, axis=1)
            values *= np.take(self.grams[1][passage], self.passage, axis=1)
        elif isinstance(rows, slice) and rows == slice(None):
            kq, kp = gram(self.queries, self.threads), gram(self.passages, self.threads)
            values = np.empty((len(query), len(query)), dtype=np.float32)
            for i in range(len(query)):  # row by row: no second matrix of the size is ever held
                np.multiply(kq[query[i], self.query], kp[passage[i], self.passage], out=values[i])
        else:
            values = _gathered(self.queries, query, self.query) * _gathered(self.passages, passage, self.passage)
        if self.interactions is not None:
            values *= kernel_tile(Half(self.interactions[rows]), Half(self.interactions))
        if self.evidence is not None and self.evidence_root is not None:
            shared = kernel_tile(Half(self.evidence[rows]), Half(self.evidence))
            shared *= self.evidence_root[rows][:, None]
            shared *= self.evidence_root
            values += shared
        return values

    def features(self) -> Floats | sparse.csr_matrix:
        """(n, width) the rows [q ; p] themselves, scaled so that one RBF with γ = 1 serves."""
        if self.evidence is not None:
            raise InputError("a kernel with pair features is a sum: it has no features to materialise")
        parts = [half.take(rows) for half, rows in ((self.queries, self.query), (self.passages, self.passage))]
        dense = [part.dense for part in parts if part.dense is not None]
        dense += [] if self.interactions is None else [self.interactions]
        wide = [part.sparse for part in parts if part.sparse is not None]
        return sparse.hstack([*dense, *wide]).tocsr() if wide else np.concatenate(dense, axis=1)


def _gathered(half: Half, rows: Ints, columns: Ints) -> Floats:
    """(n_rows, n_columns) kernel values between members of a half, each distinct pair computed once."""
    used, where = np.unique(rows, return_inverse=True)
    return np.take(kernel_tile(half.take(used), half)[where], columns, axis=1)


@dataclass(frozen=True)
class Dual:
    """f(q, p) = Σ_i coef_i K((q, p), row i) + intercept; coef is 0 for rows that are no support vectors."""

    coef: NDArray[np.float64]  # (n,)
    intercept: float
    n_iter: int = 0
    converged: bool = True


Solver = Callable[[Problem], Dual]
