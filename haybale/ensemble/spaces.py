"""From vectors to halves: scaling and γ of every space, fitted on the candidate rows.

    exp(-γ |[q;p] - [q';p']|²) = exp(-γ |q - q'|²) · exp(-γ |p - p'|²)

exactly, with any scaling of the features and with a γ for each half. So a kernel matrix over candidate rows is
gathered from two small Gram matrices, over the distinct queries and the distinct passages.

A space holds vectors for queries and for passages: dense (an encoder's) or sparse (TF-IDF rows, never
densified). Several spaces side by side are the product of their kernels.

Vectors may be on a device; sums are float64 there too, and scalings, being one row, are kept in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import Device, device_of, to_device, to_numpy
from haybale.ensemble.half import Half
from haybale.ensemble.placing import matrix_on
from haybale.ensemble.rows import Ints
from haybale.errors import InputError, VectorError
from haybale.machine import fitting, in_tiles
from haybale.vectors import Floats, Matrix, array_namespace, check_like, check_matrix

GammaOfSpace = float | tuple[float, float] | str
Gamma = GammaOfSpace | list[GammaOfSpace]  # a list has one entry a space


@dataclass(frozen=True)
class Scaling:
    """x -> (x - shift) · factor for one half of one space, the root of γ among the factors; sparse: no shift."""

    shift: Floats | None  # (d,)
    factor: Floats  # (d,), or () for one number
    columns: int | None = None  # d of a sparse space

    def __call__(self, vectors: Matrix) -> Matrix:
        """(n, d) scaled, float32, where the vectors are."""
        if sparse.issparse(vectors) != (self.shift is None):
            raise VectorError(f"expected a {'sparse' if self.shift is None else 'dense'} matrix, as in training")
        if self.shift is None:
            return sparse.csr_matrix(vectors.multiply(np.float32(self.factor)))
        where = device_of(vectors)
        with where.current():
            scaled = vectors - to_device(self.shift, where)
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

    >>> described(sparse.identity(3, format="csr")), described(np.eye(2))
    ('3 (sparse)', '2')
    """
    return f"{matrix.shape[1]} (sparse)" if sparse.issparse(matrix) else str(matrix.shape[1])


@dataclass(frozen=True)
class Spaces:
    """The scalings of both halves, one a space, and the γ they contain."""

    query: tuple[Scaling, ...]
    passage: tuple[Scaling, ...]
    gamma: tuple[tuple[float, float], ...]  # (query half, passage half) of each space

    def queries(self, vectors: Sequence[Matrix]) -> Half:
        """The half of queries, from one matrix a space."""
        return _half(self.query, vectors)

    def passages(self, vectors: Sequence[Matrix]) -> Half:
        """The half of passages."""
        return _half(self.passage, vectors)


def _half(scalings: tuple[Scaling, ...], vectors: Sequence[Matrix]) -> Half:
    scaled = [scaling(matrix) for scaling, matrix in zip(scalings, vectors, strict=True)]
    dense = [matrix for matrix in scaled if not sparse.issparse(matrix)]
    wide = [matrix for matrix in scaled if sparse.issparse(matrix)]
    joined = None
    if dense:
        with device_of(dense[0]).current():
            joined = dense[0] if len(dense) == 1 else array_namespace(dense[0]).concatenate(dense, axis=1)
    return Half(joined, sparse.hstack(wide).tocsr() if wide else None)


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
        matrix = matrix if where is None else matrix_on(matrix, where, name)
        width = None if widths is None else widths[i]
        with device_of(matrix).current():
            checked.append(check_matrix(matrix, name, width) if like is None else check_like(matrix, name, like[i]))
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
) -> Spaces:
    """Scalings and γ of every space over candidate rows (n,), whose halves are rows of (m, d) and (n_passages, d).

    ``standardize`` takes z-scores of dense features, statistics over the candidate rows: a vector counts as often
    as rows use it; a constant feature keeps its values, as in scikit-learn's StandardScaler. Without it, dense
    spaces are centred only, which changes no distance and makes float32 distances more exact.

    ``gamma``: ``"scale"`` is scikit-learn's 1 / (n_features · Var X) of each space, X being its columns of all
    candidate rows; a number is both halves'; a pair is (query half, passage half); a list has one a space.
    """
    gammas = gamma if isinstance(gamma, list) else [gamma] * len(queries)
    if len(gammas) != len(queries):
        raise InputError(f"expected a gamma for each of {len(queries)} spaces, found {len(gammas)}")
    scalings: list[tuple[Scaling, Scaling]] = []
    resolved = []
    for of_space, q, p in zip(gammas, queries, passages, strict=True):
        if sparse.issparse(q) != sparse.issparse(p):
            raise InputError("both halves of a space must be dense, or both sparse")
        halves = [_moments(query, q, standardize), _moments(passage, p, standardize)]
        pair = _resolved(of_space, halves)
        resolved.append(pair)
        scalings.append(tuple(half.scaling(value) for half, value in zip(halves, pair, strict=True)))  # type: ignore[arg-type]
    return Spaces(tuple(q for q, _ in scalings), tuple(p for _, p in scalings), tuple(resolved))


