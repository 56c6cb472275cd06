"""Devices by name, arrays between libraries, tiles that halve; CuPy is a double, see cupy_double."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from cupy_double import CUDARuntimeError, OutOfMemoryError, installed

from haybale.device import CPU, Device, device_of, find_device, placed, to_device, to_numpy
from haybale.errors import DeviceError, MissingExtraError, UnknownNameError
from haybale.extras import require
from haybale.tiling import in_tiles

CUDA = Device("cuda", 0)


def test_devices_by_name(cupy_double: Any) -> None:
    assert find_device("cpu") == CPU
    assert find_device("auto") == find_device("cuda") == find_device("cuda:0") == CUDA
    assert find_device(CUDA) is CUDA
    assert CUDA.xp is cupy_double
    assert CPU.xp is np
    assert CUDA.half_of_memory() == 2**32
    for name in ("gpu", "cuda:", "cuda:x", "cpu:1"):
        with pytest.raises(UnknownNameError, match="unknown device"):
            find_device(name)


def test_devices_that_are_not_there() -> None:
    with (
        installed(devices=2),
        pytest.raises(DeviceError, match="'cuda:2' does not exist; this machine has cuda:0, cuda:1"),
    ):
        find_device("cuda:2")
    with installed(devices=0):
        assert find_device("auto") == CPU
        with pytest.raises(DeviceError, match="device 'cuda': no CUDA device answers"):
            find_device("cuda")


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    assert find_device("auto") == CPU
    with pytest.raises(MissingExtraError, match=r'cupy is not installed; pip install "haybale\[gpu\]"'):
        find_device("cuda")


def test_arrays_move_only_where_they_must(cupy_double: Any) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    there = to_device(host, CUDA)
    assert isinstance(there, cupy_double.ndarray)
    assert device_of(there) == CUDA
    assert to_device(there, CUDA) is there
    np.testing.assert_array_equal(to_numpy(there), host)
    assert to_numpy(host) is host
    np.testing.assert_array_equal(to_numpy(placed([[1.0]], CUDA, "queries")), [[1.0]])
    with pytest.raises(DeviceError, match="queries are on cuda:0, and would meet arrays on cpu"):
        placed(there, CPU, "queries")
    with pytest.raises(DeviceError, match="on cuda:0, and would meet arrays on cuda:1"):
        placed(there, Device("cuda", 1), "queries")


def test_torch_shares_its_memory() -> None:
    torch = require_torch()
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert device_of(tensor) == CPU
    assert np.shares_memory(to_numpy(tensor), tensor.numpy())
    assert np.shares_memory(to_device(tensor, CPU), tensor.numpy())


def require_torch() -> Any:
    pytest.importorskip("torch")
    return require("torch", "neural")


class Hungry:
    """Work that has memory for so many rows, which a later tile may find less of."""

    def __init__(self, room: int, error: BaseException | None = None) -> None:
        self.room, self.asked = room, []
        self.error = error or OutOfMemoryError("no room")

    def __call__(self, tile: slice) -> list[int]:
        self.asked.append(tile.stop - tile.start)
        if self.asked[-1] > self.room:
            raise self.error
        return list(range(tile.start, tile.stop))


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("x"),
        MemoryError("std::bad_alloc"),
        RuntimeError("CUDA out of memory. Tried"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_tiles_halve_until_they_fit(error: BaseException) -> None:
    work = Hungry(3, error)
    assert [row for tile in in_tiles(10, 8, work) for row in tile] == list(range(10))
    assert work.asked == [8, 4, 2, 2, 2, 2, 2]


def test_tiles_on_the_cpu_beside_a_cupy_that_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's pool asks for the number of devices, which is an error without a driver."""

    def no_driver() -> None:
        raise CUDARuntimeError("cudaErrorInsufficientDriver")

    pool = types.SimpleNamespace(free_all_blocks=no_driver)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(get_default_memory_pool=lambda: pool))
    assert len(list(in_tiles(4, 4, Hungry(2)))) == 2


def test_the_smallest_tile_says_so() -> None:
    with pytest.raises(DeviceError, match="out of memory at a tile of 2 queries"):
        list(in_tiles(10, 8, Hungry(1), least=2, what="queries"))
    with pytest.raises(RuntimeError, match="illegal address"):
        list(in_tiles(10, 8, Hungry(1, RuntimeError("illegal address"))))
    assert list(in_tiles(0, 8, Hungry(1))) == []
