"""A Python process that imports haybale once and then forks workers, which tests can kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


class Nursery:
    """Run ``code``, which reads a line for each worker and answers in lines."""

    def __init__(self, code: str, *arguments: str | Path) -> None:
        command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen(command, cwd=Path(__file__).parents[1], **pipes)

    def tell(self, *words: object) -> None:
        print(*words, sep="\t", file=self._process.stdin, flush=True)

    def answer(self) -> str:
        return str(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()
