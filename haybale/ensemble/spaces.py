"""Spaces: the scaling of query and passage vectors, after which their kernel is an RBF kernel with γ = 1.

A space is dense (the vectors of an encoder) or sparse (TF-IDF rows, never densified). It has one γ for queries and one
for passages. A vector x becomes (x - shift) · factor, where the factor contains √γ. The product of the kernels of
several spaces is then one RBF kernel with γ = 1 (:mod:`haybale.ensemble.kernel`).

Vectors may be on a device, and are scaled on it. Row numbers, labels, coefficients, pair features and scalings are
always NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale import device_vectors
from haybale.device import CPU, Device, device_of, find_device, is_sparse, placed, to_device, to_numpy
from haybale.ensemble import device_sparse
from haybale.ensemble.kernel import Points
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError, InputError, VectorError
from haybale.parallel import in_threads
from haybale.parameters import GAMMA, check_parameters
from haybale.vectors import Floats, Matrix, check_matrix

_ROWS_PER_TASK = 256  # on the CPU, the rows of a task stay in the cache of its thread

GammaOfSpace = float | tuple[float, float] | str
Gamma = GammaOfSpace | list[GammaOfSpace]  # a list has one entry per space


@dataclass(frozen=True)
class Scaling:
    """The map x -> (x - shift) · factor for the queries or the passages of a space; a sparse space has no shift."""

    shift: Floats | None  # (d,)
    factor: Floats  # (d,), or () for one factor
    columns: int | None = None  # d of a sparse space

    def __call__(self, vectors: Matrix) -> Matrix:
        """Return scaled vectors (n, d) on their device: float32, or float64 if the scaling is float64."""
        if is_sparse(vectors) != (self.shift is None):
            expected, kind = ("sparse", "dense") if self.shift is None else ("dense", "sparse")
            raise VectorError(f"expected a {expected} matrix, as in training, found a {kind} matrix")
        where = device_of(vectors)
        with where.current():
            unscaled: Any = vectors
            scaled: Matrix
            if self.shift is None:
                scaled = _multiplied(unscaled, self.factor.item(), where)
            elif where.is_cpu and len(unscaled) > _ROWS_PER_TASK:
                shift = self.shift
                scaled = out = np.empty(unscaled.shape, dtype=np.result_type(unscaled, shift))

                def scale(start: int) -> None:
                    part = out[start : start + _ROWS_PER_TASK]
                    np.subtract(unscaled[start : start + _ROWS_PER_TASK], shift, out=part)
                    part *= self.factor

                in_threads(scale, range(0, len(unscaled), _ROWS_PER_TASK))
            elif where.is_cpu:
                scaled = unscaled - self.shift  # float64 if the shift is
                scaled *= self.factor  # type: ignore[operator]
            else:
                scaled = device_vectors.scaled_vectors(unscaled, self.shift, self.factor)
        return scaled

    def precise(self, gamma: float) -> Scaling:
        """Return the scaling in float64; the space must not be standardized."""
        return replace(self, shift=None if self.shift is None else self.shift.astype(float), factor=np.sqrt(gamma))

    @property
    def width(self) -> int | None:
        """d of the space."""
        return self.columns if self.shift is None else len(self.shift)


def _multiplied(vectors: Any, factor: float, where: Device) -> Any:
    """Return a CSR matrix times a number."""
    if where.is_cpu:
        return sparse.csr_matrix(vectors.multiply(factor))
    return device_sparse.csr_matrix(where, vectors.data * factor, vectors.indices, vectors.indptr, vectors.shape)


@dataclass(frozen=True)
class Spaces:
    """The scalings of queries and of passages, one per space, and the γ that they contain."""

    query: tuple[Scaling, ...]
    passage: tuple[Scaling, ...]
    gamma: tuple[tuple[float, float], ...]  # (queries, passages) of each space

    def precise(self) -> Spaces:
        """Return the scalings in float64; the spaces must not be standardized."""
        query = tuple(scaling.precise(gamma[0]) for scaling, gamma in zip(self.query, self.gamma, strict=True))
        passage = tuple(scaling.precise(gamma[1]) for scaling, gamma in zip(self.passage, self.gamma, strict=True))
        return Spaces(query, passage, self.gamma)

    def check_passages(self, vectors: Matrix) -> None:
        """Raise :class:`VectorError` unless the vectors of an index fit the only space of the model."""
        (passages,) = self.passage
        expected = f"{passages.width}{' (sparse)' if passages.shift is None else ''}"
        width = f"{vectors.shape[1]}{' (sparse)' if is_sparse(vectors) else ''}"
        if expected != width:
            raise VectorError(f"the index must have vectors of width {expected}, as in training, found {width}")

    def queries(self, vectors: Sequence[Matrix]) -> Points:
        """Return scaled queries, from one matrix per space."""
        return _scaled(self.query, vectors)

    def passages(self, vectors: Sequence[Matrix]) -> Points:
        """Return scaled passages, from one matrix per space."""
        return _scaled(self.passage, vectors)


def _scaled(scalings: tuple[Scaling, ...], vectors: Sequence[Matrix]) -> Points:
    where = device_of(vectors[0])
    scaled = [scaling(matrix) for scaling, matrix in zip(scalings, vectors, strict=True)]
    dense = [matrix for matrix in scaled if not is_sparse(matrix)]
    wide = [matrix for matrix in scaled if is_sparse(matrix)]
    with where.current():
        return Points(
            (dense[0] if len(dense) == 1 else where.xp.concatenate(dense, axis=1)) if dense else None,
            (wide[0] if len(wide) == 1 else where.sparse.hstack(wide, format="csr")) if wide else None,
        )


# fitting --------------------------------------------------------------------------------------------------


def fit_spaces(
    query: Ints,
    passage: Ints,
    queries: Sequence[Matrix],
    passages: Sequence[Matrix],
    gamma: Gamma,
    standardize: bool = False,
    dtype: Any = np.float32,
) -> Spaces:
    """Fit the scaling and γ of every space to candidate rows.

    Raises :class:`InputError` for another number of γ than of spaces, a space that is dense for one half and sparse for
    the other, and a sparse space that should be standardized.

    Parameters
    ----------
    query, passage : (n,) int
        The rows: pairs of a row of ``queries`` and a row of ``passages``.
    queries, passages : sequence of (m, d), sequence of (n_passages, d)
        One matrix per space.
    gamma : "scale", float, pair or list
        ``"scale"`` is 1 / (n_features · Var X) of each space, as in scikit-learn, where X has one row per candidate
        row. A number is the γ of both halves, a pair is (queries, passages), and a list has one entry per space.
    standardize : bool, default False
        Whether to z-score dense features with statistics over the candidate rows. A constant feature keeps its values,
        as in scikit-learn's StandardScaler. If False, dense spaces are only centred, which makes distances in float32
        more precise and does not change them otherwise.
    dtype : float32 or float64
        With float64, the centre is the median, which is robust to a few distant vectors.
    """
    gammas = gamma if isinstance(gamma, list) else [gamma] * len(queries)
    if len(gammas) != len(queries):
        raise InputError(f"gamma must have one entry for each of {len(queries)} spaces, found {len(gammas)}")
    of_queries, of_passages, resolved = [], [], []
    for of_space, q, p in zip(gammas, queries, passages, strict=True):
        spread = standardize or isinstance(of_space, str)  # a γ in numbers does not depend on the variance
        moments = _moments(query, q, standardize, spread), _moments(passage, p, standardize, spread)
        if (moments[0].shift is None) != (moments[1].shift is None):
            kinds = " and ".join("sparse" if half.shift is None else "dense" for half in moments)
            raise InputError(f"queries and passages must both be dense or both be sparse, found {kinds}")
        pair = _resolved(of_space, moments)
        if dtype == np.float64:
            moments = moments[0].on_median_of(q), moments[1].on_median_of(p)
        of_queries.append(moments[0].scaling(pair[0], dtype))
        of_passages.append(moments[1].scaling(pair[1], dtype))
        resolved.append(pair)
    return Spaces(tuple(of_queries), tuple(of_passages), tuple(resolved))


def fit_features(values: Floats, eta: float) -> Scaling:
    """Fit the scaling of pair features (n, f): z-scores times √(eta/f), so that their squares sum to about eta per row.

    A feature whose standard deviation is below 1e-6 is only centred, because a z-score would magnify later differences.
    """
    mean, deviation = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
    flat = _constant(mean, deviation) | (deviation < 1e-6)
    factor = np.sqrt(eta / values.shape[1]) / np.where(flat, 1, deviation)
    return Scaling(mean.astype(np.float32), factor.astype(np.float32))


class _Moments(NamedTuple):
    """Statistics of the queries or passages of one space, over candidate rows."""

    shift: Floats | None  # (d,)
    factor: Floats  # (d,) or ()
    width: int
    mean: float  # of all scaled values; 0 if not needed
    square: float  # mean square of all scaled values; 0 if not needed

    def on_median_of(self, vectors: Matrix) -> _Moments:
        """Return the statistics with the float64 median of dense vectors as shift."""
        if self.shift is None or not self.width:
            return self
        return self._replace(shift=np.median(to_numpy(vectors), axis=0).astype(np.float64))

    def scaling(self, gamma: float, dtype: Any) -> Scaling:
        """Return the scaling, including √γ."""
        columns = self.width if self.shift is None else None
        return Scaling(self.shift, np.asarray(self.factor * np.sqrt(gamma), dtype=dtype), columns)


def _moments(used: Ints, vectors: Matrix, standardize: bool, spread: bool) -> _Moments:
    """Return statistics over candidate rows, which use the rows ``used`` of ``vectors`` (n, d).

    Without ``spread``, only the centre of dense vectors is computed.
    """
    where, unit_factor, (n, width) = device_of(vectors), np.ones((), dtype=np.float32), vectors.shape
    if not width:  # without features, all rows are equal
        return _Moments(np.zeros(0, dtype=np.float32), unit_factor, 0, 0.0, 0.0)
    share: Any = np.bincount(used, minlength=n) / len(used)  # share of the candidate rows, by vector
    if is_sparse(vectors):
        if standardize:
            raise InputError("standardize=True needs dense vectors, found a sparse matrix; use standardize=False")
        with where.current():
            host = to_numpy(vectors)  # few sums: the CPU computes them before a device has compiled kernels for them
        sums = (np.asarray(matrix.sum(axis=1)).ravel() for matrix in (host, host.power(2)))
        mean, square = (float(share @ row_sums / width) for row_sums in sums)
        return _Moments(None, unit_factor, width, mean, square)
    # Sums are float64. They are computed in parts, to limit the memory of the float64 copies.
    parts = [slice(start, start + _ROWS_PER_TASK) for start in range(0, n, _ROWS_PER_TASK)]

    def weighted(centre: Any, power: int) -> Any:
        """Return the mean (d,) of a power of the vectors, less a centre, over the candidate rows."""
        if not where.is_cpu:
            return device_vectors.weighted_sums(
                where, vectors, share, np.broadcast_to(np.float64(centre), width), power
            )

        def of_part(part: slice) -> Any:
            values = vectors[part].astype(np.float64)
            return share[part] @ (np.square(values - centre) if power == 2 else values)

        return sum(in_threads(of_part, parts))

    mean = weighted(0.0, 1)
    if not spread:
        return _Moments(mean.astype(np.float32), unit_factor, width, 0.0, 0.0)
    deviation = np.sqrt(weighted(mean, 2))
    if not standardize:
        total = float(mean.mean()), float((np.square(mean) + np.square(deviation)).mean())
        return _Moments(mean.astype(np.float32), unit_factor, width, *total)
    constant = _constant(mean, deviation)
    factor = (1 / np.where(constant, 1, deviation)).astype(np.float32)
    return _Moments(mean.astype(np.float32), factor, width, 0.0, float((~constant).mean()))


def _constant(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which features (d,) vary only by rounding, which a z-score would magnify."""
    return np.asarray(deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny))


