"""What CuPy 14.2 takes, where that is less than NumPy takes: signatures, and arguments that must be arrays.

Signatures are those of CuPy's sources: cupy/_creation, _indexing, _logic, _manipulation, _math, _sorting, _statistics,
linalg/_einsum.py; those of methods of cupy/_core/core.pyx.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_FUNCTIONS = """
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
    concatenate(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
    cumsum(a, axis=None, dtype=None, out=None)
    diff(a, n=1, axis=-1, prepend=None, append=None)
    dot(a, b, out=None)
    einsum(subscripts, *operands, dtype=None, optimize=False)
    empty(shape, dtype=float, order='C')
    empty_like(prototype, dtype=None, order='K', subok=None, shape=None)
    fill_diagonal(a, val, wrap=False)
    flatnonzero(a)
    full(shape, fill_value, dtype=None, order='C')
    full_like(a, fill_value, dtype=None, order='K', subok=None, shape=None)
    hstack(tup, *, dtype=None, casting='same_kind')
    isin(element, test_elements, assume_unique=False, invert=False)
    isneginf(x, out=None)
    lexsort(keys)
    linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0)
    max(a, axis=None, out=None, keepdims=False)
    mean(a, axis=None, dtype=None, out=None, keepdims=False)
    median(a, axis=None, out=None, overwrite_input=False, keepdims=False)
    min(a, axis=None, out=None, keepdims=False)
    nonzero(a)
    ones(shape, dtype=float, order='C')
    ones_like(a, dtype=None, order='K', subok=None, shape=None)
    outer(a, b, out=None)
    partition(a, kth, axis=-1)
    prod(a, axis=None, dtype=None, out=None, keepdims=False)
    ravel(a, order='C')
    repeat(a, repeats, axis=None)
    reshape(a, newshape, order='C', *, copy=None)
    round(a, decimals=0, out=None)
    searchsorted(a, v, side='left', sorter=None)
    sort(a, axis=-1, kind=None)
    stack(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
    sum(a, axis=None, dtype=None, out=None, keepdims=False)
    take(a, indices, axis=None, out=None)
    take_along_axis(a, indices, axis)
    tile(A, reps)
    unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True)
    vstack(tup, *, dtype=None, casting='same_kind')
    where(condition, x=None, y=None)
    zeros(shape, dtype=float, order='C')
    zeros_like(a, dtype=None, order='K', subok=None, shape=None)
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
    squeeze(axis=None)
    sum(axis=None, dtype=None, out=None, keepdims=False)
    take(indices, axis=None, out=None)
"""
MAKING = {"arange", "empty", "full", "linspace", "ones", "zeros"}  # these take no array first
JOINING = {"concatenate", "hstack", "stack", "vstack"}
WAITING = {"bincount", "flatnonzero", "isin", "nonzero", "unique", "where"}  # their results have sizes that are data
_SCATTERED = ("int32", "uint32", "uint64", "float32", "float64")  # what atomicMin and atomicMax are used for
SCATTERS = {"add": (*_SCATTERED, "float16"), "maximum": _SCATTERED, "minimum": _SCATTERED}


def _binders(text: str) -> dict[str, Callable[..., None]]:
    lines = [line.strip().partition("(") for line in text.strip().splitlines()]
    return {name: eval(f"lambda {rest[:-1]}: None") for name, _, rest in lines}


BIND, BIND_METHOD = _binders(_FUNCTIONS), _binders(_METHODS)


def check_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_array: Callable[[Any], bool]) -> None:
    """Raise as CuPy would, before NumPy is asked."""
    function = getattr(np, name)
    if isinstance(function, np.ufunc):
        _check_ufunc(name, function.nin, args, kwargs, is_array)
        return
    if name in BIND:
        BIND[name](*args, **kwargs)
    first = args[1] if name == "einsum" else args[0] if args else next(iter(kwargs.values()))
    if name in JOINING:
        parts = list(first)
        if not parts or not all(map(is_array, parts)):
            raise TypeError(f"Only cupy arrays can be concatenated: {name} of {[type(part) for part in parts]}")
    elif name not in MAKING and not is_array(first):
        raise TypeError(f"{name} takes an array of the device first, found {type(first)}")
    for shape in [kwargs.get("shape"), args[0] if name in MAKING and args else None, *args[1:2]]:
        if name in {*MAKING, "broadcast_to", "reshape"}:
            check_shape(shape, is_array)
    check_values(name, args, kwargs)
    if name == "searchsorted" and not is_array(args[1]) and not isinstance(args[1], int | float):
        raise NotImplementedError("Only python scalars or ndarrays are supported for v")  # _sorting/search.py
    if name == "lexsort" and first.ndim != 2:  # _sorting/sort.py: ranks above are refused, and one key sorts nothing
        raise NotImplementedError("keys of lexsort must be one array (keys, n)")


def check_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], array: np.ndarray) -> None:
    """The same for a method."""
    if name in BIND_METHOD:
        BIND_METHOD[name](*args, **kwargs)
    check_values(name, args, kwargs)
    if name in ("sort", "partition") and not array.flags.c_contiguous:  # _core/_routines_sorting.pyx
        raise NotImplementedError("Sorting non-contiguous array is not supported.")


def check_values(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Arguments that exist and take less."""
    kind = kwargs.get("kind")
    if name in ("sort", "argsort") and kind not in (None, "stable"):  # _core/core.pyx: _check_kind_sort
        raise ValueError("kind can only be None or 'stable'")
    if name == "unique" and kwargs.get("axis") is not None:  # _manipulation/add_remove.py
        raise NotImplementedError("unique along an axis is a loop in Python that waits for the device in each step")


def check_shape(shape: Any, is_array: Callable[[Any], bool]) -> None:
    """CuPy's arrays have no ``__index__``."""
    for part in shape if isinstance(shape, tuple | list) else (shape,):
        if is_array(part):
            raise TypeError("an array of the device cannot be interpreted as an integer")


def _check_ufunc(
    name: str, nin: int, args: tuple[Any, ...], kwargs: dict[str, Any], is_array: Callable[[Any], bool]
) -> None:
    # _core/_kernel.pyx: ufunc.__call__ and _preprocess_args.
    wrong = set(kwargs) - {"out", "dtype", "casting"}
    if wrong:
        raise TypeError(f"{name}: Wrong arguments {sorted(wrong)}")
    for value in args[:nin]:
        if not is_array(value) and not np.isscalar(value):
            raise TypeError(f"{name}: Unsupported type {type(value)}")


def check_scatter(name: str, dtype: np.dtype[Any]) -> None:
    """``ufunc.at`` (_core/_kernel.pyx) and what its atomic operations take (_core/_routines_indexing.pyx)."""
    if name not in SCATTERS:
        raise NotImplementedError(f"`cupy_{name}.at` is not supported yet")
    if dtype.name not in SCATTERS[name]:
        raise TypeError(f"{name}.at only supports {', '.join(SCATTERS[name])}, not {dtype.name}")


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
