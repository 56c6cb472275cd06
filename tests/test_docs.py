"""The worked example is what its script makes, wherever the versions are those it was made with."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_page_is_what_the_script_makes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("parm_example", ROOT / "docs" / "parm_example.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(tmp_path)
    page = (tmp_path / "parm.md").read_text(encoding="utf-8")
    assert "rank 1 of" in page
    assert (tmp_path / "parm-heatmap.svg").stat().st_size > 10_000
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    edition = ("numpy", "scipy", "scikit-learn", "pandas")  # whose docstrings pydocs is made of
    if sys.version_info[:2] != (3, 11) or any(version(name) != pins[name] for name in edition):
        pytest.skip("another edition of pydocs")
    assert page == (ROOT / "docs" / "parm.md").read_text(encoding="utf-8")
