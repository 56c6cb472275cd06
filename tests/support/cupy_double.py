"""A double of CuPy that computes with NumPy, for tests on machines without a GPU.

Its arrays are not NumPy arrays: mixing the two raises an error, as does an implicit conversion, and every reduction
returns a 0-d array. It has only the functions that haybale uses, with the parameters of CuPy (``cupy_rules``). An
array belongs to the device that was current when it was created, and can be used only while this device is current.
``ndarray.waits`` counts how often the host waited for the device. The double does not simulate speed, memory or
concurrent kernels.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from support.compiled_kernels import note
from support.cupy_rules import (
    DTYPES,
    MAKING,
    WAITING,
    check_function,
    check_method,
    check_overlap,
    check_scatter,
    check_written,
)
from support.cupy_runtime import CUDARuntimeError, Device, OutOfMemoryError, Pool, properties


def _cuda_answers() -> bool:
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except (ImportError, RuntimeError):
        return False


HAS_CUDA = _cuda_answers()


def _words(text: str) -> list[str]:
    return text.split()


# Functions of CuPy 14 that haybale may use.
FUNCTIONS = _words("""
    abs add all any arange argmax argmin argpartition argsort array_equal asarray ascontiguousarray bincount
    broadcast_to ceil clip concatenate cumsum diff divide divmod dot empty empty_like equal exp fill_diagonal
    flatnonzero floor frexp full full_like isfinite isin isneginf isnan ldexp log logical_and logical_not logical_or
    matmul maximum max mean median min minimum mod multiply negative nonzero ones ones_like outer partition prod
    ravel repeat reshape round searchsorted sign sort sqrt square stack subtract sum take take_along_axis tile trunc
    unique where zeros zeros_like
""")
VALUES = _words("bool_ float16 float32 float64 inf int8 int16 int32 int64 nan newaxis pi uint8 uint16 uint32 uint64")
CREATING = {"asarray", "array", "ascontiguousarray"}


def _inside(value: Any) -> Any:
    """Convert arguments from arrays of the double to NumPy arrays."""
    if isinstance(value, ndarray):
        if value._number != Device.current:  # _core/_kernel.pyx: _preprocess_args
            raise ValueError(f"Array device must be same as the current device: {value._number}, not {Device.current}")
        return value._array
    if isinstance(value, np.ndarray):  # _core/_scalar.pyx: 0-d arrays of NumPy are no scalars
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(_inside(item) for item in value)
    if isinstance(value, dict):
        return {key: _inside(item) for key, item in value.items()}
    return value


def _outside(value: Any) -> Any:
    """Convert results from NumPy arrays to arrays of the double."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    return tuple(map(_outside, value)) if isinstance(value, tuple) else value


class ndarray:
    """An array on a simulated device."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    waits = 0

    def __init__(self, array: np.ndarray) -> None:
        if array.dtype.char not in DTYPES:
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self._array = array
        self._number = Device.current

    shape = property(lambda self: self._array.shape)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    dtype = property(lambda self: self._array.dtype)
    nbytes = property(lambda self: self._array.nbytes)
    itemsize = property(lambda self: self._array.itemsize)
    strides = property(lambda self: self._array.strides)
    flags = property(lambda self: self._array.flags)
    device = property(lambda self: Device(self._number))
    T = property(lambda self: _outside(self._array.T))
    __cuda_array_interface__ = property(lambda self: {})
    data = property(lambda self: types.SimpleNamespace(ptr=self._array.ctypes.data))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_function__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a NumPy function was given an array of the device")

    def _waited(self) -> np.ndarray:
        ndarray.waits += 1
        return self._array

    def get(self) -> np.ndarray:
        return self._waited().copy()

    def item(self) -> Any:
        return self._waited().item()

    def tolist(self) -> Any:
        return self._waited().tolist()

    def __len__(self) -> int:
        return len(self._array)

    # There is no __index__, because CuPy arrays cannot be lengths or ends of slices.
    def __bool__(self) -> bool:
        return bool(self._waited())

    def __int__(self) -> int:
        return int(self._waited())

    def __float__(self) -> float:
        return float(self._waited())

    def __iter__(self) -> Iterator[Any]:
        return (_outside(np.asarray(item)) for item in self._array)

    def __getitem__(self, key: Any) -> Any:
        if all(part is None or isinstance(part, slice | int) for part in (key if isinstance(key, tuple) else (key,))):
            view = ndarray(np.asarray(self._array[key]))  # views run no kernel, so any device may be current
            view._number = self._number
            return view
        _count_masks(key)
        inner = _inside(key)
        note(
            "take",
            self._array,
            *(part for part in (inner if isinstance(inner, tuple) else (inner,)) if part is not None),
        )
        return _outside(_inside(self)[inner])

    def __setitem__(self, key: Any, value: Any) -> None:
        _count_masks(key)
        if isinstance(value, list):  # CuPy accepts scalars and arrays only
            raise TypeError("Unsupported type <class 'list'>")
        inner, values = _inside(key), _inside(value)
        check_written(self._array, inner, values)
        parts = inner if isinstance(inner, tuple) else (inner,)
        gathered = [part for part in parts if isinstance(part, np.ndarray)]
        note("scatter" if gathered else "copy", self._array[inner] if not gathered else self._array, *gathered, values)
        check_overlap(self._array, inner, values)
        _inside(self)[inner] = values


def _count_masks(key: Any) -> None:
    for part in key if isinstance(key, tuple) else (key,):
        ndarray.waits += isinstance(part, ndarray) and part.dtype == bool


def _delegate(name: str) -> Any:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if args and hasattr(
            args[0], "indptr"
        ):  # _core/core.pyx, _should_use_rop: the sparse matrix computes the result
            return NotImplemented
        check_method(name, args, kwargs, self._array)
        ndarray.waits += name in WAITING
        given = args if name == "reshape" else _inside(args)  # CuPy arrays cannot be lengths
        result = getattr(_inside(self), name)(*given, **_inside(kwargs))
        note(name, self._array, *_inside(args), result)
        return self if result is self._array else _outside(result)

    return method


_BINARY = _words("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
for _name in (f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")):
    if _name != "__imatmul__":
        setattr(ndarray, _name, _delegate(_name))
for _name in _words("lt le gt ge eq ne neg pos invert abs divmod rdivmod"):
    setattr(ndarray, f"__{_name}__", _delegate(f"__{_name}__"))
_METHODS = _words("""
    all any argmax argmin argpartition argsort astype clip copy cumsum diagonal dot flatten max mean min nonzero
    partition prod ravel repeat reshape round searchsorted sort std sum take transpose var view
