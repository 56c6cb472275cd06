"""Tests that must pass on any processor, repeated with the kernels of OpenBLAS for another processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_features__ as features

TESTS = Path(__file__).parent
ANYWHERE = "does_not_depend_on_the_rows or subset_invariance or does_not_matter_where_in_memory"


def names_in(path: Path) -> bool:
    return any(name in path.read_text() for name in ANYWHERE.split(" or "))


@pytest.mark.skipif(not features.get("SSE42"), reason="OpenBLAS has no second kernel for this processor")
@pytest.mark.thorough
def test_results_hold_on_another_processor() -> None:
    """Other BLAS libraries ignore the setting; the tests then run a second time unchanged."""
    other = "Haswell" if features.get("AVX512_SKX") else "Nehalem"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", ANYWHERE]
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__) and names_in(path)]
    assert files
    done = subprocess.run(
        [*command, *map(str, files)],
        env={**os.environ, "OPENBLAS_CORETYPE": other, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{other}: {done.stdout}"
