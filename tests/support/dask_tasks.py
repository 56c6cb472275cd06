"""Tasks, solvers and encoders for tests on a cluster, which wait in each task until the test lets them continue."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.solvers import find_solver
from support.encoders import HashEncoder


def report_and_wait(folder: str) -> None:
    """Write a file with the process number as name, and wait until there is a file ``go``."""
    Path(folder, f"{os.getpid()}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)


@dataclass(frozen=True)
class WaitingSolver:
    folder: str

    def __call__(self, problem: Problem) -> Dual:
        report_and_wait(self.folder)
        return find_solver("working-set")(problem)


class WaitingEncoder(HashEncoder):
    def __init__(self, folder: str, after: int = 0) -> None:
        super().__init__()
        self.folder, self.after = folder, after

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if self.calls >= self.after:
            report_and_wait(self.folder)
        return super().encode(texts)


def squared(x: int, vector: np.ndarray, folder: str) -> float:
    report_and_wait(folder)
    return float(vector.sum()) + x * x


def first_after_ten(x: int, folder: str) -> int:
    """Write a file; the first task waits until ten others did, and fails after 30 seconds."""
    Path(folder, f"task {x}").touch()
    end = time.monotonic() + 30
    while x == 0 and len(list(Path(folder).glob("task *"))) < 11:
        if time.monotonic() > end:
            raise TimeoutError("the other tasks wait for the first one")
        time.sleep(0.01)
    return x


def wrong(x: int) -> int:
    raise KeyError(f"task {x}")
