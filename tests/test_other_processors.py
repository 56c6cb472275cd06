"""What must hold on any processor, held to it with the kernels that OpenBLAS has for another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_features__ as features

TESTS = Path(__file__).parent
ANYWHERE = "does_not_depend_on_the_rows or subset_invariance or does_not_matter_where_in_memory"


@pytest.mark.skipif(not features.get("SSE42"), reason="this processor has no other kernels than its own")
def test_what_holds_here_holds_there() -> None:
    """With another BLAS the setting does nothing, and the same tests are done once more."""
    other = "Haswell" if features.get("AVX512_SKX") else "Nehalem"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", ANYWHERE]
    done = subprocess.run(
        [*command, str(TESTS / "ensemble" / "test_product_kernel_svr.py"), str(TESTS / "test_bag_tasks.py")],
        env={**os.environ, "OPENBLAS_CORETYPE": other, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{other}: {done.stdout}"
