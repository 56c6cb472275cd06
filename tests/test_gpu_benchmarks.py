"""The scripts of benchmarks/gpu.md run as they are written: on the CPU, and on CuPy's double with tiny counts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_twins
import numpy as np
import pytest
from cupy_double import HAS_CUDA, installed

from haybale import cuda
from haybale.device import to_numpy

NAMES = ("knn", "svr", "scoring", "parm", "whole")
MORE = {"knn": ["--k", "5"], "svr": ["--rows", "200000"]}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A script by its name; what they import is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    yield lambda name: importlib.import_module(name)
    for name in set(sys.modules) - before:
        if name.startswith(("bench_gpu_", "gpu_report", "synthetic", "provenance")):
            del sys.modules[name]


def ran(scripts: Any, name: str, device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the script wrote."""
    script = scripts(f"bench_gpu_{name}")
    options = ["--device", device, "--scale", "0.0005", "--rounds", "1", "--results", str(folder / "new")]
    monkeypatch.setattr(sys, "argv", [name, *options, *MORE.get(name, [])])
    if name == "knn":
        monkeypatch.setattr(script, "PEAK", 64)
    script.main()
    return (folder / "new" / f"gpu-{name}.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*bags have no relevant row")
@pytest.mark.parametrize("name", NAMES)
def test_on_the_cpu(name: str, scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ran(scripts, name, "cpu", tmp_path, monkeypatch)
    assert "**Not yet run on a GPU.**" in text
    assert "OTHER DOCUMENTS" not in text
    if name == "knn":
        assert "| numpy | 5 |" in text
        assert "| 100.00% | 1.0000 |" in text


@pytest.fixture
def twins(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "launch", kernel_twins.launch)


@pytest.mark.usefixtures("twins")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*bags have no relevant row")
@pytest.mark.parametrize("name", NAMES)
def test_on_the_double(name: str, scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ran(scripts, name, "cuda", tmp_path, monkeypatch)
    assert "Not yet run on a GPU" not in text
    assert "on Double, 16 GiB" in text
    assert "OTHER DOCUMENTS" not in text
    if name == "knn":
        assert "| cupy | 5 |" in text
        assert "| 100.00% | 1.0000 |" in text
        assert "left out: cuvs" in text
    if name == "whole":
        assert "Memory held on the device at the end" in text


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_on_the_device(name: str, scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not HAS_CUDA:
        pytest.skip("no CUDA device")
    text = ran(scripts, name, "cuda", tmp_path, monkeypatch)
    assert "OTHER DOCUMENTS" not in text
    if name == "knn":
        assert "| 100.00% | 1.0000 |" in text


def test_a_device_of_a_number_is_the_current_one(scripts: Any) -> None:
    with installed(devices=2) as double:
        assert scripts("gpu_report").chosen_device("cuda:1").number == 1
        assert double.ones(1).device.id == 1
        made = scripts("synthetic").collection(50, 4, 5, scripts("gpu_report").chosen_device("cuda:1"), np.float16)
        assert made.vectors.device.id == 1
        np.testing.assert_allclose((to_numpy(made.vectors).astype(np.float32) ** 2).sum(axis=1), 1, atol=1e-2)
