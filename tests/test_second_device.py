"""Computations on cuda:1 while cuda:0 is the current device: they must run where their arrays are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from support.cupy_double import HAS_CUDA, installed

from haybale import ParagraphSearch, PassageIndex, ProductKernelSVR, SVREnsemble
from haybale.device import Device, device_of, to_device, to_numpy
from haybale.retrieval import AGGREGATIONS, Vectors, aggregate

SECOND = Device("cuda", 1)
N, M, D = 200, 12, 6
OFFSETS = np.arange(0, N + 1, 10)
RELEVANT = [[str(i % 20)] for i in range(M)]


@pytest.fixture(autouse=True)
def double() -> Iterator[Any]:
    if HAS_CUDA:
        pytest.skip("needs the double of CuPy, but CuPy and a CUDA device are present")
    with installed(devices=2) as double:
        yield double
        assert double.cuda.runtime.getDevice() == 0


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)).astype(np.float32), rng.normal(size=(M, D)).astype(np.float32)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_search(kind: str) -> None:
    passages, queries = data()
    if kind == "sparse":
        passages, queries = (sparse.csr_matrix(np.maximum(matrix, 0)) for matrix in (passages, queries))
    cpu_index = PassageIndex(passages, OFFSETS)
    own = np.arange(M) % 3 - 1
    expected = cpu_index.search(queries, 7, exclude=own)
    for index in (PassageIndex(passages, OFFSETS, device="cuda:1"), PassageIndex(to_device(passages, SECOND), OFFSETS)):
        np.testing.assert_array_equal(index.search(queries, 7, exclude=own).passages, expected.passages)
        found = index.search(to_device(queries, SECOND), 7, exclude=to_device(own, SECOND))
        assert device_of(found.passages) == SECOND
        np.testing.assert_array_equal(found.to_numpy().passages, expected.passages)
        for ours, theirs in zip(found.flat(), expected.flat(), strict=True):
            np.testing.assert_allclose(to_numpy(ours), theirs, rtol=1e-6)
        np.testing.assert_allclose(index.similarities(queries, 3), cpu_index.similarities(queries, 3), rtol=1e-6)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregation_and_parm(name: str) -> None:
    passages, queries = data()
    on_gpu = to_device(queries, SECOND)
    index, cpu_index = (PassageIndex(passages, OFFSETS, device=device) for device in ("cuda:1", "cpu"))
    hits, offsets = index.search(on_gpu, 20), np.array([0, 3, 7, M])
    vectors = Vectors(index.vectors, on_gpu)
    found = aggregate(hits, name, index.doc_of, offsets, vectors=vectors)
    expected = aggregate(hits.to_numpy(), name, cpu_index.doc_of, offsets, vectors=Vectors(passages, queries))
    np.testing.assert_allclose(to_numpy(found[2]), expected[2], rtol=1e-5, atol=1e-5)
    for given in ([queries[:3], queries[3:]], [to_device(queries[:3], SECOND), to_device(queries[3:], SECOND)]):
        ranker = ParagraphSearch(index, name, n_hits=10)
        run = ranker.rank(["a", "b"], given)
        theirs = ParagraphSearch(cpu_index, name, n_hits=10).rank(["a", "b"], [queries[:3], queries[3:]])
        assert [doc for doc, _ in run["a"]] == [doc for doc, _ in theirs["a"]]
        best = run["a"][0]
        assert ranker.explain(given[0], best[0]).score == pytest.approx(best[1], rel=1e-5)


@pytest.mark.filterwarnings("ignore:.*bags have no relevant row")
@pytest.mark.parametrize("strategy", ["queries", "rows", "regions"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ensemble(strategy: str, n_jobs: int) -> None:
    passages, queries = data()
    on_gpu = to_device(queries, SECOND)
    index = PassageIndex(passages, OFFSETS, device="cuda:1")
    hits = index.search(on_gpu, 10)
    features = np.random.default_rng(1).normal(size=(M, 10, 2)).astype(np.float32)
    settings: dict[str, Any] = {"strategy": strategy, "overlap": 0.3, "n_jobs": n_jobs, "standardize": True}
    model = SVREnsemble(3, k=10, eta=0.5, **settings).fit(index, on_gpu, RELEVANT, candidates=hits, features=features)
    scores = model.score_candidates(on_gpu, hits.passages, features)
    assert device_of(scores) == device_of(model.relevant(on_gpu, hits.passages, features)) == SECOND
    np.testing.assert_array_equal(
        model.score_candidates(queries, hits.to_numpy().passages, to_device(features, SECOND)), to_numpy(scores)
    )
    model.explain(on_gpu[:1], index.passage_ids[int(hits.passages[0, 0])].as_py(), features=features[0, 0])
    plain = SVREnsemble(3, k=10, **settings).fit(index, queries, RELEVANT)
    assert len(plain.rank(on_gpu, [str(i) for i in range(M)], k=5)) == M


@pytest.mark.parametrize("settings", [{}, {"solver": "sklearn"}])
def test_regressor(settings: dict[str, Any]) -> None:
    passages, queries = data()
    rng = np.random.default_rng(2)
    y, query, passage = rng.normal(size=60), rng.integers(M, size=60), rng.integers(N, size=60)
    on_gpu = to_device(queries, SECOND), to_device(passages, SECOND)
    model = ProductKernelSVR(**settings).fit_pairs(*on_gpu, query, passage, y)
    found = model.predict_pairs(*on_gpu, query, passage)
    assert device_of(found) == SECOND
    expected = ProductKernelSVR(**settings).fit_pairs(queries, passages, query, passage, y)
    np.testing.assert_allclose(to_numpy(found), expected.predict_pairs(queries, passages, query, passage), atol=2e-3)
