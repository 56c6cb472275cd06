"""Saved models: loading gives the same predictions without the solver, and changed files are rejected."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.engines import change_manifest
from support.worlds import candidates_with_features, world

from haybale.ensemble import ProductKernelSVR, SVREnsemble
from haybale.ensemble.solvers import solve_sklearn
from haybale.errors import FileFormatError, OutputExistsError, VectorError
from haybale.manifest import digest
from haybale.retrieval import PassageIndex


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "sklearn", "gamma": (2.0, 1.0)},
        {"strategy": "regions", "standardize": True, "gamma": "scale"},
        {"solver": solve_sklearn, "strategy": "rows", "n_bags": np.int64(4)},
        {"eta": 0.5},
    ],
    ids=["sklearn", "regions", "own solver", "features"],
)
def test_an_ensemble_loads_without_its_solver(tmp_path: Path, settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    index, queries, relevant, candidates, features = candidates_with_features()
    values = features if "eta" in settings else None
    ensemble = SVREnsemble(**({"n_bags": 4} | settings))
    ensemble.fit(index, queries, relevant, candidates=candidates, features=values)
    ensemble.save(tmp_path / "model")
    monkeypatch.setattr("haybale.ensemble.svr_ensemble.find_solver", None)
    loaded = SVREnsemble.load(tmp_path / "model", index)
    for method in ("score_candidates", "votes"):
        found = [getattr(model, method)(queries, candidates.passages, values) for model in (loaded, ensemble)]
        np.testing.assert_array_equal(*found)
    own = None if values is None else values[0, 0]
    found, wanted = (model.explain(queries[:1], "3", features=own) for model in (loaded, ensemble))
    assert (found.prediction, found.pairs) == (wanted.prediction, wanted.pairs)
    np.testing.assert_array_equal(found.features, wanted.features)
    expected = ensemble.get_params() | ({"solver": "auto"} if callable(ensemble.solver) else {})
    assert loaded.get_params() == expected
    for name in ("n_rows_", "bag_sizes_", "gamma_", "n_iter_"):
        assert getattr(loaded, name) == getattr(ensemble, name)


def test_a_regressor_loads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 6)), rng.normal(size=80)
    model = ProductKernelSVR(split=3, gamma=[(0.5, 0.7)]).fit(x, y)
    model.save(tmp_path / "model")
    loaded = ProductKernelSVR.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.support_, model.support_)
    with pytest.raises(OutputExistsError, match="model"):
        model.save(tmp_path / "model")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PassageIndex]:
    index, queries, relevant = world()
    folder = tmp_path_factory.mktemp("models") / "model"
    SVREnsemble(3, k=8).fit(index, queries, relevant).save(folder)
    return folder, index


def _tensors(folder: Path, **changes) -> None:
    """Change tensors, and their digest in the manifest."""
    tensors = load_file(folder / "tensors.safetensors") | changes
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / "tensors.safetensors")
    files = json.loads((folder / "manifest.json").read_text())["files"]
    change_manifest(folder, files=files | {"tensors.safetensors": digest(folder / "tensors.safetensors")})


def _flip(folder: Path) -> None:
    path = folder / "tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), "manifest.json"),
        (lambda f: (f / "manifest.json").write_text("{"), "manifest.json, line 1"),
        (lambda f: (f / "manifest.json").write_text("[1]"), "'haybale model'"),
        (lambda f: change_manifest(f, version=1), "version 2.* 1"),
        (lambda f: change_manifest(f, kind="ProductKernelSVR"), "'SVREnsemble'.* 'ProductKernelSVR'"),
        (lambda f: change_manifest(f, gamma=None), "'gamma'"),
        (lambda f: change_manifest(f, files={}), "passages.parquet, queries.parquet, tensors.safetensors"),
        (lambda f: change_manifest(f, parameters={"colour": 1}), "colour"),
        (lambda f: change_manifest(f, parameters={"n_bags": -1}), "'n_bags'"),
        (_flip, "tensors.safetensors"),
        (lambda f: (f / "queries.parquet").unlink(), "queries.parquet"),
        (lambda f: _tensors(f, coef=None), "'coef'"),
        (lambda f: _tensors(f, query=np.full(3, 10**6)), "'query'"),
        (lambda f: _tensors(f, offsets=np.array([0, 1])), "tensors.safetensors"),
        (lambda f: _tensors(f, feature_weights=np.zeros((2, 4))), "tensors.safetensors"),
        (lambda f: _tensors(f, feature_weights=np.full((3, 4), np.inf)), "'feature_weights'"),
        (lambda f: _tensors(f, intercept=np.array([0, 0, np.nan])), "'intercept'"),
    ],
)
def test_changed_files_are_rejected(saved: tuple[Path, PassageIndex], tmp_path: Path, change, message: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved[0], folder)
    change(folder)
    with pytest.raises(FileFormatError, match=message):
        SVREnsemble.load(folder, saved[1])


def test_an_index_of_another_width_is_rejected(saved: tuple[Path, PassageIndex]) -> None:
    with pytest.raises(VectorError, match=r"width 6.* 5$"):
        SVREnsemble.load(saved[0], PassageIndex(np.eye(5)))
