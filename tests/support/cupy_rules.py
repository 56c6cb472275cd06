"""Signatures of CuPy 14.2, and arguments that NumPy accepts and CuPy rejects.

Sources: cupy/_creation, _indexing, _logic, _manipulation, _math, _sorting, _statistics, linalg, and the methods of
cupy/_core/core.pyx.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np


def _signatures(text: str) -> dict[str, inspect.Signature]:
    """Return the signatures of lines such as ``sort(a, axis=-1, kind=None)``, by name."""
    lines = (line.strip().rstrip(")").partition("(") for line in text.strip().splitlines())
    return {name: inspect.signature(eval(f"lambda {parameters}: None")) for name, _, parameters in lines}


# The functions that are not ufuncs.
FUNCTIONS = _signatures("""
    all(a, axis=None, out=None, keepdims=False)
    any(a, axis=None, out=None, keepdims=False)
    arange(start, stop=None, step=1, dtype=None)
    argmax(a, axis=None, dtype=None, out=None, keepdims=False)
    argmin(a, axis=None, dtype=None, out=None, keepdims=False)
    argpartition(a, kth, axis=-1)
    argsort(a, axis=-1, kind=None)
    array_equal(a1, a2, equal_nan=False)
    bincount(x, weights=None, minlength=None)
    broadcast_to(array, shape)
    clip(a, a_min, a_max, out=None)
    concatenate(tup, axis=0, out=None, *, dtype=None, casting="same_kind")
    cumsum(a, axis=None, dtype=None, out=None)
    diff(a, n=1, axis=-1, prepend=None, append=None)
    dot(a, b, out=None)
    empty(shape, dtype=float, order="C")
    empty_like(prototype, dtype=None, order="K", subok=None, shape=None)
    fill_diagonal(a, val, wrap=False)
    flatnonzero(a)
    full(shape, fill_value, dtype=None, order="C")
    full_like(a, fill_value, dtype=None, order="K", subok=None, shape=None)
    isin(element, test_elements, assume_unique=False, invert=False)
    isneginf(x, out=None)
    max(a, axis=None, out=None, keepdims=False)
    mean(a, axis=None, dtype=None, out=None, keepdims=False)
    median(a, axis=None, out=None, overwrite_input=False, keepdims=False)
    min(a, axis=None, out=None, keepdims=False)
    nonzero(a)
    ones(shape, dtype=float, order="C")
    ones_like(a, dtype=None, order="K", subok=None, shape=None)
    outer(a, b, out=None)
    partition(a, kth, axis=-1)
    prod(a, axis=None, dtype=None, out=None, keepdims=False)
    ravel(a, order="C")
    repeat(a, repeats, axis=None)
    reshape(a, newshape, order="C", *, copy=None)
    round(a, decimals=0, out=None)
    searchsorted(a, v, side="left", sorter=None)
    sort(a, axis=-1, kind=None)
    stack(tup, axis=0, out=None, *, dtype=None, casting="same_kind")
    sum(a, axis=None, dtype=None, out=None, keepdims=False)
    take(a, indices, axis=None, out=None)
    take_along_axis(a, indices, axis)
    tile(A, reps)
    unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True)
    where(condition, x=None, y=None)
    zeros(shape, dtype=float, order="C")
    zeros_like(a, dtype=None, order="K", subok=None, shape=None)
""")
METHODS = _signatures("""
    all(axis=None, out=None, keepdims=False)
    any(axis=None, out=None, keepdims=False)
    argmax(axis=None, out=None, dtype=None, keepdims=False)
    argmin(axis=None, out=None, dtype=None, keepdims=False)
    argpartition(kth, axis=-1)
    argsort(axis=-1, kind=None)
    astype(dtype, order="K", casting=None, subok=None, copy=True)
    clip(min=None, max=None, out=None)
    copy(order="C")
    cumsum(axis=None, dtype=None, out=None)
    diagonal(offset=0, axis1=0, axis2=1)
    dot(b, out=None)
    flatten(order="C")
    max(axis=None, out=None, keepdims=False)
    mean(axis=None, dtype=None, out=None, keepdims=False)
    min(axis=None, out=None, keepdims=False)
    nonzero()
    partition(kth, axis=-1)
    prod(axis=None, dtype=None, out=None, keepdims=None)
    ravel(order="C")
    repeat(repeats, axis=None)
    reshape(*shape, order="C", copy=None)
    round(decimals=0, out=None)
    searchsorted(v, side="left", sorter=None)
    sort(axis=-1, kind=None)
    std(axis=None, dtype=None, out=None, ddof=0, keepdims=False)
    sum(axis=None, dtype=None, out=None, keepdims=False)
    take(indices, axis=None, out=None)
    transpose(*axes)
    var(axis=None, dtype=None, out=None, ddof=0, keepdims=False)
    view(dtype=None, type=None)
