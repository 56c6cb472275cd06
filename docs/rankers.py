"""Runs the examples of docs/rankers.md.

    python docs/rankers.py [FOLDER]

One after the other; what each prints is written below it.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.S)


def make(folder: Path) -> None:
    """Write rankers.md."""
    (folder / "rankers.md").write_text(page((HERE / "rankers.md").read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """The page with what its examples print now, each run in a folder that is thrown away."""
    names: dict[str, Any] = {"__name__": "rankers"}

    def run(match: re.Match[str]) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(match["code"], "rankers.md", "exec"), names)
        example = f"```python\n{match['code']}```\n"
        return example if match["output"] is None else f"{example}\n```text\n{printed.getvalue()}```\n"

    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        return EXAMPLE.sub(run, text)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
