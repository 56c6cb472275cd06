"""The page of costs is what its script makes of the committed curves; its arithmetic, by hand."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def scaling() -> Any:
    spec = importlib.util.spec_from_file_location("scaling", ROOT / "docs" / "scaling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_makes(scaling: Any, tmp_path: Path) -> None:
    scaling.make(tmp_path)
    page = (tmp_path / "scaling.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert "{" not in page


def test_arithmetic(scaling: Any) -> None:
    assert scaling.LAYER_WEIGHTS == 84_934_656  # 12 layers of a base-size encoder, without embeddings
    assert scaling.gpus(3_095_383) == 1
    assert scaling.gpus(10_000_000_000) == math.ceil(10**10 * 1536 / (0.8 * 141e9))
    square = [{"n": n, "seconds": 3.0 * n**2} for n in (10, 20, 40)]
    assert scaling.exponent(square) == pytest.approx(2)
    assert scaling.curve_at(square, 100) == pytest.approx(30_000)
    assert [scaling.duration(s) for s in (5, 600, 86400 * 3, 3e8)] == ["5 s", "10 minutes", "3 days", "10 years"]


def test_every_curve_of_the_page_was_measured(scaling: Any) -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "scaling.json").read_text(encoding="utf-8"))
    for name, points in found["curves"].items():
        assert len(points) >= 2, name
        assert all(point["seconds"] > 0 for point in points), name
    assert "with changes" not in found["provenance"]