""")
for _name in _METHODS:
    setattr(ndarray, _name, _delegate(_name))
ndarray.__module__ = "cupy"


class _Function:
    def __init__(self, name: str) -> None:
        self._name, self._function = name, getattr(np, name)
        if isinstance(self._function, np.ufunc):
            self.at = self._at

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_function(self._name, args, kwargs, ndarray)
        # where waits if it has only a condition.
        ndarray.waits += self._name in WAITING and (self._name != "where" or len(args) == 1)
        out = kwargs.get("out")
        # CuPy arrays cannot be lengths.
        shape = 0 if self._name in MAKING else 1 if self._name == "broadcast_to" else -1
        given = [value if place == shape else _inside(value) for place, value in enumerate(args)]
        result = self._function(*given, **_inside(kwargs))
        parts = given[0] if isinstance(given[0], list | tuple) else given
        note(self._name, *parts, *_inside([item for key, item in kwargs.items() if key == "out"]), result)
        return result if result is None else out if isinstance(out, ndarray) else _outside(result)

    def _at(self, target: ndarray, where: Any, values: Any = None) -> None:
        if not (isinstance(where, ndarray) and where.dtype == bool):
            check_scatter(self._function.__name__, target.dtype)
        self._function.at(_inside(target), _inside(where), _inside(values))
        note(f"{self._function.__name__}.at", _inside(target), _inside(where), _inside(values))


def _create(name: str) -> Any:
    def create(value: Any, *args: Any, **kwargs: Any) -> ndarray:
        if isinstance(value, list | tuple):
            value = type(value)(_inside(item) for item in value)
        given = (
            value._array if isinstance(value, ndarray) else np.array(value)
        )  # a copy, because device memory is separate
        found = getattr(np, name)(given, *args, **{key: item for key, item in kwargs.items() if key != "blocking"})
        here = isinstance(value, ndarray) and value._number == Device.current
        if isinstance(value, ndarray) and found is not given:
            note("copy", found, given)
        return value if here and found is given else ndarray(found if here else found.copy())

    return create


def _generator(seed: int) -> Any:
    own = np.random.default_rng(seed)
    return types.SimpleNamespace(
        standard_normal=lambda size=None, dtype=np.float64: ndarray(own.standard_normal(size, dtype=dtype))
    )


def module(devices: int = 1) -> types.ModuleType:
    """Return the module that replaces ``cupy``."""

    def count() -> int:
        if not devices:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return devices

    from support import cublas_double
    from support.cupy_kernels import RawModule

    double = types.ModuleType("cupy")
    for name in FUNCTIONS:
        setattr(double, name, _create(name) if name in CREATING else _Function(name))
    for name in VALUES:
        setattr(double, name, getattr(np, name))
    double.array = _create("array")
    double.ndarray = ndarray
    double.asnumpy = lambda value: value.get() if isinstance(value, ndarray) else np.asarray(value)
    double.get_default_memory_pool = Pool
    double.RawModule = RawModule
    double.random = types.SimpleNamespace(default_rng=_generator)
    Device.current, Device.count = 0, devices
    runtime = types.SimpleNamespace(
        getDeviceCount=count,
        getDevice=lambda: Device.current,
        getDeviceProperties=properties,
        CUDARuntimeError=CUDARuntimeError,
        CUDA_R_32F=cublas_double.CUDA_R_32F,
    )
    memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    device = types.SimpleNamespace(get_cublas_handle=lambda: 1)
    double.cuda = types.SimpleNamespace(
        Device=Device, runtime=runtime, memory=memory, device=device, cublas=cublas_double
    )
    double.__version__ = "double"
    return double


@contextmanager
def installed(devices: int = 1) -> Iterator[types.ModuleType]:
    """Replace CuPy by the double within the block."""
    import pytest

    from support.cupyx_double import modules as cupyx_modules

    with pytest.MonkeyPatch.context() as patch:
        double = module(devices)
        patch.setitem(sys.modules, "cupy", double)
        for name, part in cupyx_modules().items():
            patch.setitem(sys.modules, name, part)
        yield double
