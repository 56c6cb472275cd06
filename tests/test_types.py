"""Test that every public name exists, that the package has no error of types, and that mypy checks its callers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import haybale

ROOT = Path(__file__).parents[1]
TYPING = Path("tests/support/typing")


def test_every_public_name_exists() -> None:
    assert {name for name in haybale.__all__ if getattr(haybale, name).__name__ != name} == set()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        haybale.nothing  # noqa: B018


def test_dir_lists_public_names_only_and_imports_none() -> None:
    """Notebooks complete names from dir(): of haybale and of each package that says what is public."""
    package = Path(haybale.__file__).parent
    packages = [path.parent for path in package.rglob("__init__.py") if "__all__" in path.read_text("utf-8")]
    names = [".".join(("haybale", *path.relative_to(package).parts)) for path in packages]
    assert len(names) > 10
    code = f"""
import importlib, rlcompleter, sys
import haybale
before = set(sys.modules)
assert dir(haybale) == sorted(haybale.__all__)
assert set(sys.modules) == before, set(sys.modules) - before
complete = rlcompleter.Completer({{"haybale": haybale}}).complete
assert complete("haybale.WeightedB", 0).startswith("haybale.WeightedBM25"), complete("haybale.WeightedB", 0)
assert complete("haybale.WeightedB", 1) is None
for name in {[name for name in names if "cli" not in name and "pages" not in name]!r}:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__), name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_mypy_accepts_the_package_and_valid_calls_and_rejects_invalid_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run checks all files, since it takes as long as all others together."""
    mypy = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)
    files = [str(TYPING / name) for name in ("right.py", "wrong.py")]
    found, failed, _ = mypy.run(["haybale", *files, "--no-error-summary", "--hide-error-context", "--no-pretty"])
    assert not failed
    errors = re.findall(r"^(\S+):(\d+): error: .*\[([a-z-]+)\]$", found, re.M)
    assert {path for path, *_ in errors} == {files[1]}, found
    lines = (TYPING / "wrong.py").read_text("utf-8").splitlines()
    expected = {n: line.partition("  # ")[2] for n, line in enumerate(lines, 1) if "  # " in line}
    assert len(expected) > 20
    missed = {lines[n - 1] for n, code in expected.items() if (files[1], str(n), code) not in errors}
    assert not missed, found
    assert {int(n) for _, n, _ in errors} == set(expected)


def test_no_public_name_is_the_name_of_a_module_beside_it() -> None:
    """Otherwise the name would be the module as soon as something imports it."""
    for stub in Path(haybale.__file__).parent.rglob("__init__.pyi"):
        names = set(re.findall(r"\b(\w+) as \1\b", stub.read_text(encoding="utf-8")))
        assert not names & {path.stem for path in stub.parent.iterdir()}, stub
