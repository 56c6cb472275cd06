"""An engine's BM25 indexes with other parameters than their own."""

from __future__ import annotations

from haybale.engine import Engine
from haybale.retrieval import BM25Index


def bm25_with_parameters(engine: Engine, unit: str, k1: float, b: float, k3: float | None) -> BM25Index:
    """Return an engine's BM25 index with these parameters; indexes that differ in ``k3`` only share their weights."""
    name, index = f"bm25-{unit}", engine.bm25(unit)
    if (k1, b) != (index.k1, index.b):
        index = engine.cached((name, k1, b), lambda: index.with_parameters(k1, b))
    return index if k3 is None else engine.cached((name, k1, b, k3), lambda: index.with_parameters(k1, b, k3))
