"""Ensembles on a device, against the same on the CPU: trained, scored, explained, saved and loaded.

The problems are solved on the CPU, so what differs is float32 rounding before and after.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError
from worlds import candidates_with_features, world

from haybale.device import CPU, Device, device_of, to_device, to_numpy
from haybale.ensemble import ProductKernelSVR, SVREnsemble, candidate_rows, pair_features
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.smo import solve_product
from haybale.errors import DeviceError, UnknownNameError
from haybale.retrieval import Hits, PassageIndex

CUDA = Device("cuda", 0)


class DeviceIndex(PassageIndex):
    """An index whose vectors are on the device; its hits are the CPU's, in the library of the queries."""

    def search(self, queries: Any, k: int, *, exclude: Any = None) -> Hits:
        found = self.twin.search(to_numpy(queries), k, exclude=exclude)
        return found if device_of(queries).is_cpu else on_device(self.cupy, found)


def on_device(cupy: Any, hits: Hits) -> Hits:
    return Hits(cupy.asarray(hits.passages), cupy.asarray(hits.scores))


def moved(cupy: Any, index: PassageIndex) -> PassageIndex:
    there = copy.copy(index)
    there.__class__, there.twin, there.cupy = DeviceIndex, index, cupy
    there.vectors = cupy.asarray(index.vectors)
    return there


def on_host(problem: Problem) -> Dual:
    """A solver that knows no device, and is given halves that are on one."""
    assert problem.device == CUDA
    return solve_product(problem.to_numpy())


SETTINGS: dict[str, dict[str, Any]] = {
    "queries": {},
    "rows": {"strategy": "rows", "standardize": True, "gamma": "scale"},
    "regions": {"strategy": "regions"},
    "injected": {"protocol": "injected"},
}


def trained(cupy: Any, settings: dict[str, Any]):
    """The same ensemble trained on both, with the index of each."""
    index, queries, relevant = world(3)
    there = moved(cupy, index)
    ours = SVREnsemble(4, k=10, tol=1e-5, solver=on_host, **settings).fit(there, queries, relevant)
    theirs = SVREnsemble(4, k=10, tol=1e-5, **settings).fit(index, queries, relevant)
    return there, index, queries, ours, theirs


@pytest.mark.parametrize("name", SETTINGS)
def test_an_ensemble_on_a_device_is_the_one_on_the_cpu(cupy: Any, name: str, tmp_path: Path) -> None:
    there, index, queries, ours, theirs = trained(cupy, SETTINGS[name])
    assert ours.support_.device == CUDA
    assert isinstance(ours.support_.coef, np.ndarray)
    assert ours.n_rows_ == theirs.n_rows_
    assert ours.bag_sizes_ == theirs.bag_sizes_
    np.testing.assert_allclose(ours.gamma_, theirs.gamma_, rtol=1e-9)
    hits = index.search(queries, 12)
    passages = hits.passages.copy()
    passages[2, 5:] = -1
    expected = theirs.score_candidates(queries, passages)
    found = ours.score_candidates(queries, passages)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)
    for of in (passages, cupy.asarray(passages)):
        there_too = ours.score_candidates(cupy.asarray(queries), of)
        assert isinstance(there_too, cupy.ndarray)
        np.testing.assert_array_equal(to_numpy(there_too), found)
    votes = ours.votes(cupy.asarray(queries), passages)
    assert isinstance(votes, cupy.ndarray)
    assert isinstance(ours.relevant(cupy.asarray(queries), passages), cupy.ndarray)
    # A prediction within rounding of the threshold may fall on either side.
    assert np.mean(to_numpy(votes) != theirs.votes(queries, passages)) < 0.02
    np.testing.assert_array_equal(ours.relevant(queries, passages), to_numpy(votes) >= 1)
    numbers = np.flatnonzero(~theirs.seen_.all(axis=1))
    np.testing.assert_allclose(
        *(model.out_of_bag_scores(numbers, queries[numbers], passages[numbers]) for model in (ours, theirs)), atol=1e-4
    )
    for query in (queries[0], cupy.asarray(queries[0]), cupy.asarray(queries[:1])):
        explanation = ours.explain(query, "3")
        assert explanation.prediction == pytest.approx(theirs.explain(queries[0], "3").prediction, abs=1e-4)
    if theirs.protocol != "injected":
        names = [f"q{i}" for i in range(len(queries))]
        run = ours.rank(queries, names, k=12)
        assert run == ours.rank(cupy.asarray(queries), names, k=12)
        assert run == ours.rank(queries, names, candidates=on_device(cupy, hits))
    # Saved on the device, loaded on either.
    ours.save(tmp_path / "model")
    here = SVREnsemble.load(tmp_path / "model", index)
    assert here.support_.device == CPU
    np.testing.assert_allclose(here.score_candidates(queries, passages), expected, atol=1e-4)
    with pytest.raises(DeviceError, match="query_vectors are on cuda:0, and would meet arrays on cpu"):
        here.score_candidates(cupy.asarray(queries), passages)
    again = SVREnsemble.load(tmp_path / "model", there)
    assert again.support_.device == CUDA
    np.testing.assert_array_equal(again.score_candidates(queries, passages), found)
    assert SVREnsemble.load(tmp_path / "model", there, device="cpu").support_.device == CPU
    assert SVREnsemble.load(tmp_path / "model", index, device="cuda").support_.device == CUDA


