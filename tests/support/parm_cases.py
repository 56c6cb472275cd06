"""Hits of random lists for the tests of aggregations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from haybale.retrieval import Hits, Vectors, aggregate
from support.parm_oracle import oracle


@dataclass(frozen=True)
class Case:
    """Hits of the paragraphs of some query documents, and all that an aggregation may be told of them."""

    hits: Hits
    doc_of: np.ndarray
    offsets: np.ndarray
    vectors: Vectors
    whole: bool = False  # scores and vectors are whole numbers

    def aggregate(self, name: str, **options):
        return aggregate(self.hits, name, self.doc_of, self.offsets, vectors=self.vectors, **options)

    def oracle(self, name: str, **options):
        return oracle(name, self.hits, self.doc_of, self.offsets, self.vectors, **options)

    def tolerance(self, name: str, **options) -> np.ndarray:
        """(n,) 1e-5 · (1 + Σ |terms|) of each score: the oracle's score of the absolute values."""
        hits, vectors = Hits(self.hits.passages, np.abs(self.hits.scores)), Vectors(*map(abs, self.vectors))
        terms = replace(self, hits=hits, vectors=vectors).oracle("vmax" if name == "vmin" else name, **options)
        return np.array([1e-5 * (1 + terms[pair]) for pair in sorted(terms)])

    def rows(self, rows: np.ndarray, offsets: np.ndarray) -> Case:
        """Of these paragraphs (rows of the hits), in this order."""
        hits = Hits(self.hits.passages[rows], self.hits.scores[rows])
        vectors = Vectors(self.vectors.passages, self.vectors.paragraphs[rows])
        return replace(self, hits=hits, offsets=offsets, vectors=vectors)


@st.composite
def cases(draw: st.DrawFn, is_sparse: bool | None = None) -> Case:
    """Lists of distinct passages with ties in scores, full, short or empty; few documents, so many hits on each."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    whole = draw(st.booleans())
    n, d, width = draw(st.integers(1, 20)), draw(st.integers(1, 5)), draw(st.integers(1, 30))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    m = sum(lengths)
    passages, scores = np.full((m, width), -1), np.full((m, width), -np.inf, dtype=np.float32)
    for row in range(m):
        count = rng.choice([0, min(n, width), rng.integers(min(n, width) + 1)], p=[0.1, 0.4, 0.5])
        passages[row, :count] = rng.permutation(n)[:count]
        values = rng.integers(-3, 6, size=count) if whole else rng.choice([-0.7, 0.1, 0.3, 0.31, 1.4], size=count)
        scores[row, :count] = -np.sort(-values)
    shapes = (n, d), (m, d)
    if whole:
        matrices = [rng.integers(-3, 4, size=shape) for shape in shapes]
    else:
        matrices = [rng.normal(size=shape) * (rng.random(shape) < 0.7) for shape in shapes]
    matrices = [matrix.astype(np.float32) for matrix in matrices]
    if draw(st.booleans()) if is_sparse is None else is_sparse:
        matrices = [sparse.csr_matrix(matrix) for matrix in matrices]
    doc_of = np.sort(rng.integers(draw(st.integers(1, 6)), size=n))
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return Case(Hits(passages, scores), doc_of, offsets, Vectors(*matrices), whole)


@st.composite
def options(draw: st.DrawFn, case: Case) -> dict:
    width = case.hits.passages.shape[1]
    return {
        "rrf_k": draw(st.sampled_from([60.0, 0.0, 0.5])),
        "n_hits": draw(st.sampled_from([None, max(1, width - 2), width + 7])),
    }


def pairs_of(result) -> list[tuple[int, int]]:
    return list(zip(result[0].tolist(), result[1].tolist(), strict=True))


def assert_same(one, other) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)
