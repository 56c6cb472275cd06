"""Ensembles on a device, compared with ensembles on the CPU: training, scores, explanations, saving and loading.

Both solvers stop at a violation of tol, so results differ by about tol and by float32 rounding.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from support.worlds import candidates_with_features, world

from haybale.device import CPU, Device, device_of, to_device, to_numpy
from haybale.ensemble import SVREnsemble, candidate_rows, pair_features
from haybale.retrieval import Hits, PassageIndex

CUDA = Device("cuda", 0)


class DeviceIndex(PassageIndex):
    """An index with vectors on the device, which searches on the CPU and returns arrays of the queries' library."""

    def search(self, queries: Any, k: int, *, exclude: Any = None) -> Hits:
        found = self.twin.search(to_numpy(queries), k, exclude=exclude)
        return found if device_of(queries).is_cpu else on_device(self.cupy, found)


def on_device(cupy: Any, hits: Hits) -> Hits:
    return Hits(cupy.asarray(hits.passages), cupy.asarray(hits.scores))


def moved(cupy: Any, index: PassageIndex) -> PassageIndex:
    on_gpu = copy.copy(index)
    on_gpu.__class__, on_gpu.twin, on_gpu.cupy = DeviceIndex, index, cupy
    on_gpu.vectors, on_gpu.device = cupy.asarray(index.vectors), CUDA
    return on_gpu


