"""Check what methods return that users may have written: those of their own encoders, rankers, readers and rules.

A wrong type is an :class:`~haybale.InputError` that names the class and the method, instead of an error far from both.
"""

from __future__ import annotations

import json
import math
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from haybale.device import is_sparse
from haybale.errors import InputError, VectorError

T = TypeVar("T")

_CONVERT = "convert it with numpy.asarray(…, dtype=numpy.float32)"
_ROWS_AT_ONCE = 8192  # rows of vectors that are checked at once


def method_of(owner: Any, method: str) -> str:
    """Return the class of an object with the name of a method, for messages."""
    return f"{type(owner).__name__}.{method}"


def returned(value: Any, kind: type[T] | tuple[type[T], ...], method: str, advice: str) -> T:
    """Return a value that ``method`` returned; raise InputError if it is of another type than ``kind``."""
    if isinstance(value, kind):
        return value
    first = kind[0] if isinstance(kind, tuple) else kind
    raise wrong_value(value, method, f"an instance of {first.__name__}", advice)


def returned_json(value: Any, method: str) -> dict[str, Any]:
    """Return a mapping that ``method`` returned; raise InputError unless JSON can hold it."""
    advice = "return a dict of numbers, strings, lists and dicts"
    mapping: dict[str, Any] = returned(value, dict, method, advice)
    try:
        json.dumps(mapping)
    except (TypeError, ValueError) as error:
        raise InputError(f"{method} must return plain values for JSON, found others ({error}); {advice}") from None
    return mapping


def returned_number(value: Any, method: str) -> float:
    """Return a finite number that ``method`` returned as float; raise InputError for anything else."""
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    shown = str(value) if isinstance(value, Real) else _described(value)
    raise InputError(f"{method} must return a finite number, found {shown}; return a float")


def returned_numbers(values: Any, shape: tuple[int, ...], method: str) -> Any:
    """Return an array of finite real numbers that ``method`` returned; InputError for another type or shape."""
    _check_array(values, method, f"an array of shape {shape}")
    if tuple(values.shape) != shape:
        raise wrong_value(values, method, f"an array of shape {shape}", "return one value for each", VectorError)
    _check_finite(values, method)
    return values


def returned_vectors(vectors: Any, n: int, method: str, advice: str = "return one row for each text") -> Any:
    """Return vectors (n, d) that ``method`` returned; sparse ones become CSR matrices.

    Raise InputError for lists and other objects that are no arrays of real numbers, and its subclass
    :class:`~haybale.VectorError` for another shape, and for NaN and infinity.
    """
    _check_array(vectors, method, "a float32 array or CSR matrix (n, d)")
    if len(vectors.shape) != 2 or vectors.shape[0] != n:
        raise wrong_value(vectors, method, f"vectors of shape ({n}, d)", advice, VectorError)
    if is_sparse(vectors) and hasattr(vectors, "tocsr"):
        vectors = vectors.tocsr()
        _check_finite(vectors.data, method)
    else:
        _check_finite(vectors, method)
    return vectors


def wrong_value(value: Any, method: str, expected: str, advice: str, kind: type[InputError] = InputError) -> InputError:
    """Return the error, of a ``kind``, that a method returned something else than expected.

    >>> print(wrong_value([1.0], "Mine.encode", "an array (n, d)", "convert it"))
    Mine.encode must return an array (n, d), found list; convert it
    """
    return kind(f"{method} must return {expected}, found {_described(value)}; {advice}")


def _described(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{type(value).__name__} of shape {tuple(shape)} and type {dtype}"
    return "None" if value is None else type(value).__name__


def _check_array(values: Any, method: str, expected: str) -> None:
    is_array = isinstance(getattr(values, "shape", None), tuple) and hasattr(values, "dtype")
    if not is_array or getattr(values.dtype, "kind", "f") not in "fiub":  # types of torch have no kind
        raise wrong_value(values, method, expected, _CONVERT)


def _check_finite(values: Any, method: str) -> None:
    """Raise VectorError for NaN or infinity in an array of NumPy; others are checked where they are used."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return
    for start in range(0, len(values), _ROWS_AT_ONCE):
        finite = np.isfinite(values[start : start + _ROWS_AT_ONCE])
        if not finite.all():
            row = start + int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
            raise VectorError(f"{method} must return finite numbers, but row {row} has NaN or infinity; correct it")
