"""Spaces: vectors of queries and of passages, how they are scaled, and on which device they are.

A space is dense (an encoder's vectors) or sparse (TF-IDF rows, never densified), and has a γ for queries and one for
passages. Scaling multiplies by the root of γ, so that the product of several spaces' kernels is one RBF with γ = 1
(:mod:`haybale.ensemble.kernel`).

Only vectors are large: they are on an ensemble's device, and so are kernels and products. Numbers of rows, labels,
coefficients, pair features and scalings, being one row, are NumPy wherever the vectors are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.device import CPU, Device, device_of, find_device, is_sparse, placed, to_device, to_numpy
from haybale.ensemble.kernel import Points
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError, InputError, VectorError
from haybale.parallel import batch_size_for_memory, iter_chunks, one_blas_thread
from haybale.parameters import GAMMA, check_parameters
from haybale.vectors import Floats, Matrix, check_like, check_matrix

GammaOfSpace = float | tuple[float, float] | str
Gamma = GammaOfSpace | list[GammaOfSpace]  # a list has one entry a space


@dataclass(frozen=True)
class Scaling:
    """x -> (x - shift) · factor for queries or passages of a space, the root of γ in the factor; sparse: no shift."""

    shift: Floats | None  # (d,)
    factor: Floats  # (d,), or () for one number
    columns: int | None = None  # d of a sparse space

    def __call__(self, vectors: Matrix) -> Matrix:
        """(n, d) scaled, where the vectors are; float32, or float64 if the scaling is."""
        if is_sparse(vectors) != (self.shift is None):
            raise VectorError(f"expected a {'sparse' if self.shift is None else 'dense'} matrix, as in training")
        where = device_of(vectors)
        with where.current():
            if self.shift is None:
                return where.sparse.csr_matrix(vectors.multiply(self.factor.item()))
            scaled = vectors - to_device(self.shift, where)  # exact in float64 where the shift is
            scaled *= to_device(self.factor, where)
        return scaled

    @property
    def width(self) -> int | None:
        return self.columns if self.shift is None else len(self.shift)

    @property
    def described(self) -> str:
        """As :func:`described` says it of a matrix of this space."""
        return f"{self.width} (sparse)" if self.shift is None else str(self.width)


def described(matrix: Matrix) -> str:
    """The width of a space, and whether it is sparse.

    >>> from scipy.sparse import identity
    >>> described(identity(3, format="csr")), described(np.eye(2))
    ('3 (sparse)', '2')
    """
    return f"{matrix.shape[1]} (sparse)" if is_sparse(matrix) else str(matrix.shape[1])


@dataclass(frozen=True)
class Spaces:
    """The scalings of queries and of passages, one a space, and the γ they contain."""

    query: tuple[Scaling, ...]
    passage: tuple[Scaling, ...]
    gamma: tuple[tuple[float, float], ...]  # (queries, passages) of each space

    def precise(self) -> Spaces:
        """The same, in float64; of spaces that are not standardized."""

        def half(scalings: tuple[Scaling, ...], side: int) -> tuple[Scaling, ...]:
            return tuple(
                replace(
                    each,
                    shift=None if each.shift is None else each.shift.astype(np.float64),
                    factor=np.sqrt(gamma[side]),
                )
                for each, gamma in zip(scalings, self.gamma, strict=True)
            )

        return Spaces(half(self.query, 0), half(self.passage, 1), self.gamma)

    def queries(self, vectors: Sequence[Matrix]) -> Points:
        """The queries of a kernel, from one matrix a space."""
        return _scaled(self.query, vectors)

    def passages(self, vectors: Sequence[Matrix]) -> Points:
        """Its passages."""
        return _scaled(self.passage, vectors)


def _scaled(scalings: tuple[Scaling, ...], vectors: Sequence[Matrix]) -> Points:
    """The spaces side by side."""
    where = device_of(vectors[0])
    scaled = [scaling(matrix) for scaling, matrix in zip(scalings, vectors, strict=True)]
    dense = [matrix for matrix in scaled if not is_sparse(matrix)]
    wide = [matrix for matrix in scaled if is_sparse(matrix)]
    with where.current():
        return Points(
            (dense[0] if len(dense) == 1 else where.xp.concatenate(dense, axis=1)) if dense else None,
            where.sparse.hstack(wide, format="csr") if wide else None,
        )


def given_spaces(vectors: Any) -> tuple[list[Any], bool]:
    """What was given for the spaces, one a space; and whether that was a sequence of matrices, not one matrix."""
    several = isinstance(vectors, (list, tuple)) and len(vectors) > 0 and n_axes(vectors[0]) != 1
    return (list(vectors) if several else [vectors]), several


def n_axes(array: Any) -> int:
    """The number of dimensions; of any library's array.

    >>> n_axes([1.0, 2.0]), n_axes(np.eye(2))
    (1, 2)
    """
    return int(array.ndim) if hasattr(array, "ndim") else int(np.ndim(array))


def check_spaces(
    vectors: Any,
    what: str,
    widths: Sequence[int | None] | None = None,
    like: Sequence[Matrix] | None = None,
    where: Device | None = None,
) -> list[Matrix]:
    """One matrix, or a sequence with one a space, as float32 matrices of as many rows; refuses NaN and other widths.

    ``like`` are the spaces' passages: what is given must be as wide as they are, and sparse where they are. They are
    brought to the device ``where``; one that is on another device is refused. None: they stay where they are.
    """
    given, several = given_spaces(vectors)
    expected_spaces = widths if like is None else like
    if expected_spaces is not None and len(given) != len(expected_spaces):
        raise VectorError(f"{what}: expected one matrix for each of {len(expected_spaces)} spaces, found {len(given)}")
    checked: list[Matrix] = []
    for i, matrix in enumerate(given):
        name = f"{what}, space {i}" if several else what
        home = device_of(matrix) if where is None else where
        matrix = matrix if is_sparse(matrix) else placed(matrix, home, name)
        width = None if widths is None else widths[i]
        with home.current():
            found = check_matrix(matrix, name, width) if like is None else check_like(matrix, name, like[i])
        checked.append(placed(found, home, name))  # a sparse matrix is checked on the CPU
        rows, expected = checked[i].shape[0], checked[0].shape[0]
        if rows != expected:
            raise VectorError(f"{name}: expected {expected} rows, as in space 0, found {rows}")
    return checked


def fit_spaces(
    query: Ints,
    passage: Ints,
    queries: Sequence[Matrix],
    passages: Sequence[Matrix],
    gamma: Gamma,
    standardize: bool = False,
    dtype: Any = np.float32,
) -> Spaces:
    """Scalings and γ of every space over candidate rows (n,), pairs of rows of (m, d) and (n_passages, d).

    ``standardize`` takes z-scores of dense features, statistics over the candidate rows: a vector counts as often
    as rows use it; a constant feature keeps its values, as in scikit-learn's StandardScaler. Without it, dense
    spaces are centred only, which changes no distance and makes float32 distances more exact. ``dtype`` float64: on
    the median, from which a few distant vectors do not draw it away.

    ``gamma``: ``"scale"`` is scikit-learn's 1 / (n_features · Var X) of each space, X being its columns of all
    candidate rows; a number is that of both; a pair is (queries, passages); a list has one a space.
    """
    gammas = gamma if isinstance(gamma, list) else [gamma] * len(queries)
    if len(gammas) != len(queries):
        raise InputError(f"expected a gamma for each of {len(queries)} spaces, found {len(gammas)}")
    of_queries, of_passages, resolved = [], [], []
    for of_space, q, p in zip(gammas, queries, passages, strict=True):
        if is_sparse(q) != is_sparse(p):
            raise InputError("queries and passages of a space must be dense, or both sparse")
        moments = _moments(query, q, standardize), _moments(passage, p, standardize)
        pair = _resolved(of_space, moments)
        if dtype == np.float64:
            moments = moments[0].on_median_of(q), moments[1].on_median_of(p)
        of_queries.append(moments[0].scaling(pair[0], dtype))
        of_passages.append(moments[1].scaling(pair[1], dtype))
        resolved.append(pair)
    return Spaces(tuple(of_queries), tuple(of_passages), tuple(resolved))


class _Moments(NamedTuple):
    """What the queries or passages of one space say of themselves, each vector as often as rows use it."""

    shift: Floats | None  # (d,)
    factor: Floats  # (d,) or ()
    width: int
    mean: float  # of all values after scaling
    square: float  # mean square of all values after scaling

    def on_median_of(self, vectors: Matrix) -> _Moments:
        """The same, shifted by the median of dense vectors, in float64."""
        if self.shift is None or not self.width:
            return self
        return self._replace(shift=np.median(to_numpy(vectors), axis=0).astype(np.float64))

    def scaling(self, gamma: float, dtype: Any) -> Scaling:
        columns = self.width if self.shift is None else None
        return Scaling(self.shift, np.asarray(self.factor * np.sqrt(gamma), dtype=dtype), columns)


def _moments(used: Ints, vectors: Matrix, standardize: bool) -> _Moments:
    numbers, counts = np.unique(used, return_counts=True)
    share = counts / counts.sum()
    width = int(vectors.shape[1])
    if width == 0:  # no features: the same for all rows
        return _Moments(np.zeros(0, dtype=np.float32), np.ones((), dtype=np.float32), 0, 0.0, 0.0)
    if is_sparse(vectors):
        if standardize:
            raise InputError("standardize centres features: a sparse space would no longer be sparse")
        where = device_of(vectors)
        with where.current():
            chosen = vectors[to_device(numbers, where)]
            sums = [to_numpy(matrix.sum(axis=1)) for matrix in (chosen, chosen.multiply(chosen))]
        mean, square = (share @ np.asarray(values).ravel() / width for values in sums)
        return _Moments(None, np.ones((), dtype=np.float32), width, float(mean), float(square))
    mean, deviation = _mean_and_deviation(numbers, share, vectors)
    if not standardize:
        total = float(mean.mean()), float((np.square(mean) + np.square(deviation)).mean())
        return _Moments(mean.astype(np.float32), np.ones((), dtype=np.float32), width, *total)
    constant = _constant(mean, deviation)
    factor = (1 / np.where(constant, 1, deviation)).astype(np.float32)
    return _Moments(mean.astype(np.float32), factor, width, 0.0, float((~constant).mean()))


def _mean_and_deviation(
    numbers: Ints, share: NDArray[np.float64], vectors: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d,) each, over rows (n,) of the vectors that count ``share`` (n,); sums in float64."""
    where, width = device_of(vectors), int(vectors.shape[1])
    size = len(numbers) if where.is_cpu else batch_size_for_memory(where.half_of_memory() / 4, 24 * width)

    def summed(part: slice, mean: Any = None) -> Any:
        chosen = vectors[to_device(numbers[part], where)].astype(np.float64)
        if mean is not None:
            chosen -= mean
            chosen *= chosen
        return to_device(share[part], where) @ chosen

    with where.current(), one_blas_thread():
        mean = sum(iter_chunks(len(numbers), size, summed, what="vectors"))
        squares = sum(iter_chunks(len(numbers), size, lambda part: summed(part, mean), what="vectors"))
    return to_numpy(mean), np.sqrt(to_numpy(squares))


