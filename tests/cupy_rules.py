"""What CuPy 14.2 takes, where that is less than NumPy takes: signatures, and arguments that must be arrays.

Signatures are those of CuPy's sources: cupy/_creation, _indexing, _logic, _manipulation, _math, _sorting, _statistics,
linalg/_einsum.py; those of methods of cupy/_core/core.pyx.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_FUNCTIONS = """
    arange(start, stop=None, step=1, dtype=None)
    argmin(a, axis=None, dtype=None, out=None, keepdims=False)
    argpartition(a, kth, axis=-1)
    bincount(x, weights=None, minlength=None)
    broadcast_to(array, shape)
    concatenate(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
    cumsum(a, axis=None, dtype=None, out=None)
    diff(a, n=1, axis=-1, prepend=None, append=None)
    empty(shape, dtype=float, order='C')
    fill_diagonal(a, val, wrap=False)
    flatnonzero(a)
    full(shape, fill_value, dtype=None, order='C')
    isneginf(x, out=None)
    ones(shape, dtype=float, order='C')
    partition(a, kth, axis=-1)
    repeat(a, repeats, axis=None)
    searchsorted(a, v, side='left', sorter=None)
    sort(a, axis=-1, kind=None)
    stack(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
    take(a, indices, axis=None, out=None)
    take_along_axis(a, indices, axis)
    where(condition, x=None, y=None)
    zeros(shape, dtype=float, order='C')
"""
_METHODS = """
    all(axis=None, out=None, keepdims=False)
    any(axis=None, out=None, keepdims=False)
    argmax(axis=None, out=None, dtype=None, keepdims=False)
    argmin(axis=None, out=None, dtype=None, keepdims=False)
    argpartition(kth, axis=-1)
    argsort(axis=-1, kind=None)
    astype(dtype, order='K', casting=None, subok=None, copy=True)
    clip(min=None, max=None, out=None)
    copy(order='C')
    cumsum(axis=None, dtype=None, out=None)
    max(axis=None, out=None, keepdims=False)
    mean(axis=None, dtype=None, out=None, keepdims=False)
    min(axis=None, out=None, keepdims=False)
    nonzero()
    partition(kth, axis=-1)
    prod(axis=None, dtype=None, out=None, keepdims=None)
    repeat(repeats, axis=None)
    round(decimals=0, out=None)
    searchsorted(v, side='left', sorter=None)
    sort(axis=-1, kind=None)
    sum(axis=None, dtype=None, out=None, keepdims=False)
    take(indices, axis=None, out=None)
"""
MAKING = {"arange", "empty", "full", "ones", "zeros"}  # these take no array first
WAITING = {"bincount", "flatnonzero", "isin", "nonzero", "unique", "where"}  # their results have sizes that are data
_SCATTERED = ("int32", "uint32", "uint64", "float32", "float64")  # what atomicMin and atomicMax are used for
_SCATTERS = {"add": (*_SCATTERED, "float16"), "maximum": _SCATTERED, "minimum": _SCATTERED}


def _binders(text: str) -> dict[str, Callable[..., None]]:
    lines = [line.strip().partition("(") for line in text.strip().splitlines()]
    return {name: eval(f"lambda {rest[:-1]}: None") for name, _, rest in lines}


BIND, BIND_METHOD = _binders(_FUNCTIONS), _binders(_METHODS)


def check_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_array: Callable[[Any], bool]) -> None:
    """Raise as CuPy would, before NumPy is asked."""
    function = getattr(np, name)
    if isinstance(function, np.ufunc):  # _core/_kernel.pyx: ufunc.__call__ and _preprocess_args
        if wrong := set(kwargs) - {"out", "dtype", "casting"}:
            raise TypeError(f"{name}: Wrong arguments {sorted(wrong)}")
        if any(not is_array(value) and not np.isscalar(value) for value in args[: function.nin]):
            raise TypeError(f"{name}: Unsupported type in {args}")
        return
    if name in BIND:
        BIND[name](*args, **kwargs)
    if name in MAKING:
        return
    first = args[0] if args else next(iter(kwargs.values()))
    parts = list(first) if name in ("concatenate", "stack") else [first]
    if not parts or not all(map(is_array, parts)):
        raise TypeError(f"{name} takes arrays of the device first, found {[type(part) for part in parts]}")
    check_kind(kwargs)
    if name == "searchsorted" and not is_array(args[1]) and not isinstance(args[1], int | float):
        raise NotImplementedError("Only python scalars or ndarrays are supported for v")  # _sorting/search.py


def check_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], array: np.ndarray) -> None:
    """The same for a method."""
    if name in BIND_METHOD:
        BIND_METHOD[name](*args, **kwargs)
    check_kind(kwargs)
    if name in ("sort", "partition") and not array.flags.c_contiguous:  # _core/_routines_sorting.pyx
        raise NotImplementedError("Sorting non-contiguous array is not supported.")


def check_kind(kwargs: dict[str, Any]) -> None:
    if kwargs.get("kind") not in (None, "stable"):  # _core/core.pyx: _check_kind_sort
        raise ValueError("kind can only be None or 'stable'")


def check_scatter(name: str, dtype: np.dtype[Any]) -> None:
    """``ufunc.at`` (_core/_kernel.pyx) and what its atomic operations take (_core/_routines_indexing.pyx)."""
    if dtype.name not in _SCATTERS.get(name, ()):
        raise TypeError(f"cupy_{name}.at does not support {dtype.name}")


def check_written(array: np.ndarray, key: Any, values: Any) -> None:
    """Where an index occurs twice with different values, what is stored is undefined (_core/core.pyx, __setitem__)."""
    parts = key if isinstance(key, tuple) else (key,)
    numbers = [part for part in parts if isinstance(part, np.ndarray | list) and np.asarray(part).dtype.kind in "iu"]
    if not numbers or not isinstance(values, np.ndarray) or not values.ndim:
        return
    places = np.arange(array.size).reshape(array.shape)[key]
    written = np.broadcast_to(values, places.shape).ravel()
    order = np.argsort(places.ravel(), kind="stable")
    places, written = places.ravel()[order], written[order]
    if (written[1:] != written[:-1])[places[1:] == places[:-1]].any():
        raise RuntimeError("an index occurs twice with different values: which is stored is undefined")
