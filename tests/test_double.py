"""The double of CuPy refuses what CuPy 14.2 refuses; the file that says so is named at each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cupy_double import CUDARuntimeError, installed

Use = Callable[[Any, Any], Any]  # of the double and of an array (3,) of its, float64

REFUSED: dict[str, tuple[type[Exception], Use]] = {
    # cupy/_core/core.pyx: __array__ and operators
    "conversion to NumPy": (TypeError, lambda xp, a: np.asarray(a)),
    "an operator with a NumPy array": (TypeError, lambda xp, a: a + np.ones(3)),
    "the same reversed": (TypeError, lambda xp, a: np.ones(3) + a),
    "a NumPy array in place": (TypeError, lambda xp, a: operator.iadd(a, np.ones(3))),
    "a NumPy array assigned": (TypeError, lambda xp, a: operator.setitem(a, slice(None), np.ones(3))),
    "a list assigned": (TypeError, lambda xp, a: operator.setitem(a, slice(None), [1, 2, 3])),
    "in-place casting": (TypeError, lambda xp, a: operator.iadd(xp.ones(3, dtype=xp.int64), a)),
    "an array as a length": (TypeError, lambda xp, a: range(a.sum())),
    "an array as an end of a slice": (TypeError, lambda xp, a: a[: xp.asarray(2)]),
    "an array in a shape": (TypeError, lambda xp, a: xp.zeros((2, a.sum().astype(xp.int64)))),
    "an array in a new shape": (TypeError, lambda xp, a: a.reshape(xp.asarray(3), 1)),
    "an array among lengths to broadcast to": (TypeError, lambda xp, a: xp.broadcast_to(a, (xp.asarray(2), 3))),
    # cupy/_core/_kernel.pyx: ufunc.__call__
    "a ufunc of a NumPy array": (TypeError, lambda xp, a: xp.sqrt(np.ones(3))),
    "a ufunc of a list": (TypeError, lambda xp, a: xp.maximum(a, [1, 2, 3])),
    "a ufunc where": (TypeError, lambda xp, a: xp.sqrt(a, where=a > 0)),
    # cupy/_core/_kernel.pyx: ufunc.at; cupy/_core/_routines_indexing.pyx: _scatter_op_single
    "multiply.at": (NotImplementedError, lambda xp, a: xp.multiply.at(a, xp.asarray([0]), 2)),
    "add.at of int64": (TypeError, lambda xp, a: xp.add.at(xp.zeros(3, dtype=xp.int64), xp.asarray([0]), 1)),
    "minimum.at of int64": (TypeError, lambda xp, a: xp.minimum.at(xp.zeros(3, dtype=xp.int64), xp.asarray([0]), 1)),
    "maximum.at of float16": (TypeError, lambda xp, a: xp.maximum.at(a.astype(xp.float16), xp.asarray([0]), 1)),
    "add.at of a NumPy array": (TypeError, lambda xp, a: xp.add.at(a, xp.asarray([0]), np.ones(1))),
    # cupy/_statistics/order.py, cupy/_math/sumprod.py
    "a maximum with an initial value": (TypeError, lambda xp, a: a.max(initial=0)),
    "a sum of some": (TypeError, lambda xp, a: xp.sum(a, where=a > 0)),
    "a maximum of nothing": (ValueError, lambda xp, a: a[:0].max()),
    "a sum of a list": (TypeError, lambda xp, a: xp.sum([1, 2])),
    # cupy/_logic/truth.py and cupy/_sorting/search.py: check_array
    "any of a list": (TypeError, lambda xp, a: xp.any([True])),
    "nonzero of a list": (TypeError, lambda xp, a: xp.flatnonzero([1, 0])),
    "a condition that is no array": (TypeError, lambda xp, a: xp.where(True, a, 0)),
    "isin by sorting or a table": (TypeError, lambda xp, a: xp.isin(a, a, kind="sort")),
    # cupy/_sorting/sort.py, cupy/_core/_routines_sorting.pyx
    "argsort by quicksort": (ValueError, lambda xp, a: xp.argsort(a, kind="quicksort")),
    "a sort without a copy of a view": (NotImplementedError, lambda xp, a: xp.ones((3, 3)).T.sort()),
    "a partition of a view": (NotImplementedError, lambda xp, a: xp.ones((3, 3))[:, :2].partition(1)),
    "argpartition by kind": (TypeError, lambda xp, a: xp.argpartition(a, 1, kind="introselect")),
    "lexsort of a tuple": (TypeError, lambda xp, a: xp.lexsort((a, a))),
    "lexsort along an axis": (TypeError, lambda xp, a: xp.lexsort(xp.stack([a, a]), axis=0)),
    "lexsort of one key": (NotImplementedError, lambda xp, a: xp.lexsort(a)),
    # cupy/_sorting/search.py
    "searchsorted of a list": (NotImplementedError, lambda xp, a: xp.searchsorted(a, [1.0])),
    "searchsorted in a NumPy array": (TypeError, lambda xp, a: xp.searchsorted(np.ones(3), a)),
    # cupy/_indexing/indexing.py
    "take by mode": (TypeError, lambda xp, a: xp.take(a, xp.asarray([0]), mode="clip")),
    "take_along_axis without an axis": (TypeError, lambda xp, a: xp.take_along_axis(a, xp.asarray([0]))),
    # cupy/_manipulation/add_remove.py: a loop in Python
    "unique rows": (NotImplementedError, lambda xp, a: xp.unique(xp.ones((2, 2)), axis=0)),
    "unique that does not sort": (TypeError, lambda xp, a: xp.unique(a, sorted=False)),
    # cupy/_manipulation/join.py
    "concatenation of nothing": (TypeError, lambda xp, a: xp.concatenate([])),
    "concatenation with a NumPy array": (TypeError, lambda xp, a: xp.concatenate([a, np.ones(3)])),
    # cupy/_statistics/histogram.py
    "bincount of float": (TypeError, lambda xp, a: xp.bincount(a)),
    "bincount of weights that are no array": (TypeError, lambda xp, a: xp.bincount(xp.asarray([0]), np.ones(1))),
    # cupy/_math/sumprod.py
    "diff before a NumPy array": (TypeError, lambda xp, a: xp.diff(a, prepend=np.ones(1))),
    # cupy/linalg/_einsum.py
    "einsum into an array": (TypeError, lambda xp, a: xp.einsum("i,i->i", a, a, out=a)),
    "einsum with a NumPy array": (TypeError, lambda xp, a: xp.einsum("i,i->", a, np.ones(3))),
    # cupy/_math/floating.py: exponents are int32 or int64
    "ldexp by float": (TypeError, lambda xp, a: xp.ldexp(a, a)),
    # cupy/_core/core.pyx, __setitem__: which is stored is undefined
    "one place, two values": (RuntimeError, lambda xp, a: operator.setitem(a, xp.asarray([1, 1]), xp.asarray([1, 2]))),
    # names that are not in cupy/__init__.py
    "reduceat of a maximum": (AttributeError, lambda xp, a: xp.maximum.reduceat(a, xp.asarray([0]))),
    "errstate": (AttributeError, lambda xp, a: xp.errstate()),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses_what_cupy_refuses(what: str, cupy_double: Any) -> None:
    error, use = REFUSED[what]
    with pytest.raises(error):
        use(cupy_double, cupy_double.ones(3))


TAKEN: dict[str, Use] = {
    "one place, one value": lambda xp, a: operator.setitem(a, xp.asarray([1, 1]), xp.asarray([2, 2])),
    "a scalar": lambda xp, a: operator.setitem(a, xp.asarray([1, 1]), 3.0),
    "lists as indices": lambda xp, a: a[[0, 2]],
    "atomic additions": lambda xp, a: xp.add.at(a, xp.asarray([0, 0]), 1.0),
    "atomic minima": lambda xp, a: xp.minimum.at(xp.ones(2, dtype=xp.int32), xp.asarray([0, 0]), xp.asarray([1, 0])),
    "a mask for int64": lambda xp, a: xp.add.at(xp.ones(2, dtype=xp.int64), xp.asarray([True, False]), 1),
    "NumPy's scalars": lambda xp, a: np.float32(2) * a + np.int64(1),
    "stable sorts": lambda xp, a: xp.argsort(-a, kind="stable"),
    "stacked keys": lambda xp, a: xp.lexsort(xp.stack([a, a])),
    "a number before a difference": lambda xp, a: xp.diff(a, prepend=-1),
}


@pytest.mark.parametrize("what", TAKEN)
def test_it_takes_what_cupy_takes(what: str, cupy: Any) -> None:
    TAKEN[what](cupy, cupy.ones(3))


def test_reductions_stay_on_the_device(cupy_double: Any) -> None:
    there = cupy_double.arange(3)
    waits = cupy_double.ndarray.waits
    for found in (there.sum(), there.max(), cupy_double.any(there), there[1], cupy_double.sum(there, axis=0)):
        assert isinstance(found, cupy_double.ndarray)
        assert found.shape == ()
    assert cupy_double.ndarray.waits == waits
    assert float(there.sum()) == 3
    assert there[there > 0].tolist() == [1, 2]
    assert cupy_double.flatnonzero(there).tolist() == [1, 2]
    assert cupy_double.ndarray.waits == waits + 5


def test_devices_do_not_mix() -> None:
    with installed(devices=2) as double:
        here = double.ones(2)
        with double.cuda.Device(1) as second:
            there = double.ones(2)
            assert there.device == second
            with pytest.raises(ValueError, match="Array device must be same as the current device"):
                here + there
            assert double.asarray(here).device == second
        assert double.cuda.runtime.getDevice() == 0
        for wrong in (lambda: here + there, lambda: double.sqrt(there), lambda: there[double.asarray([0])]):
            with pytest.raises(ValueError, match="Array device"):
                wrong()
        np.testing.assert_array_equal(there.get(), [1, 1])
        with pytest.raises(CUDARuntimeError, match="invalid device"), double.cuda.Device(2):
            pass
