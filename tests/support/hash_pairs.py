"""A pair encoder for tests of what surrounds it: fast, exact, the same in every process, and slow where it shall be."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np


class HashPairs:
    """Numbers from the hash of both texts, between -0.5 and 0.5, which float16 holds."""

    def __init__(self, dim: int = 6, salt: str = "", seconds: float = 0.0) -> None:
        self.dim, self.salt, self.seconds = dim, salt, seconds
        self.pairs: list[tuple[str, str]] = []

    def encode(self, firsts: Sequence[str], seconds: Sequence[str], which: Any) -> np.ndarray:
        time.sleep(self.seconds)
        pairs = [(firsts[i], seconds[j]) for i, j in which.tolist()]
        self.pairs += pairs
        return np.stack([self.one(*pair) for pair in pairs])

    def one(self, first: str, second: str) -> np.ndarray:
        digest = hashlib.sha256(f"{self.salt}|{first}|{second}".encode()).digest()[: self.dim]
        return np.frombuffer(digest, dtype=np.uint8).astype(np.float32) / 256 - 0.5

    def padding(self) -> np.ndarray:
        return np.full(self.dim, 0.125, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "HashPairs", "salt": self.salt, "width": self.dim}
