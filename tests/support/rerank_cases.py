"""A pair encoder, an engine, a run and an interaction store that are the same in every process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from haybale import Engine, Run, interact, parse
from support.topics import topic_collection

N_CHUNKS = 75  # 15 dev queries with five candidates each, one block per chunk


class HashPairs:
    """Encode a pair as numbers from its hash, between -0.5 and 0.5 and exact in float16."""

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


class LoggedPairs(HashPairs):
    """Write a line to a file in every call."""

    def __init__(self, log: str | Path, **how: Any) -> None:
        super().__init__(**how)
        self.log = log

    def encode(self, firsts: Any, seconds: Any, which: Any) -> np.ndarray:
        found = super().encode(firsts, seconds, which)
        with open(self.log, "a") as file:
            file.write(f"{firsts[0]}|{seconds[0]}\n")
        return found


@cache
def case() -> tuple[Engine, Run]:
    engine = Engine(topic_collection())
    return engine, parse("bm25-doc").fit(engine).rank("dev", depth=5)


def write(out: str | Path, seconds: float, log: str | Path, **how: Any) -> Any:
    """Write the interaction store; every chunk takes ``seconds``."""
    engine, run = case()
    queries = engine.collection.queries
    return interact(engine, queries, run, LoggedPairs(log, seconds=seconds), out, **({"pairs_per_chunk": 1} | how))
