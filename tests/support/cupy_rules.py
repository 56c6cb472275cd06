"""Keywords and arguments that NumPy accepts and CuPy 14.2 rejects.

Sources: cupy/_creation, _indexing, _logic, _manipulation, _math, _sorting, _statistics, and the methods of
cupy/_core/core.pyx.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_LACKING = {
    "where",
    "initial",
    "like",
    "device",
    "mode",
    "stable",
    "mean",
    "sorted",
    "subok",
}  # keywords that no function of CuPy has
MAKING = {"arange", "empty", "full", "ones", "zeros"}  # functions whose first argument is not an array
WAITING = {
    "bincount",
    "flatnonzero",
    "isin",
    "nonzero",
    "unique",
    "where",
}  # functions whose result has a size that depends on data
_SCATTERED = ("int32", "uint32", "uint64", "float32", "float64")  # the types for atomicMin and atomicMax
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
    check_keywords(name, kwargs)
    if name in MAKING:
        return
    first = args[0] if args else next(iter(kwargs.values()))
    parts = list(first) if name in ("concatenate", "stack") else [first]
    if not parts or not all(isinstance(part, kind) for part in parts):
        raise TypeError(f"{name}: the first argument must be device arrays, found {[type(part) for part in parts]}")
    if name == "searchsorted" and not isinstance(args[1], kind | int | float):
        raise NotImplementedError("Only python scalars or ndarrays are supported for v")  # _sorting/search.py


def check_method(name: str, kwargs: dict[str, Any], array: np.ndarray) -> None:
    """Raise the error that CuPy would raise for a call of a method."""
    check_keywords(name, kwargs)
    if name in ("sort", "partition") and not array.flags.c_contiguous:  # _core/_routines_sorting.pyx
        raise NotImplementedError("Sorting non-contiguous array is not supported.")


def check_keywords(name: str, kwargs: dict[str, Any]) -> None:
    if wrong := set(kwargs) & (_LACKING | ({"order"} if name.endswith(("sort", "partition")) else set())):
        raise TypeError(f"{name}: unexpected keywords {sorted(wrong)}")
    if kwargs.get("kind") not in (None, "stable"):  # _core/core.pyx: _check_kind_sort
        raise ValueError("kind can only be None or 'stable'")


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
