"""bench_gpu.py: its parts on the CPU and on the stand-in for CuPy, and each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cupy_double import HAS_CUDA

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GPU_ARRAYS = ("doctor", "knn", "bags", "compare-dense", "whole", "bag", "scoring", "parm")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", "double", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.thorough
def test_small_gpu(device: str, ran: Any, script: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if device == "cuda" and not HAS_CUDA:
        pytest.skip("no CUDA device")
    if device == "double":
        request.getfixturevalue("cupy_double")
    on = "cpu" if device == "cpu" else "cuda"
    how = ("--device", on, "--scale", "0.0003", "--rounds", "1", "--here")
    with pytest.raises(SystemExit) as left:
        ran("bench_gpu", "gpu.md", *GPU_ARRAYS, *how)
    page, record = (tmp_path / "gpu.md").read_text("utf-8"), json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert {name: part["status"] for name, part in record["parts"].items()} == dict.fromkeys(GPU_ARRAYS, "done")
    assert not left.value.code
    assert "OTHER DOCUMENTS" not in page
    searched = [line["cells"] for line in record["parts"]["knn"]["lines"] if len(line.get("cells", [])) > 5]
    assert len(searched) >= 2
    assert {cells[-1] for cells in searched} == {"20 of 20"}
    differences = [line["cells"][-1] for line in record["parts"]["bag"]["lines"] if "cells" in line]
    assert all(float(each) <= 2e-3 for each in differences if each)
    assert record["card"].startswith("**Not run on a GPU.**") == (on == "cpu")


@pytest.mark.thorough
def test_parts_on_a_device_end_alone(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that crashes, hangs or fails leaves its lines and says what ended it; the next ones run."""
    gpu = script("bench_gpu")
    copy = tmp_path / "bench_ends.py"
    copy.write_text(
        f"""
import os, signal, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
import bench_gpu

def crashes(bench):
    yield "before the crash"
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(bench):
    yield "before the hang"
    time.sleep(600)

def fails(bench):
    yield "before the error"
    raise ValueError("no such kernel")

def lacks(bench):
    yield "before the import"
    bench_gpu.gpu_whole.import_optional("no_such_package", "neural")

def works(bench):
    yield bench_gpu.gpu_arrays.Cells("name | value", ("a", 1.5))
    yield bench_gpu.gpu_arrays.Cells("name | value", ("b", 2))

parts = {{work.__name__: bench_gpu.Part(work.__name__, work, 12) for work in (crashes, hangs, fails, lacks, works)}}
bench_gpu.PARTS, bench_gpu.__file__, bench_gpu.MARGIN = parts, __file__, 30
bench_gpu.main()
"""
    )
    command = [sys.executable, str(copy), "--device", "cpu", "--results", str(tmp_path / "out")]
    done = subprocess.run([*command, "crashes", "hangs", "fails", "lacks", "works"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    record = json.loads((tmp_path / "out" / "gpu.json").read_text("utf-8"))["parts"]
    assert [part["lines"][0].get("text") for part in record.values()] == [
        "before the crash", "before the hang", "before the error", "before the import", None,
    ]  # fmt: skip
    assert record["crashes"]["status"].startswith("crashed by SIGSEGV\n")
    assert record["hangs"]["status"].startswith("stopped after 12 s\n")
    assert "in hangs" in record["hangs"]["status"]  # where it was
    assert "ValueError: no such kernel" in record["fails"]["status"]
    assert record["lacks"]["status"] == "left out"
    assert "no_such_package is not installed" in record["lacks"]["lines"][1]["text"]
    assert record["works"]["status"] == "done"
    page = (tmp_path / "out" / "gpu.md").read_text("utf-8")
    assert "| a | 1.5 |\n| b | 2 |\n" in page
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gpu.json", "gpu.md"]
    assert gpu.gpu_whole.outcome_of("[gw1] [ 12%] PASSED tests/a.py::test_b[x y] ") == (
        "tests/a.py::test_b[x y]",
        "PASSED",
    )
    assert gpu.gpu_whole.outcome_of("tests/a.py::test_b SKIPPED (no)  [ 3%]") == ("tests/a.py::test_b", "SKIPPED")
    assert gpu.gpu_whole.outcome_of("1 passed, 2 skipped") is None