SETTINGS: dict[str, dict[str, Any]] = {
    "queries": {},
    "rows": {"strategy": "rows", "standardize": True, "gamma": "scale"},
    "regions": {"strategy": "regions"},
    "injected": {"protocol": "injected"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_an_ensemble_on_a_device_is_the_one_on_the_cpu(
    cupy: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, queries, labels = world(3)
    on_gpu, settings = moved(cupy, index), {"k": 10, "tol": 1e-5} | SETTINGS[name]
    ours = SVREnsemble(4, **settings).fit(on_gpu, queries, labels)
    theirs = SVREnsemble(4, **settings).fit(index, queries, labels)
    assert ours.support_.device == CUDA
    assert isinstance(ours.support_.coef, np.ndarray)
    assert ours.n_rows_ == theirs.n_rows_
    assert ours.bag_sizes_ == theirs.bag_sizes_
    np.testing.assert_allclose(ours.gamma_, theirs.gamma_, rtol=1e-9)
    passages = index.search(queries, 12).passages
    passages[2, 5:] = -1
    expected = theirs.score_candidates(queries, passages)
    found = ours.score_candidates(queries, passages)
    assert (type(found), found.dtype) == (np.ndarray, np.float32)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    for of in (passages, cupy.asarray(passages)):
        there_too = ours.score_candidates(cupy.asarray(queries), of)
        assert isinstance(there_too, cupy.ndarray)
        np.testing.assert_array_equal(to_numpy(there_too), found)
    votes, relevant = (method(cupy.asarray(queries), passages) for method in (ours.votes, ours.relevant))
    assert isinstance(votes, cupy.ndarray)
    assert isinstance(relevant, cupy.ndarray)
    # A prediction within rounding of the threshold may fall on either side.
    assert np.mean(to_numpy(votes) != theirs.votes(queries, passages)) < 0.02
    np.testing.assert_array_equal(to_numpy(relevant), to_numpy(votes) >= 1)
    numbers = np.flatnonzero(~theirs.seen_.all(axis=1))
    arguments = numbers, queries[numbers], passages[numbers]
    np.testing.assert_allclose(*(model.out_of_bag_scores(*arguments) for model in (ours, theirs)), atol=1e-4)
    own, places = np.arange(len(queries)), np.where(theirs.seen_.all(axis=1), -1, np.arange(len(queries)))
    for how in ({}, {"query_numbers": places, "intercept": False}):
        hits = [
            model.search(of, 5, exclude=own, **how) for model, of in ((ours, cupy.asarray(queries)), (theirs, queries))
        ]
        assert isinstance(hits[0].passages, cupy.ndarray)
        np.testing.assert_allclose(to_numpy(hits[0].scores), hits[1].scores, atol=1e-4)
    for query in (queries[:1], cupy.asarray(queries[:1])):
        explanation = ours.explain(query, "3")
        assert explanation.prediction == pytest.approx(theirs.explain(queries[:1], "3").prediction, abs=1e-4)
    if theirs.protocol != "injected":
        names = [f"q{i}" for i in range(len(queries))]
        assert ours.rank(queries, names, k=12) == ours.rank(cupy.asarray(queries), names, k=12)
    monkeypatch.setattr(Device, "half_of_memory", lambda self: 60000.0)  # pairs are processed in tiles
    np.testing.assert_allclose(ours.score_candidates(queries, passages), found, atol=1e-5)
    np.testing.assert_array_equal(ours.votes(queries, passages), to_numpy(votes))
    ours.save(tmp_path / "model")
    for of, device, where in ((index, None, CPU), (on_gpu, None, CUDA), (on_gpu, "cpu", CPU), (index, "cuda", CUDA)):
        again = SVREnsemble.load(tmp_path / "model", of, device=device)
        assert again.support_.device == where
        np.testing.assert_allclose(again.score_candidates(queries, passages), expected, atol=1e-4)


@pytest.mark.parametrize(("device", "vectors"), [("cuda", "cpu"), ("cpu", "cuda"), ("cuda:0", "cuda")])
def test_an_ensemble_on_another_device_than_its_index(cupy: Any, device: str, vectors: str) -> None:
    index, queries, relevant = world(3)
    of = index if vectors == "cpu" else moved(cupy, index)
    ours = SVREnsemble(4, k=10, tol=1e-5, device=device)
    theirs = SVREnsemble(4, k=10, tol=1e-5).fit(index, queries, relevant)
    passages = index.search(queries, 12).passages
    expected = theirs.score_candidates(queries, passages)
    np.testing.assert_allclose(ours.fit(of, queries, relevant).score_candidates(queries, passages), expected, atol=1e-4)
    assert ours.support_.device == (CPU if device == "cpu" else CUDA)
    on_gpu = cupy.asarray(queries)
    found = ours.fit(of, on_gpu, relevant).score_candidates(on_gpu, passages)
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)


def test_pair_features_on_a_device(cupy: Any) -> None:
    index, queries, relevant, candidates, features = candidates_with_features(2)
    settings: dict[str, Any] = {"eta": 0.5, "tol": 1e-5}
    theirs = SVREnsemble(4, **settings).fit(index, queries, relevant, candidates=candidates, features=features)
    on_gpu = cupy.asarray(queries), on_device(cupy, candidates), cupy.asarray(features)
    ours = SVREnsemble(4, **settings)
    ours.fit(moved(cupy, index), on_gpu[0], relevant, candidates=on_gpu[1], features=on_gpu[2])
    expected = theirs.score_candidates(queries, candidates.passages, features)
    found = ours.score_candidates(on_gpu[0], on_gpu[1].passages, on_gpu[2])
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
    one = ours.explain(on_gpu[0][:1], "3", features=on_gpu[2][0, 0])
    other = theirs.explain(queries[:1], "3", features=features[0, 0])
    assert one.prediction == pytest.approx(other.prediction, abs=1e-4)


def test_sparse_vectors_on_a_device(cupy: Any) -> None:
    """Sparse vectors on the CPU are scaled, used in training and scored on the device."""
    index, queries, relevant = world(3)
    wide = [sparse.random(n, 9, 0.5, format="csr", dtype=np.float32) for n in (len(queries), len(index))]
    of, passages = PassageIndex(wide[1], index.doc_offsets, doc_ids=index.doc_ids), index.search(queries, 5).passages
    models = [SVREnsemble(3, k=10, tol=1e-5, device=each).fit(of, wide[0], relevant) for each in ("cpu", "cuda")]
    assert models[1].support_.device == CUDA
    np.testing.assert_allclose(*(model.score_candidates(wide[0], passages) for model in models), atol=2e-4)


@pytest.mark.parametrize("wide", [False, True], ids=["dense", "sparse"])
def test_candidate_rows_and_pair_features_from_a_device(cupy: Any, wide: bool) -> None:
    index, queries, relevant = world(4)
    queries[3] = 0
    hits = index.search(queries, 3)
    if wide:
        index = PassageIndex(sparse.csr_matrix(index.vectors), index.doc_offsets, doc_ids=index.doc_ids)
        queries = sparse.csr_matrix(queries)
    on_gpu = copy.copy(index)
    on_gpu.vectors, on_it, given = to_device(index.vectors, CUDA), to_device(queries, CUDA), on_device(cupy, hits)
    expected = candidate_rows("end-to-end", hits, relevant, index, queries)
    assert (expected.place < 0).any()  # some passages were added
    features = pair_features(hits, [hits.top(2)])
    for candidates, vectors in ((given, on_it), (hits, queries)):
        found = candidate_rows("end-to-end", candidates, relevant, on_gpu, vectors)
        for name in ("query", "passage", "label", "place"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        found_features = pair_features(candidates, [candidates.top(2)])
        assert isinstance(found_features, np.ndarray)
        np.testing.assert_array_equal(found_features, features)