def _resolved(gamma: GammaOfSpace, moments: tuple[_Moments, _Moments]) -> tuple[float, float]:
    """Return γ of the queries and of the passages of a space."""
    check_parameters("the kernel", {"gamma": gamma}, {"gamma": GAMMA})
    if isinstance(gamma, str):
        widths = np.array([half.width for half in moments])
        share = widths / widths.sum()
        mean = float(share @ [half.mean for half in moments])
        variance = float(share @ [half.square for half in moments]) - mean**2
        value = 1 / (float(widths.sum()) * variance) if variance > 0 else 1.0
        return value, value
    pair = gamma if isinstance(gamma, tuple) else (gamma, gamma)
    return float(pair[0]), float(pair[1])


# matrices and devices -------------------------------------------------------------------------------------


def as_spaces(vectors: Any) -> list[Any]:
    """Return a list of matrices, one per space, from one matrix or several; a matrix may be a list of rows."""
    if not isinstance(vectors, (list, tuple)) or not vectors:
        return [vectors]
    first = vectors[0]
    is_row = (first.ndim if hasattr(first, "ndim") else np.ndim(first)) == 1
    return [vectors] if is_row else list(vectors)


def check_spaces(vectors: Any, what: str, where: Device, widths: Sequence[int | None] | None = None) -> list[Matrix]:
    """Return one float32 matrix per space on the device ``where``; matrices on the CPU are copied to it.

    Raises :class:`VectorError` for NaN, infinity, other widths or different numbers of rows, and :class:`DeviceError`
    for a matrix on another device.
    """
    matrices = as_spaces(vectors)
    if widths is not None and len(matrices) != len(widths):
        raise VectorError(f"{what} must have one matrix for each of {len(widths)} spaces, found {len(matrices)}")
    checked: list[Matrix] = []
    for i, matrix in enumerate(matrices):
        name = f"{what}, space {i}" if len(matrices) > 1 else what
        matrix = matrix if is_sparse(matrix) else placed(matrix, where, name)
        with where.current():
            valid = check_matrix(matrix, name, None if widths is None else widths[i])
        checked.append(placed(valid, where, name))  # a sparse matrix is checked on the CPU
        rows, expected = checked[i].shape[0], checked[0].shape[0]
        if rows != expected:
            raise VectorError(f"{name}: expected {expected} rows, as in space 0, found {rows}")
    return checked


def home_of(device: str | None, matrices: Iterable[Any]) -> Device:
    """Return the device with the given name; for None, the first device other than the CPU that holds a matrix.

    >>> home_of(None, [np.ones((2, 2))])
    Device(kind='cpu', number=0)
    """
    if device is not None:
        return find_device(device)
    return next((other for other in map(device_of, matrices) if not other.is_cpu), CPU)


def take_rows(matrix: Matrix, rows: Any, where: Device) -> Matrix:
    """Gather some rows on the matrix's device and move them to the device ``where``, as float32.

    Raises :class:`DeviceError` if they do not fit.
    """
    here = device_of(matrix)
    try:
        with here.current():
            if here.is_cpu:
                chosen: Any = matrix[np.asarray(rows)]
            else:
                chosen = (device_sparse if is_sparse(matrix) else device_vectors).take_rows(matrix, rows)
            chosen = chosen if chosen.dtype == np.float32 else chosen.astype(np.float32)
        moved: Matrix = to_device(chosen, where)
        return moved
    except MemoryError as error:
        size = 4 * len(rows) * int(matrix.shape[1]) / 1e9
        raise DeviceError(
            f"out of memory: {len(rows):,} vectors need {size:.2g} GB on {where}; free memory or use another device"
        ) from error
