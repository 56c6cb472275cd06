"""Which backend is used where, and those of other libraries, on stand-ins of them: see library_doubles."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
from cupy_double import installed
from index_oracle import oracle
from library_doubles import CuBLAS, cuvs, faiss_gpu
from scipy import sparse

from haybale.device import CPU, Device
from haybale.errors import DeviceError, InputError, MissingExtraError
from haybale.retrieval import ApproximateIndex, PassageIndex
from haybale.retrieval.exact import BACKENDS, auto, backends_on, find_backend, kept, products
from haybale.retrieval.exact.faiss_gpu import _resources

CUDA = Device("cuda", 0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_THREADS", 4)
    monkeypatch.setattr(kept, "_BLOCKS", 2)


@pytest.fixture
def with_cuvs(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    modules = cuvs()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


@pytest.fixture
def with_faiss(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    double = faiss_gpu()
    monkeypatch.setitem(sys.modules, "faiss", double)
    _resources.cache_clear()
    yield double
    _resources.cache_clear()


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    passages = rng.normal(size=(40, 7)).astype(np.float32)[rng.integers(40, size=120)]
    return passages, rng.normal(size=(3, 7)).astype(np.float32)


def check(index: PassageIndex, data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    passages, queries = data
    found = index.search(queries, k)
    expected = oracle(queries, passages.astype(index.vectors.dtype), k)
    np.testing.assert_array_equal(found.passages, expected[0])
    np.testing.assert_array_max_ulp(found.scores, expected[1], 1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["cuvs", "faiss-gpu"])
def test_other_libraries_give_the_same_hits(name: str, dtype: str, data: Any, with_cuvs: Any, with_faiss: Any) -> None:
    index = PassageIndex(data[0], device="cuda", backend=name, dtype=dtype)
    assert index.backend_used == name
    for k in (1, 10, 120):
        check(index, data, k)
    assert bool(with_faiss.asked) == (name == "faiss-gpu")


@pytest.mark.parametrize("name", ["cuvs", "faiss-gpu"])
def test_what_rounding_hides_is_found(name: str, with_cuvs: Any, with_faiss: Any) -> None:
    """The query's second value rounds to 1 in float16: all proposed scores are equal, the best passages come last."""
    second = np.arange(200, dtype=np.float32) / 256
    data = np.stack([1 - second, second], axis=1), np.array([[1, 1 + 2**-12]], dtype=np.float32)
    index = PassageIndex(data[0], device="cuda", backend=name, dtype="float16")
    assert index.search(data[1], 3).passages.tolist() == [[199, 198, 197]]
    check(index, data, 50)


def test_every_backend_that_is_usable_here(cupy: Any, data: Any) -> None:
    for name in backends_on(CUDA):
        for dtype in ("float32", "float16"):
            if BACKENDS[name].missing() is None:
                check(PassageIndex(cupy.asarray(data[0]), backend=name, dtype=dtype), data, 10)


def test_auto_takes_the_first_that_is_usable(with_cuvs: Any, with_faiss: Any, monkeypatch: Any) -> None:
    assert find_backend("auto", CUDA).name == "cuvs"
    assert find_backend("auto", CUDA, np.float16).name == "cupy"  # the others would round the queries
    assert auto() == (CUDA, "cuvs", "cupy")
    with_cuvs["cuvs"].__version__ = "25.08.00"
    assert find_backend("auto", CUDA).name == "faiss-gpu"
    with_faiss.get_num_gpus = lambda: 0
    assert find_backend("auto", CUDA).name == "cupy"
    assert (find_backend("auto", CPU).name, find_backend("auto", CPU, np.float16).name) == ("faiss", "numpy")


def test_a_backend_that_cannot_be_used_says_why(with_cuvs: Any, with_faiss: Any, monkeypatch: Any) -> None:
    with pytest.raises(
        InputError, match="'faiss' runs on cpu, and the passages are on cuda:0; there: auto, cuvs, faiss"
    ):
        PassageIndex(np.eye(3), device="cuda", backend="faiss")
    with pytest.raises(InputError, match="'cupy' runs on cuda, and the passages are on cpu; there: auto, faiss, numpy"):
        PassageIndex(np.eye(3), backend="cupy")
    with_cuvs["cuvs"].__version__ = "25.08.00"
    with pytest.raises(DeviceError, match=r"cuVS 26\.x expected, found 25\.08\.00"):
        PassageIndex(np.eye(3), device="cuda", backend="cuvs")
    with_faiss.get_num_gpus = lambda: 0
    with pytest.raises(DeviceError, match="finds no GPU"):
        PassageIndex(np.eye(3), device="cuda", backend="faiss-gpu")
    del with_faiss.GpuDistanceParams
    with pytest.raises(DeviceError, match=r"this faiss has no GPU support; .*pip install faiss-gpu"):
        PassageIndex(np.eye(3), device="cuda", backend="faiss-gpu")
    monkeypatch.setitem(sys.modules, "cuvs", None)
    with pytest.raises(MissingExtraError, match=r'cuvs is not installed; pip install "haybale\[gpu\]"'):
        PassageIndex(np.eye(3), device="cuda", backend="cuvs")