def _constant(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(d,) features that do not vary but by rounding, which a z-score must not blow up."""
    return np.asarray(deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny))


def _resolved(gamma: GammaOfSpace, moments: tuple[_Moments, _Moments]) -> tuple[float, float]:
    check_parameters("the kernel", {"gamma": gamma}, {"gamma": GAMMA})
    if isinstance(gamma, str):
        widths = np.array([each.width for each in moments])
        share = widths / widths.sum()
        mean = float(share @ [each.mean for each in moments])
        variance = float(share @ [each.square for each in moments]) - mean**2
        value = 1 / (float(widths.sum()) * variance) if variance > 0 else 1.0
        return value, value
    pair = gamma if isinstance(gamma, tuple) else (gamma, gamma)
    return float(pair[0]), float(pair[1])


def fit_features(values: Floats, eta: float) -> Scaling:
    """Scaling of features that belong to rows, (n, f), to z-scores times √(eta/f): of a row their squares sum to about
    eta. One that varies by less than 1e-6 is not blown up: where nothing was learned of it, it may yet be 1."""
    mean, deviation = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
    flat = _constant(mean, deviation) | (deviation < 1e-6)
    factor = np.sqrt(eta / values.shape[1]) / np.where(flat, 1, deviation)
    return Scaling(mean.astype(np.float32), factor.astype(np.float32))


def home_of(device: str | None, matrices: Iterable[Any]) -> Device:
    """The device of that name; None: where the first of the matrices that is on a device lies, else the CPU.

    >>> home_of(None, [np.ones((2, 2))])
    Device(kind='cpu', number=0)
    """
    if device is not None:
        return find_device(device)
    return next((found for found in map(device_of, matrices) if not found.is_cpu), CPU)


def rows_of(matrix: Matrix, rows: Any, where: Device) -> Matrix:
    """Some rows of a matrix, gathered where it is and moved to the device; float16 becomes float32 for them alone.

    Errors: :class:`DeviceError` where they do not fit.
    """
    here = device_of(matrix)
    try:
        with here.current():
            chosen = matrix[to_device(rows, here)]
            chosen = chosen if chosen.dtype == np.float32 else chosen.astype(np.float32)
        return to_device(chosen, where)
    except MemoryError as error:
        size = 4 * len(rows) * int(matrix.shape[1]) / 1e9
        raise DeviceError(f"out of memory: {len(rows):,} vectors of {size:.2g} GB do not fit on {where}") from error


def taken_back(array: Any, where: Device, what: str) -> Any:
    """What somebody else is to check on the CPU: a copy from the device ``where``; from another it is refused."""
    return array if device_of(array).is_cpu else to_numpy(placed(array, where, what))


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


def distinct_rows(vectors: NDArray[Any]) -> tuple[Ints, Ints]:
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
