"""A pair encoder, an engine, a run and a store of interactions, the same in every process."""

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

N_CHUNKS = 75  # of the queries of dev, five candidates each, one block a chunk


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


class LoggedPairs(HashPairs):
    """Writes a line whenever it is asked."""

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
    """The store, at so many seconds a chunk."""
    engine, run = case()
    queries = engine.collection.queries
    return interact(engine, queries, run, LoggedPairs(log, seconds=seconds), out, **({"pairs_per_chunk": 1} | how))
