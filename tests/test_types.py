"""Test that every public name exists, that the package has no error of types, and that mypy checks its callers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import haybale

ROOT = Path(__file__).parents[1]
TYPING = Path("tests/support/typing")


def test_every_public_name_exists() -> None:
    assert {name for name in haybale.__all__ if getattr(haybale, name).__name__ != name} == set()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        haybale.nothing  # noqa: B018


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
