"""The README's example runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        query, passage = re.fullmatch(r"q:(\S+) → (\S+):\d+ -?\d+\.\d+", line).groups()
        assert query != passage  # its own document is left out
