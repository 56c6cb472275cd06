"""The worked examples are what their scripts make, wherever the versions are those they were made with."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"
EDITION = ("numpy", "scipy", "scikit-learn", "pandas")  # whose docstrings pydocs is made of


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_page(made: Path) -> None:
    """That it is the page there is, where pydocs is of the same edition."""
    pins = dict(line.split("==") for line in (DOCS.parent / "constraints.txt").read_text().splitlines() if "==" in line)
    if sys.version_info[:2] != (3, 11) or any(version(name) != pins[name] for name in EDITION):
        pytest.skip("another edition of pydocs")
    assert made.read_text(encoding="utf-8") == (DOCS / made.name).read_text(encoding="utf-8")


def test_parm_is_what_the_script_makes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    script("parm_example").make(tmp_path)
    assert "rank 1 of" in (tmp_path / "parm.md").read_text(encoding="utf-8")
    assert (tmp_path / "parm-heatmap.svg").stat().st_size > 10_000
    check_page(tmp_path / "parm.md")


def test_the_examples_of_parm_run() -> None:
    names: dict[str, object] = {}
    for code in script("rankers").EXAMPLE.findall((DOCS / "parm.md").read_text(encoding="utf-8")):
        exec(compile(code[0], "parm.md", "exec"), names)
    assert len(names["found"]["mine"]) == 3


def test_rankers_print_what_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("pyterrier")
    script("rankers").make(tmp_path)
    text = (tmp_path / "rankers.md").read_text(encoding="utf-8")
    assert "```text\n```" not in text  # every example that shall print something does
    check_page(tmp_path / "rankers.md")
