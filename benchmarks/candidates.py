"""The training data that the benchmarks of the regressor share: candidate rows of a collection's training queries.

20 BM25 and 20 nearest passages of every training query, LSA vectors of 768 numbers, so that [q ; p] has the 1,536
features of the paper's Longformer. Made once and kept in a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haybale.engine import Engine
from haybale.ensemble import CandidateRows, candidate_rows
from haybale.rankers import BM25, KNN, Training
from haybale.retrieval import pool
from haybale.stages import listening

WIDTH = 768


@dataclass
class Candidates:
    """Vectors (m, 768) and (n_passages, 768) float32, and the rows over them."""

    name: str
    queries: np.ndarray
    passages: np.ndarray
    rows: CandidateRows

    def sample(self, n: int, *, unique: bool = False, seed: int = 0) -> np.ndarray:
        """Numbers of about n rows, whole queries in random order; ``unique``: no passage occurs twice."""
        starts = np.searchsorted(self.rows.query, np.arange(len(self.queries) + 1))
        order = np.random.default_rng(seed).permutation(len(self.queries))
        chosen = np.concatenate([np.arange(starts[q], starts[q + 1]) for q in order])
        if unique:
            _, first = np.unique(self.rows.passage[chosen], return_index=True)
            chosen = chosen[np.sort(first)]
        return np.sort(chosen[:n])

    def features(self, chosen: np.ndarray) -> np.ndarray:
        """(n, 1536) float32 [q ; p]."""
        return np.concatenate([self.queries[self.rows.query[chosen]], self.passages[self.rows.passage[chosen]]], axis=1)

    def half(self, chosen: np.ndarray) -> tuple[np.ndarray, ...]:
        """``(Q, P, query_index, passage_index, y)`` of rows, for ``fit_pairs``."""
        used_q, query = np.unique(self.rows.query[chosen], return_inverse=True)
        used_p, passage = np.unique(self.rows.passage[chosen], return_inverse=True)
        labels = self.rows.label[chosen].astype(np.float64)
        return self.queries[used_q], self.passages[used_p], query, passage, labels


def load(collection: str, cache: Path) -> Candidates:
    """The candidates of a collection, from the cache if it has them."""
    name = Path(collection).name
    path = cache / f"{name}-{WIDTH}.npz"
    if not path.exists():
        with listening(lambda stage, seconds: print(f"  {stage} {seconds:.0f} s", flush=True)):
            engine = Engine(collection, encoder="lsa", width=WIDTH)
            batch, index = Training.of(engine).batch, engine.passages
            found = pool(*(ranker.passage_hits(batch, 20) for ranker in (BM25(), KNN())))
        pairs = engine.collection.split("train").relevant_rows()
        rows = candidate_rows("end-to-end", found, pairs, index, batch.vectors)
        cache.mkdir(parents=True, exist_ok=True)
        columns = {"query": rows.query, "passage": rows.passage, "label": rows.label}
        np.savez(path, queries=batch.vectors, passages=index.vectors, **columns)
    stored = np.load(path)
    return Candidates(
        name, stored["queries"], stored["passages"], CandidateRows(stored["query"], stored["passage"], stored["label"])
    )
