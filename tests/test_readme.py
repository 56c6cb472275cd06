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
    assert len([line for line in first.splitlines() if line.strip()]) == 5
    names: dict[str, Any] = {}
    exec(compile(first, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{names['run']['q1'][0][0]}: rank 1, learned ")
    assert "term interpol" in printed
    assert "training query" in printed
    for example in others:
        exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "my.note" in printed
    assert "learned(bm25-doc(k1=3),parm-vrrf,svr-doc(n_bags=16),knn-queries(k=20))" in printed