def test_cuvs_that_does_not_load(with_cuvs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuvs.neighbors.brute_force", None)
    assert find_backend("auto", CUDA).name == "cupy"
    with pytest.raises(DeviceError, match="does not load"):
        find_backend("cuvs", CUDA)


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtraError, match="cupy is not installed"):
        PassageIndex(np.eye(3), device="cuda")
    assert auto() == (CPU, "faiss", "numpy")


def test_beyond_2048_our_tiles_propose(with_faiss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    data = rng.normal(size=(2100, 3)).astype(np.float32), rng.normal(size=(1, 3)).astype(np.float32)
    index = PassageIndex(data[0], device="cuda", backend="faiss-gpu")
    monkeypatch.setattr(kept, "_THREADS", 64)
    check(index, data, 2090)
    assert with_faiss.asked == []
    check(index, data, 5)
    assert max(with_faiss.asked) <= 2048


def test_a_library_that_multiplies_less_exactly_is_left(with_cuvs: Any, data: Any) -> None:
    """Products of eleven bits, as TF32 makes them."""
    search = with_cuvs["cuvs.neighbors.brute_force"].search

    def coarse(index: Any, queries: Any, k: int, **outputs: Any) -> Any:
        rounded = (queries._array.view(np.int32) & ~0x1FFF).view(np.float32)
        return search(index, type(queries)(rounded), k, **outputs)

    with_cuvs["cuvs.neighbors.brute_force"].search = coarse
    index = PassageIndex(data[0], device="cuda", backend="cuvs")
    with pytest.warns(RuntimeWarning, match="'cuvs' gave scores that are off by more .* 'cupy' is used"):
        check(index, data, 10)
    assert index.backend_used == "cupy"
    check(index, data, 10)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cublas_is_called_by_columns(dtype: str, data: Any, cupy_double: Any) -> None:
    """On the memory of the arrays, with the leading dimensions that cuBLAS is told.

    It is ``cupy.cuda.cublas``: that name loads libcublas, as importing the module under it does not.
    """
    cublas = cupy_double.cuda.cublas = CuBLAS()
    rng = np.random.default_rng(2)
    for m, n, d in ((1, 1, 1), (3, 5, 2), (4, 7, 9)):
        queries, passages = (rng.integers(-4, 5, size=(rows, d)).astype(dtype) for rows in (m, n))
        out = cupy_double.full((m, n), np.nan, dtype=np.float32)
        products.products(cupy_double.asarray(queries), cupy_double.asarray(passages), out)
        exact = queries.astype(np.float32) @ passages.astype(np.float32).T
        np.testing.assert_array_equal(out.get(), exact)
        products.products(cupy_double.asarray(queries), cupy_double.asarray(passages), out, add=True)
        np.testing.assert_array_equal(out.get(), 2 * exact)
    assert set(cublas.kinds) == {0 if dtype == "float32" else 2}
    check(PassageIndex(data[0], device="cuda", dtype=dtype, backend="cupy"), data, 10)


def test_sparse_vectors_stay_on_the_cpu(cupy_double: Any) -> None:
    rows = sparse.identity(3, format="csr")
    index = PassageIndex(rows, device="auto")
    assert repr(index) == "PassageIndex: 3 × 3 float32 sparse, 3 documents, on cpu, backend auto: inverted index"
    with pytest.raises(InputError, match="sparse vectors are searched on the CPU, found device 'cuda'"):
        PassageIndex(rows, device="cuda")
    with pytest.raises(InputError, match="sparse vectors are stored as float32, found 'float16'"):
        PassageIndex(rows, dtype="float16")


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(InputError, match="stored as float32 or float16, found 'int8'"):
        PassageIndex(np.eye(3), dtype="int8")
    with pytest.raises(InputError, match="memory_budget is a number of bytes above 0, or None, found 0"):
        PassageIndex(np.eye(3), memory_budget=0)
    with installed(devices=0), pytest.raises(DeviceError, match="no CUDA device answers"):
        PassageIndex(np.eye(3), device="cuda")


def test_a_budget_on_the_cpu_changes_nothing(data: Any) -> None:
    for name in ("faiss", "numpy"):
        check(PassageIndex(data[0], backend=name, memory_budget=64), data, 9)
        check(PassageIndex(data[0], backend=name, memory_budget=64, dtype="float16"), data, 9)


@pytest.mark.parametrize("make", [PassageIndex, ApproximateIndex])
def test_an_index_is_sent_to_another_process(make: type[PassageIndex], data: Any) -> None:
    index = make(data[0])
    sent = pickle.loads(pickle.dumps(index))
    assert repr(sent) == repr(index)
    np.testing.assert_array_equal(sent.search(data[1], 9).passages, index.search(data[1], 9).passages)
