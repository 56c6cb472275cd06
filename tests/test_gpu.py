"""Code that takes CuPy arrays, against the same code on NumPy. Skipped where no CUDA device answers."""

from __future__ import annotations

import numpy as np
import pytest

from haybale.ensemble.gram import kernel_tile
from haybale.ensemble.half import Half
from haybale.vectors import array_namespace, check_vectors


def _cupy():
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no CUDA device")
    return cupy


@pytest.mark.gpu
def test_vectors_stay_on_the_device() -> None:
    cupy = _cupy()
    checked = check_vectors(cupy.ones((3, 2)), "queries", width=2)
    assert isinstance(checked, cupy.ndarray)
    assert array_namespace(checked) is cupy
    with pytest.raises(ValueError, match="row 1 has NaN"):
        check_vectors(cupy.asarray([[1.0, 1.0], [np.nan, 1.0]]), "queries")


@pytest.mark.gpu
def test_kernel_tiles_are_those_of_numpy() -> None:
    cupy = _cupy()
    rng = np.random.default_rng(0)
    a, b = (0.1 * rng.normal(size=(n, 64)).astype(np.float32) for n in (300, 200))
    found = cupy.asnumpy(kernel_tile(Half(cupy.asarray(a)), Half(cupy.asarray(b))))
    np.testing.assert_allclose(found, kernel_tile(Half(a), Half(b)), atol=1e-5)


def test_numpy_is_the_default_namespace() -> None:
    assert array_namespace(np.ones(2)) is np
    assert array_namespace([1, 2]) is np