def test_the_files_do_not_tell_where_a_model_was(cupy: Any, tmp_path: Path) -> None:
    index, queries, relevant = world(3)
    model = SVREnsemble(3, k=10).fit(index, queries, relevant)
    model.save(tmp_path / "here")
    model.support_ = model.support_.to(CUDA)
    model.set_params(device="cuda").save(tmp_path / "there")
    for file in sorted(path.name for path in (tmp_path / "here").iterdir()):
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()


@pytest.mark.parametrize(("device", "vectors"), [("cuda", "cpu"), ("cpu", "cuda"), ("cuda:0", "cuda")])
def test_an_ensemble_where_its_index_is_not(cupy: Any, device: str, vectors: str) -> None:
    index, queries, relevant = world(3)
    of = index if vectors == "cpu" else moved(cupy, index)
    solver = "product" if device == "cpu" else on_host
    ours = SVREnsemble(4, k=10, tol=1e-5, solver=solver, device=device).fit(of, queries, relevant)
    theirs = SVREnsemble(4, k=10, tol=1e-5).fit(index, queries, relevant)
    assert ours.support_.device == (CPU if device == "cpu" else CUDA)
    names = [f"q{i}" for i in range(len(queries))]
    passages = index.search(queries, 12).passages
    np.testing.assert_allclose(
        ours.score_candidates(queries, passages), theirs.score_candidates(queries, passages), atol=1e-4
    )
    if device != "cpu":
        there = cupy.asarray(queries)
        ours.fit(of, there, relevant)
        assert ours.rank(there, names, k=12) == ours.rank(queries, names, k=12)
    else:
        with pytest.raises(DeviceError, match="query_vectors are on cuda:0, and would meet arrays on cpu"):
            ours.fit(of, cupy.asarray(queries), relevant)


def test_pair_features_and_spaces_on_a_device(cupy: Any, tmp_path: Path) -> None:
    index, queries, relevant, candidates, features = candidates_with_features(2)
    rng = np.random.default_rng(0)
    more = [rng.normal(size=(n, 3)).astype(np.float32) for n in (len(queries), len(index))]
    settings: dict[str, Any] = {"eta": 0.5, "tol": 1e-5}
    theirs = SVREnsemble(4, **settings).fit(
        index, [queries, more[0]], relevant, candidates=candidates, features=features, spaces=[more[1]]
    )
    there = moved(cupy, index)
    ours = SVREnsemble(4, solver=on_host, **settings).fit(
        there,
        [queries, cupy.asarray(more[0])],
        relevant,
        candidates=on_device(cupy, candidates),
        features=cupy.asarray(features),
        spaces=[cupy.asarray(more[1])],
    )
    asked = [cupy.asarray(queries), more[0]]
    expected = theirs.score_candidates([queries, more[0]], candidates.passages, features)
    found = ours.score_candidates(asked, cupy.asarray(candidates.passages), cupy.asarray(features))
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
    one = ours.explain([vectors[0] for vectors in asked], "3", features=cupy.asarray(features)[0, 0])
    other = theirs.explain([queries[0], more[0][0]], "3", features=features[0, 0])
    assert one.prediction == pytest.approx(other.prediction, abs=1e-4)
    ours.save(tmp_path / "model")
    again = SVREnsemble.load(tmp_path / "model", there, spaces=[more[1]])
    np.testing.assert_array_equal(
        again.score_candidates([queries, more[0]], candidates.passages, features), found.get()
    )


