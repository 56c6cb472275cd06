"""A fast encoder for tests, with exact results that are the same in every process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import numpy as np


class HashEncoder:
    """Encode a text as eight numbers from its hash; wait ``seconds`` in every call."""

    dim = 8

    def __init__(self, salt: str = "", seconds: float = 0.0) -> None:
        self.salt, self.seconds = salt, seconds
        self.calls = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += 1
        time.sleep(self.seconds)
        digests = [hashlib.sha256((self.salt + text).encode()).digest()[: self.dim] for text in texts]
        return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, self.dim).astype(np.float32) / 256

    def describe(self) -> dict[str, object]:
        return {"class": "HashEncoder", "salt": self.salt, "width": self.dim}