@dataclass(frozen=True)
class _Moments:
    """What one half of one space says of itself, each vector as often as rows use it."""

    shift: Floats | None  # (d,)
    factor: Floats  # (d,) or ()
    width: int
    mean: float  # of all values after scaling
    square: float  # mean square of all values after scaling

    def scaling(self, gamma: float) -> Scaling:
        columns = self.width if self.shift is None else None
        return Scaling(self.shift, np.asarray(self.factor * np.sqrt(gamma), dtype=np.float32), columns)


def _moments(used: Ints, vectors: Matrix, standardize: bool) -> _Moments:
    numbers, counts = np.unique(used, return_counts=True)
    share = counts / counts.sum()
    width = int(vectors.shape[1])
    if width == 0:  # a half without features: the same for all rows
        return _Moments(np.zeros(0, dtype=np.float32), np.ones((), dtype=np.float32), 0, 0.0, 0.0)
    if sparse.issparse(vectors):
        if standardize:
            raise InputError("standardize centres features: a sparse space would no longer be sparse")
        chosen = vectors[numbers]
        mean = share @ np.asarray(chosen.sum(axis=1)).ravel() / width
        square = share @ np.asarray(chosen.multiply(chosen).sum(axis=1)).ravel() / width
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
    if where.is_cpu:
        chosen = vectors[numbers].astype(np.float64)
        mean = share @ chosen
        chosen -= mean
        return mean, np.sqrt(share @ np.square(chosen, out=chosen))
    xp = where.xp
    with where.current():
        size = fitting(where.half_of_memory() / 4, 24 * width)

        def summed(part: slice, mean: Any = None) -> Any:
            chosen = vectors[to_device(numbers[part], where)].astype(np.float64)
            if mean is not None:
                chosen -= mean
                chosen *= chosen
            return to_device(share[part], where) @ chosen

        total = xp.zeros(width)
        for part in in_tiles(len(numbers), size, summed, what="vectors"):
            total += part
        squares = xp.zeros(width)
        for part in in_tiles(len(numbers), size, lambda rows: summed(rows, total), what="vectors"):
            squares += part
        return to_numpy(total), np.sqrt(to_numpy(squares))


def _constant(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(d,) features that do not vary but by rounding, which a z-score must not blow up."""
    return np.asarray(deviation <= 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny))


def _resolved(gamma: GammaOfSpace, halves: list[_Moments]) -> tuple[float, float]:
    if isinstance(gamma, str):
        if gamma != "scale":
            raise InputError(f"gamma must be 'scale', a number or a pair of numbers, found {gamma!r}")
        widths = np.array([half.width for half in halves])
        share = widths / widths.sum()
        mean = float(share @ [half.mean for half in halves])
        variance = float(share @ [half.square for half in halves]) - mean**2
        value = 1 / (float(widths.sum()) * variance) if variance > 0 else 1.0
        return value, value
    pair: tuple[Any, ...] = gamma if isinstance(gamma, tuple) else (gamma, gamma)
    if len(pair) != 2 or not all(isinstance(value, (int, float, np.floating)) and value > 0 for value in pair):
        raise InputError(f"gamma must be positive, found {gamma}")
    return float(pair[0]), float(pair[1])


def fit_features(values: Floats, gamma: float | str) -> Scaling:
    """Scaling of features that belong to rows, (n, f), to z-scores, with the root of γ: ``"scale"`` is 1 / f then."""
    mean, deviation = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
    value = 1 / values.shape[1] if gamma == "scale" else float(gamma)
    factor = np.sqrt(value) / np.where(_constant(mean, deviation), 1, deviation)
    return Scaling(mean.astype(np.float32), factor.astype(np.float32))
