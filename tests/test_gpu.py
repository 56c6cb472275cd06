"""Code that takes CuPy arrays, against the same code on NumPy. Skipped where no CUDA device answers."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_numpy_is_the_default_namespace() -> None:
    assert array_namespace(np.ones(2)) is np
    assert array_namespace([1, 2]) is np
