"""Approximate search: candidates of a part of the passages, scores and order exact."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_oracle import oracle
from library_doubles import cuvs
from scipy import sparse

from haybale.collections import Collection
from haybale.embeddings import LSAEncoder
from haybale.ensemble import SVREnsemble
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError
from haybale.retrieval import ApproximateIndex, ParagraphSearch, PassageIndex


@settings(max_examples=30, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["float32", "float16"]))
def test_with_every_list_read_it_is_exact(data: st.DataObject, seed: int, dtype: str) -> None:
    n, m, d = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    rng = np.random.default_rng(seed)
    passages = rng.normal(size=(n, d)).astype(np.float32)
    queries = rng.normal(size=(m, d)).astype(np.float32)
    queries[0] *= data.draw(st.sampled_from([0, 1]))
    offsets = np.concatenate(([0], np.sort(rng.integers(0, n + 1, size=3)), [n]))
    own = rng.integers(-1, 4, size=m)
    k, lists = data.draw(st.integers(1, n)), data.draw(st.integers(1, n))
    index = ApproximateIndex(passages, offsets, n_lists=lists, n_probes=lists, dtype=dtype)
    hits = index.search(queries, k, exclude=own)
    expected = oracle(queries, passages.astype(dtype), k, index.doc_of, own)
    np.testing.assert_array_equal(hits.passages, expected[0])
    np.testing.assert_array_equal(hits.scores, expected[1])


@pytest.fixture(scope="module")
def clustered() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 16))
    passages = centres[rng.integers(30, size=2000)] + 0.4 * rng.normal(size=(2000, 16))
    queries = centres[rng.integers(30, size=100)] + 0.4 * rng.normal(size=(100, 16))
    return passages.astype(np.float32), queries.astype(np.float32)


def test_scores_and_order_are_exact_and_more_probes_find_more(clustered: Any) -> None:
    passages, queries = clustered
    found = []
    for probes in (1, 4, 44):
        index = ApproximateIndex(passages, n_lists=44, n_probes=probes)
        hits = index.search(queries, 20)
        real = hits.passages >= 0
        exact = np.einsum("md,mkd->mk", queries.astype(np.float64), passages[hits.passages].astype(np.float64))
        np.testing.assert_array_equal(hits.scores[real], exact.astype(np.float32)[real])
        assert (hits.scores[:, 1:] <= hits.scores[:, :-1]).all()
        found.append(index.recall(queries, 20))
        wanted = PassageIndex(passages).search(queries, 20).passages
        by_hand = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(hits.passages, wanted, strict=True)])
        assert found[-1] == pytest.approx(by_hand)
    assert found[0] < 0.95 < found[1] <= found[2] == 1


def test_a_seed_gives_the_same_index_and_sample(clustered: Any) -> None:
    passages, queries = clustered
    first, second, other = (ApproximateIndex(passages, n_probes=1, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.search(queries, 5).passages, second.search(queries, 5).passages)
    assert (first.search(queries, 5).passages != other.search(queries, 5).passages).any()
    assert first.recall(queries, 5, sample=10) == second.recall(queries, 5, sample=10)
    chosen = np.sort(np.random.default_rng(3).choice(100, 10, replace=False))
    assert first.recall(queries, 5, sample=10, random_state=3) == first.recall(queries[chosen], 5)
    own = np.arange(100)
    assert first.recall(queries, 5, exclude=own, sample=10, random_state=3) == first.recall(
        queries[chosen], 5, exclude=own[chosen]
    )
    assert np.isnan(first.recall(np.zeros((2, 16)), 5))


def test_it_takes_an_exact_index_s_place(toy: Collection) -> None:
    texts = toy.passages.texts.to_pylist()
    encoder = LSAEncoder(6).fit(texts)
    exact = PassageIndex.from_collection(toy, encoder.encode(texts))
    approximate = ApproximateIndex.from_collection(toy, encoder.encode(texts), n_lists=3, n_probes=3)
    assert repr(approximate) == (
        "ApproximateIndex: 15 × 6 float32, 5 documents, on cpu, backend auto: faiss; approximate: ivf, 3 of 3 lists"
    )
    queries = encoder.encode(["barking dogs", "winter roads", "tax letter"])
    runs = [
        ParagraphSearch(index, "vrrf").rank(["a", "b"], [queries[:2], queries[2:]]) for index in (exact, approximate)
    ]
    assert runs[0]["a"] == runs[1]["a"] != []
    assert runs[0]["b"] == runs[1]["b"] != []
    ensembles = [
        SVREnsemble(n_bags=1, overlap=0, random_state=0).fit(index, queries, [["dogs"], ["roads"], ["taxes"]])
        for index in (exact, approximate)
    ]
    assert ensembles[0].index_ is exact
    assert ensembles[1].index_ is approximate


def test_what_is_refused(cupy_double: Any) -> None:
    with pytest.raises(UnknownNameError, match="unknown approximate method 'hnsw'; known: ivf, cagra"):
        ApproximateIndex(np.eye(3), method="hnsw")
    with pytest.raises(InputError, match="dense vectors, found a sparse matrix"):
        ApproximateIndex(sparse.identity(3, format="csr"))
    with pytest.raises(InputError, match="'cagra' runs on cuda, and the passages are on cpu"):
        ApproximateIndex(np.eye(3), method="cagra")
    with pytest.raises(InputError, match="'ivf' runs on cpu, and the passages are on cuda:0"):
        ApproximateIndex(np.eye(3), device="cuda")
    with pytest.raises(InputError, match="number of passages, 3; found 4 probes of 4 lists"):
        ApproximateIndex(np.eye(3), n_lists=4)
    with pytest.raises(InputError, match="found 3 probes of 2 lists"):
        ApproximateIndex(np.eye(3), n_lists=2, n_probes=3)
    with pytest.raises(MissingExtraError, match="cuvs is not installed"):
        ApproximateIndex(np.eye(3), device="cuda", method="cagra")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cagra_on_a_stand_in(dtype: str, cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which finds the even passages only: half of what is wanted, in exact order."""
    modules = cuvs()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    rng = np.random.default_rng(1)
    passages, queries = rng.normal(size=(60, 4)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    index = ApproximateIndex(passages, device="cuda", method="cagra", dtype=dtype, backend="cupy")
    assert repr(index).endswith("approximate: cagra, 64 edges")
    hits = index.search(cupy_double.asarray(queries), 40)
    assert isinstance(hits.passages, cupy_double.ndarray)
    numbers, scores = oracle(queries, passages[::2].astype(dtype), 30)
    hits = hits.to_numpy()
    np.testing.assert_array_equal(hits.passages[:, :30], 2 * numbers)
    np.testing.assert_array_max_ulp(hits.scores[:, :30], scores, 1)
    assert (hits.passages[:, 30:] == -1).all()
    assert np.isneginf(hits.scores[:, 30:]).all()
    assert index.recall(queries, 60) == 0.5
    modules["cuvs"].__version__ = "27.02"
    with pytest.raises(DeviceError, match=r"cuVS 26\.x expected, found 27\.02"):
        ApproximateIndex(passages, device="cuda", method="cagra", backend="cupy")


def test_recall_of_a_sample(clustered: Any) -> None:
    passages, queries = clustered
    index = ApproximateIndex(passages, n_probes=4)
    assert index.recall(queries.tolist(), 5, sample=20) == index.recall(queries, 5, sample=20)
    assert index.recall(queries, 5, sample=1000) == index.recall(queries, 5)
    with pytest.raises(InputError, match="sample must be at least 1, or None for all queries, found 0"):
        index.recall(queries, 5, sample=0)