def test_what_cannot_be_is_refused(cupy: Any) -> None:
    index, queries, relevant = world(3)
    there = moved(cupy, index)
    with pytest.raises(DeviceError, match="space 1 is on cuda:0, the ensemble on cpu"):
        SVREnsemble(3).fit(index, [queries, queries], relevant, spaces=[there.vectors])
    with pytest.raises(DeviceError, match="query_vectors are on cuda:0, and would meet arrays on cpu"):
        SVREnsemble(3).fit(index, cupy.asarray(queries), relevant)
    with pytest.raises(DeviceError, match="device 'cuda:97' does not exist"):
        SVREnsemble(3, device="cuda:97").fit(index, queries, relevant)
    with pytest.raises(UnknownNameError, match="unknown device 'gpu'"):
        SVREnsemble(3, device="gpu").fit(index, queries, relevant)
    with pytest.raises(InvalidParameterError, match="'device'"):
        SVREnsemble(3, device=0).fit(index, queries, relevant)


def test_a_sparse_space_on_a_device(cupy: Any, tmp_path: Path) -> None:
    """Beside a dense one, or alone: TF-IDF rows on the CPU are scaled, trained on and scored on the device."""
    index, queries, relevant = world(3)
    there = moved(cupy, index)
    wide = [sparse.random(n, 9, 0.5, format="csr", dtype=np.float32) for n in (len(queries), len(index))]
    passages = index.search(queries, 5).passages
    settings: dict[str, Any] = {"k": 10, "tol": 1e-5}
    here = SVREnsemble(3, **settings).fit(index, [queries, wide[0]], relevant, spaces=[wide[1]])
    expected = here.score_candidates([queries, wide[0]], passages)
    mixed = SVREnsemble(3, **settings).fit(there, [queries, wide[0]], relevant, spaces=[wide[1]])
    assert mixed.support_.device == CUDA
    np.testing.assert_allclose(mixed.score_candidates([queries, wide[0]], passages), expected, atol=2e-4)
    mixed.save(tmp_path / "model")
    for device in (None, "cpu"):
        loaded = SVREnsemble.load(tmp_path / "model", there, spaces=[wide[1]], device=device)
        np.testing.assert_allclose(loaded.score_candidates([queries, wide[0]], passages), expected, atol=2e-4)
    of = PassageIndex(wide[1], index.doc_offsets, doc_ids=index.doc_ids)
    alone = [SVREnsemble(3, device=device, **settings).fit(of, wide[0], relevant) for device in ("cpu", "cuda")]
    assert alone[1].support_.device == CUDA
    np.testing.assert_allclose(*(model.score_candidates(wide[0], passages) for model in alone), atol=2e-4)


def test_the_device_is_a_parameter() -> None:
    for estimator in (SVREnsemble(device="cuda"), ProductKernelSVR(device="cuda")):
        assert clone(estimator).get_params()["device"] == "cuda"
        assert type(estimator)().device is None


def test_scoring_in_the_tiles_that_memory_allows(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, index, queries, ours, _ = trained(cupy, {"strategy": "regions"})
    passages = index.search(queries, 12).passages
    expected = ours.score_candidates(queries, passages), ours.votes(queries, passages)
    monkeypatch.setattr(Device, "half_of_memory", lambda self: 60000.0)
    np.testing.assert_allclose(ours.score_candidates(queries, passages), expected[0], atol=1e-5)
    np.testing.assert_array_equal(ours.votes(queries, passages), expected[1])


# rows and features ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True], ids=["dense", "sparse"])
def test_candidate_rows_and_pair_features_from_a_device(cupy: Any, wide: bool) -> None:
    index, queries, relevant = world(4)
    queries[3] = 0
    hits = index.search(queries, 3)
    if wide:
        index = PassageIndex(sparse.csr_matrix(index.vectors), index.doc_offsets, doc_ids=index.doc_ids)
        queries = sparse.csr_matrix(queries)
    there = copy.copy(index)
    there.vectors, on_it, given = to_device(index.vectors, CUDA), to_device(queries, CUDA), on_device(cupy, hits)
    expected = candidate_rows("end-to-end", hits, relevant, index, queries)
    assert (expected.place < 0).any()  # some had to be added by their vectors
    features = pair_features(hits, [hits.top(2)], index, queries, spaces=[(queries, index.vectors)])
    for candidates, vectors in ((given, on_it), (hits, queries)):
        found = candidate_rows("end-to-end", candidates, relevant, there, vectors)
        for name in ("query", "passage", "label", "place"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        spaces = [(vectors, there.vectors)]
        found_features = pair_features(candidates, [candidates.top(2)], there, vectors, spaces=spaces)
        assert isinstance(found_features, np.ndarray)
        np.testing.assert_allclose(found_features, features, atol=1e-6)
    with pytest.raises(DeviceError, match="query_vectors are on cuda:0"):
        pair_features(hits, [], index, on_it)
