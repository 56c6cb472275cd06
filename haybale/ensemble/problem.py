"""One bag's ε-SVR problem, and what solving it gives: the interface of the solvers.

A solver learns; it does not predict. Prediction needs only the support rows and their coefficients
(:mod:`haybale.ensemble.support`), so a model does not depend on the solver that trained it.

Halves may be on a device, and the Gram matrices are where they are; all that is one number or one short row a
candidate row is NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.gram import empty_on, gram, kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError, InputError
from haybale.machine import fitting, in_tiles
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
    grams: tuple[Any, Any] | None = None  # of both halves, where they are, if somebody holds them already
    threads: int | None = None  # None: one a core

    def __post_init__(self) -> None:
        n = len(self.label)
        if n == 0:
            raise InputError("an empty bag: there is no row to learn from")
        for name in ("query", "passage", "weight", "interactions", "evidence", "evidence_root"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise InputError(f"{name}: expected {n} rows, as there are labels, found {len(value)}")
        if self.queries.device != self.passages.device:
            raise DeviceError(f"queries on {self.queries.device} meet passages on {self.passages.device}")
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
    def device(self) -> Device:
        """Where the halves are."""
        return self.queries.device

    def to_numpy(self) -> Problem:
        """The same problem on the CPU, for a solver that knows no other place."""
        if self.device.is_cpu:
            return self
        grams = None if self.grams is None else (to_numpy(self.grams[0]), to_numpy(self.grams[1]))
        return replace(self, queries=self.queries.to_numpy(), passages=self.passages.to_numpy(), grams=grams)

    @property
    def diagonal(self) -> Floats:
        """(n,) the kernel of each row with itself."""
        root = np.zeros(len(self.label)) if self.evidence_root is None else self.evidence_root
        return np.asarray(1 + np.square(root), dtype=np.float32)

    def gram(self, rows: Ints | slice = slice(None)) -> Any:
        """(n_rows, n) float32 kernel values of some rows with all rows, where the halves are."""
        if not self.device.is_cpu:
            with self.device.current():
                return self._gram_on_device(rows)
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

    def _gram_on_device(self, rows: Ints | slice) -> Any:
        """The same in tiles of rows that fit the memory, so that no second matrix of the size is ever held."""
        xp = self.queries.xp
        chosen = np.arange(len(self.label))[rows]
        grams = self.grams
        if grams is None and isinstance(rows, slice) and rows == slice(None):
            grams = gram(self.queries), gram(self.passages)
        ends = to_device(self.query, self.device), to_device(self.passage, self.device)
        more = {name: self._on_device(name) for name in ("interactions", "evidence")}
        root = None if self.evidence_root is None else to_device(self.evidence_root, self.device)
        values = empty_on(self.device, (len(chosen), len(self.label)), "kernel matrix")

        def fill(part: slice) -> None:
            here = to_device(chosen[part], self.device)
            tile = values[part]
            tile.fill(1)
            for number, (half, end) in enumerate(zip((self.queries, self.passages), ends, strict=True)):
                wanted = end[here]
                near = kernel_tile(half.take(wanted), half) if grams is None else grams[number][wanted]
                tile *= xp.take(near, end, axis=1)
            if more["interactions"] is not None:
                tile *= kernel_tile(more["interactions"].take(here), more["interactions"])
            if more["evidence"] is not None and root is not None:
                shared = kernel_tile(more["evidence"].take(here), more["evidence"])
                shared *= root[here][:, None]
                shared *= root
                tile += shared

        wide = len(self.label) + max(len(self.queries), len(self.passages))
        for _ in in_tiles(len(chosen), fitting(self.device.half_of_memory() / 4, 8 * wide), fill, what="kernel rows"):
            pass
        return values

    def _on_device(self, name: str) -> Half | None:
        columns = getattr(self, name)
        return None if columns is None else Half(to_device(columns, self.device))

    def features(self) -> Any:
        """(n, width) the rows [q ; p] themselves, scaled so that one RBF with γ = 1 serves; sparse if a space is."""
        if self.evidence is not None:
            raise InputError("a kernel with pair features is a sum: it has no features to materialise")
        parts = [half.take(rows) for half, rows in ((self.queries, self.query), (self.passages, self.passage))]
        dense = [part.dense for part in parts if part.dense is not None]
        dense += [] if self.interactions is None else [to_device(self.interactions, self.device)]
        wide = [part.sparse for part in parts if part.sparse is not None]
        with self.device.current():
            return sparse.hstack([*dense, *wide]).tocsr() if wide else self.queries.xp.concatenate(dense, axis=1)


def _gathered(half: Half, rows: Ints, columns: Ints) -> Floats:
    """(n_rows, n_columns) kernel values between members of a half, each distinct pair computed once."""
    used, where = np.unique(rows, return_inverse=True)
    return np.take(kernel_tile(half.take(used), half)[where], columns, axis=1)


@dataclass(frozen=True)
class Dual:
    """f(q, p) = Σ_i coef_i K((q, p), row i) + intercept; coef is 0 for rows that are no support vectors."""

    coef: NDArray[np.float64]  # (n,)
    intercept: float
    n_iter: int = 0  # steps of two coefficients
    converged: bool = True
    n_working_sets: int = 0  # outer iterations of a solver that has such


Solver = Callable[[Problem], Dual]
