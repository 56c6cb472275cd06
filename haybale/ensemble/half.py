"""One half of the rows: the distinct queries or the distinct passages, in all their spaces.

A half is scaled so that its kernel is exp(-‖a - b‖²): every space is multiplied by the root of its own γ, and a
product of RBF kernels is then one RBF over the spaces side by side. The solver sees nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import CPU, Device, device_of, to_device, to_numpy
from haybale.ensemble.placing import refuse_sparse
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError
from haybale.retrieval.sparse_search import add_products
from haybale.vectors import Floats, squared_lengths


@dataclass(frozen=True)
class Half:
    """Dense spaces (n, d), sparse ones (n, v) as CSR, or both; float32, scaled to γ = 1.

    The dense part is a NumPy or a CuPy array. On a device there is no sparse part: :class:`DeviceError`.
    """

    dense: Any | None
    sparse: sparse.csr_matrix | None = None

    def __post_init__(self) -> None:
        if self.sparse is not None:
            refuse_sparse(self.device, "a half with sparse and dense spaces")

    def __len__(self) -> int:
        part: Any = self.sparse if self.dense is None else self.dense
        return int(part.shape[0])

    @cached_property
    def device(self) -> Device:
        """Where the dense part is."""
        return CPU if self.dense is None else device_of(self.dense)

    @property
    def xp(self) -> ModuleType:
        """The array library of its products and kernels."""
        return self.device.xp

    def to(self, device: Device) -> Half:
        """The half on a device; itself, where it is there."""
        if device == self.device:
            return self
        if self.sparse is not None:
            refuse_sparse(device, "a half with sparse spaces")
        return Half(to_device(self.dense, device))

    def to_numpy(self) -> Half:
        """The half on the CPU."""
        return self if self.device.is_cpu else Half(to_numpy(self.dense))

    @cached_property
    def norms(self) -> Any:
        """(n,) squared lengths."""
        if not self.device.is_cpu:
            with self.device.current():
                return squared_lengths(self.dense)  # CuPy's einsum would be n products of vectors
        total = np.zeros(len(self), dtype=np.float32)
        if self.dense is not None:
            total += np.einsum("nd,nd->n", self.dense, self.dense)
        if self.sparse is not None:
            total += np.asarray(self.sparse.multiply(self.sparse).sum(axis=1), dtype=np.float32).ravel()
        return total

    def take(self, rows: Any) -> Half:
        """Some rows, by numbers (of either library) or a slice; a slice of the dense part is a view."""
        if not isinstance(rows, slice):
            rows = to_device(rows, self.device)
        with self.device.current():
            dense = None if self.dense is None else self.dense[rows]
        return Half(dense, None if self.sparse is None else self.sparse[rows])

    def tile(self, start: int, end: int) -> Half:
        """The rows from ``start`` to ``end``, kept with what is derived from them, since they meet half after half."""
        if (start, end) not in self._tiles:
            self._tiles[start, end] = self.take(slice(start, end))
        return self._tiles[start, end]

    @cached_property
    def _tiles(self) -> dict[tuple[int, int], Half]:
        return {}

    def products(self, other: Half, out: Any, exact: bool = False) -> Any:
        """(n, m) inner products with another half, into ``out``; both halves on one device.

        A row's products may differ in the last bit with the rows beside it: BLAS has kernels that sum in another order
        at the edges of their blocks. Not so if ``exact``, which on the CPU sums in float64, and costs twice as much.
        """
        if self.device != other.device:
            raise DeviceError(f"a half on {self.device} meets one on {other.device}; move one with Half.to")
        if self.dense is None or other.dense is None or not self.dense.shape[1]:
            out[:] = 0
        elif exact and self.device.is_cpu:
            out[:] = self.dense.astype(np.float64) @ other.dense.astype(np.float64).T
        else:
            with self.device.current():
                self.xp.matmul(self.dense, other.dense.T, out=out)
        if self.sparse is not None and other.sparse is not None:
            add_products(self.sparse, other.columns, out)
        return out

    @cached_property
    def columns(self) -> Any:
        """(n, v) CSC, the sparse spaces by term. Kept, since a half meets many others."""
        assert self.sparse is not None
        return self.sparse.tocsc()


@njit(nogil=True, cache=True)
def _hashes(words: Any, factors: Any) -> Any:  # pragma: no cover - compiled
    """(n,) uint64 from (n, d) uint32."""
    out = np.empty(len(words), dtype=np.uint64)
    for i in range(len(words)):
        total = np.uint64(0)
        for j in range(words.shape[1]):
            mixed = np.uint64(words[i, j]) * factors[j]
            total += mixed ^ (mixed >> np.uint64(29))
        out[i] = total
    return out


def distinct_rows(vectors: Floats) -> tuple[Ints, Ints]:
    """``(first, where)``: row numbers of the distinct rows, and for each row which of them it equals.

    The order of the distinct rows depends on their content alone, not on the order of ``vectors`` (n, d).
    Rows are compared by a hash and then in full: several times faster than sorting them.

    >>> first, where = distinct_rows(np.array([[1, 2], [3, 4], [1, 2]], dtype=np.float32))
    >>> sorted(first.tolist()), bool(where[0] == where[2] != where[1])
    ([0, 1], True)
    """
    vectors = vectors + np.float32(0)  # contiguous, and -0.0 becomes 0.0
    if not vectors.shape[1]:
        return np.zeros(min(1, len(vectors)), dtype=np.int64), np.zeros(len(vectors), dtype=np.int64)
    words: NDArray[np.uint32] = vectors.view(np.uint32)
    # Multiply-shift hashing: odd 64-bit factors, one a column, from a fixed seed; overflow wraps.
    factors = np.random.default_rng(0).integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
    hashes = _hashes(words, factors)
    _, first, where = np.unique(hashes, return_index=True, return_inverse=True)
    where = where.ravel()
    repeated = np.flatnonzero(first[where] != np.arange(len(where)))
    if not np.array_equal(vectors[repeated], vectors[first[where[repeated]]]):  # two rows with one hash
        _, first, where = np.unique(vectors, axis=0, return_index=True, return_inverse=True)
    return first, where.ravel()
