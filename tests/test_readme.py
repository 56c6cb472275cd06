"""The README's examples run as they stand there, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_python_examples_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len([line for line in first.splitlines() if line.strip()]) <= 15
    names: dict[str, Any] = {}
    exec(compile(first, "README.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        query, passage = re.fullmatch(r"q:(\S+) → (\S+):\d+ -?\d+\.\d+", line).groups()
        assert query != passage  # its own document is left out
    names["SVREnsemble"] = type(names["ensemble"])
    for example in others:
        exec(compile(example, "README.md", "exec"), names)
    assert "other training pairs" in capsys.readouterr().out
    assert (tmp_path / "model" / "manifest.json").is_file()