""")
DTYPES = "?bBhHiIlLqQefdFD"  # _core/_dtype.pyx: the types of arrays
MAKING = {"arange", "empty", "full", "ones", "zeros"}  # functions whose first argument is not an array
WAITING = {
    "bincount",
    "flatnonzero",
    "isin",
    "nonzero",
    "unique",
    "where",
}  # functions whose result has a size that depends on data
# The types for atomicMin and atomicMax in every release of CuPy 14; 14.2 has int64 as well.
_SCATTERED = ("int32", "uint32", "uint64", "float32", "float64")
_SCATTERS = {"add": (*_SCATTERED, "float16"), "maximum": _SCATTERED, "minimum": _SCATTERED}


def check_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], kind: type) -> None:
    """Raise the error that CuPy would raise for a call of a function."""
    function = getattr(np, name)
    if isinstance(function, np.ufunc):  # _core/_kernel.pyx: ufunc.__call__ and _preprocess_args
        if wrong := set(kwargs) - {"out", "dtype", "casting"}:
            raise TypeError(f"{name}: Wrong arguments {sorted(wrong)}")
        if any(not isinstance(value, kind) and not np.isscalar(value) for value in args[: function.nin]):
            raise TypeError(f"{name}: Unsupported type in {args}")
        return
    arguments = FUNCTIONS[name].bind(*args, **kwargs).arguments
    _check_values(name, arguments)
    if name in MAKING:
        return
    first = next(iter(arguments.values()))
    parts = list(first) if name in ("concatenate", "stack") else [first]
    if not parts or not all(isinstance(part, kind) for part in parts):
        raise TypeError(f"{name}: the first argument must be device arrays, found {[type(part) for part in parts]}")
    if name == "searchsorted" and not isinstance(arguments["v"], kind | int | float):
        raise NotImplementedError("Only python scalars or ndarrays are supported for v")  # _sorting/search.py


def check_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], array: np.ndarray) -> None:
    """Raise the error that CuPy would raise for a call of a method."""
    if name in METHODS:
        _check_values(name, METHODS[name].bind(*args, **kwargs).arguments)
    if name in ("sort", "partition") and not array.flags.c_contiguous:  # _core/_routines_sorting.pyx
        raise NotImplementedError("Sorting non-contiguous array is not supported.")


def _check_values(name: str, arguments: dict[str, Any]) -> None:
    if arguments.get("kind") not in (None, "stable"):  # _core/core.pyx: _check_kind_sort
        raise ValueError("kind can only be None or 'stable'")
    if "kth" in arguments and not isinstance(arguments["kth"], int | tuple | list):  # _core/_routines_sorting.pyx
        raise TypeError(f"{name}: {type(arguments['kth'])} object is not iterable")


def check_scatter(name: str, dtype: np.dtype[Any]) -> None:
    """Raise for types that ``ufunc.at`` rejects (_core/_kernel.pyx, _core/_routines_indexing.pyx)."""
    if dtype.name not in _SCATTERS.get(name, ()):
        raise TypeError(f"cupy_{name}.at does not support {dtype.name}")


def check_written(array: np.ndarray, key: Any, values: Any) -> None:
    """Raise if an index occurs twice with different values, which is undefined (_core/core.pyx, __setitem__)."""
    parts = key if isinstance(key, tuple) else (key,)
    numbers = [part for part in parts if isinstance(part, np.ndarray | list) and np.asarray(part).dtype.kind in "iu"]
    if not numbers or not isinstance(values, np.ndarray) or not values.ndim:
        return
    places = np.arange(array.size).reshape(array.shape)[key]
    written = np.broadcast_to(values, places.shape).ravel()
    order = np.argsort(places.ravel(), kind="stable")
    places, written = places.ravel()[order], written[order]
    if (written[1:] != written[:-1])[places[1:] == places[:-1]].any():
        raise RuntimeError("an index occurs twice with different values: the result is undefined")


def check_overlap(array: np.ndarray, key: Any, values: Any) -> None:
    """Raise if an array is copied to another part of its own memory, in which order is undefined (_core/core.pyx)."""
    if not isinstance(values, np.ndarray) or not np.may_share_memory(array, values):
        return
    target = array[key]
    is_same = (
        target.shape == values.shape and target.strides == values.strides and target.ctypes.data == (values.ctypes.data)
    )
    if not is_same and np.shares_memory(target, values):
        raise RuntimeError("an array is copied to an overlapping part of itself: the result is undefined")
