"""An engine, a run and a store of interactions, the same in every process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from haybale import Engine, Run, interact, parse
from support.hash_pairs import HashPairs
from support.topics import topic_collection

N_CHUNKS = 75  # of the queries of dev, five candidates each, one block a chunk


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
