"""Devices by name, and arrays and sparse matrices on devices; CuPy is replaced by the double of support.cupy_double."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from support.cupy_double import installed

from haybale.device import CPU, Device, device_of, find_device, is_sparse, placed, to_device, to_numpy
from haybale.errors import DeviceError, MissingExtraError, UnknownNameError

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


def test_missing_devices() -> None:
    with (
        installed(devices=2),
        pytest.raises(DeviceError, match="cuda:0, cuda:1"),
    ):
        find_device("cuda:2")
    with installed(devices=0):
        assert find_device("auto") == CPU
        with pytest.raises(DeviceError, match="'cuda'"):
            find_device("cuda")


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert find_device("auto") == CPU
    with pytest.raises(MissingExtraError, match=r"cupy .*haybale\[gpu\]"):
        find_device("cuda")


def test_arrays_move_only_if_they_must(cupy_double: Any) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    on_gpu = to_device(host, CUDA)
    assert isinstance(on_gpu, cupy_double.ndarray)
    assert device_of(on_gpu) == CUDA
    assert to_device(on_gpu, CUDA) is on_gpu
    np.testing.assert_array_equal(to_numpy(on_gpu), host)
    assert to_numpy(host) is host
    np.testing.assert_array_equal(to_numpy(placed([[1.0]], CUDA, "queries")), [[1.0]])
    with pytest.raises(DeviceError, match="queries are on cuda:0, expected cpu"):
        placed(on_gpu, CPU, "queries")
    with pytest.raises(DeviceError, match="on cuda:0, expected cuda:1"):
        placed(on_gpu, Device("cuda", 1), "queries")


def test_sparse_matrices_move_like_arrays(cupy_double: Any) -> None:
    host = sparse.csr_matrix(np.array([[0, 2], [3, 0]], dtype=np.float32))
    on_gpu = to_device(host, CUDA)
    assert is_sparse(on_gpu)
    assert is_sparse(host)
    assert not is_sparse(np.eye(2))
    assert (device_of(on_gpu), device_of(host)) == (CUDA, CPU)
    assert to_device(on_gpu, CUDA) is on_gpu
    assert to_numpy(host) is host
    np.testing.assert_array_equal(to_numpy(on_gpu).toarray(), host.toarray())
    assert to_device(host.tocsc(), CUDA).format == "csr"
    assert CPU.sparse is sparse
    assert isinstance(on_gpu, CUDA.sparse.csr_matrix)


def test_torch_shares_its_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert device_of(tensor) == CPU
    assert np.shares_memory(to_numpy(tensor), tensor.numpy())
    assert np.shares_memory(to_device(tensor, CPU), tensor.numpy())


def test_sparse_matrices_of_cupy_lack_what_numpy_has(cupy_double: Any) -> None:
    """What a GPU showed of cupyx: no device, no products of values without rows or columns."""
    matrix, without_rows = (to_device(sparse.csr_matrix((n, 3), dtype=np.float32), CUDA) for n in (2, 0))
    with pytest.raises(NotImplementedError):
        _ = matrix.device
    assert matrix.data.device == cupy_double.cuda.Device(0)
    assert matrix.multiply(matrix).nnz == 0
    with pytest.raises(ZeroDivisionError):
        without_rows.multiply(without_rows)
    assert without_rows.power(2).sum(axis=1).shape == (0, 1)
    assert without_rows.multiply(2.0).shape == without_rows.toarray().shape == (0, 3)


def test_cupy_rejects_what_numpy_accepts(cupy_double: Any) -> None:
    """What the source of CuPy 14.2 says: keywords, positions of a partition, arrays without dimensions, dtypes."""
    xp, values = cupy_double, cupy_double.asarray(np.arange(4.0))
    for call in (
        lambda: xp.sum(values, where=values > 1),
        lambda: values.max(initial=0),
        lambda: xp.partition(values, np.int64(2)),
        lambda: values * np.array(2.0),
        lambda: xp.unique(values, sorted=False),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="dtype"):
        xp.asarray(np.array(["text"]))
    with pytest.raises(RuntimeError, match="overlap"):
        values[1:] = values[:-1]
    np.testing.assert_array_equal(xp.partition(values, 2).get(), np.arange(4.0))
