"""Aggregations against dictionaries and loops, written from the formulas of the PARM paper."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import AGGREGATIONS, Hits, PassageIndex, Vectors, aggregate
from haybale.retrieval import aggregation as aggregation_module


def oracle(name, hits, doc_of, offsets, vectors, rrf_k):
    """{(query, document): score}, one hit at a time."""
    scores: dict[tuple[int, int], float] = defaultdict(float)
    for query in range(len(offsets) - 1):
        summed = vectors.paragraphs[offsets[query] : offsets[query + 1]].astype(np.float64).sum(axis=0)
        aggregated = defaultdict(lambda: np.zeros(vectors.passages.shape[1]))
        for paragraph in range(offsets[query], offsets[query + 1]):
            for rank, (passage, score) in enumerate(
                zip(hits.passages[paragraph], hits.scores[paragraph], strict=True), start=1
            ):
                if passage < 0:
                    continue
                pair = (query, int(doc_of[passage]))
                if name == "maxp":
                    scores[pair] = max(scores.get(pair, -np.inf), float(score))
                elif name == "rrf":
                    scores[pair] += 1 / (rrf_k + rank)
                else:  # d̂ = Σ rrf · p̂, score = ⟨q̂, d̂⟩
                    aggregated[pair] += vectors.passages[passage].astype(np.float64) / (rrf_k + rank)
        for pair, vector in aggregated.items():
            scores[pair] = float(summed @ vector)
    return dict(scores)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(AGGREGATIONS)))
def test_aggregations_are_the_oracles(data: st.DataObject, seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    n, d = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 5))
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(sum))
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    doc_of = np.sort(rng.integers(data.draw(st.integers(1, 6)), size=n))
    vectors = Vectors(rng.normal(size=(n, d)).astype(np.float32), rng.normal(size=(offsets[-1], d)).astype(np.float32))
    starts = np.concatenate(([0], np.cumsum(np.bincount(doc_of))))
    own = rng.integers(-1, len(starts) - 1, size=offsets[-1])  # makes short and empty rows
    hits = PassageIndex(vectors.passages, starts).search(vectors.paragraphs, data.draw(st.integers(1, n)), exclude=own)
    query, document, score = aggregate(hits, name, doc_of, offsets, vectors=vectors, rrf_k=60)
    found = dict(zip(zip(query.tolist(), document.tolist(), strict=True), score.tolist(), strict=True))
    assert len(found) == len(score)
    assert found == pytest.approx(oracle(name, hits, doc_of, offsets, vectors, 60), abs=1e-5)


def test_vrrf_in_parts_is_vrrf_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    vectors = Vectors(rng.normal(size=(200, 8)).astype(np.float32), rng.normal(size=(30, 8)).astype(np.float32))
    index = PassageIndex(vectors.passages, np.arange(0, 201, 10))
    hits, offsets = index.search(vectors.paragraphs, 50), np.arange(0, 31, 3)
    at_once = aggregate(hits, "vrrf", index.doc_of, offsets, vectors=vectors)
    monkeypatch.setattr(aggregation_module, "_GATHERED", 100)
    in_parts = aggregate(hits, "vrrf", index.doc_of, offsets, vectors=vectors)
    for whole, part in zip(at_once, in_parts, strict=True):
        np.testing.assert_allclose(whole, part, rtol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    hits = Hits(np.array([[0, 1]]), np.ones((1, 2), dtype=np.float32))
    doc_of = np.array([0, 1])
    with pytest.raises(UnknownNameError, match="known: maxp, rrf, vrrf"):
        aggregate(hits, "best", doc_of)
    with pytest.raises(InputError, match="'vrrf' needs vectors"):
        aggregate(hits, "vrrf", doc_of)
    with pytest.raises(InputError, match="offsets end at 2, but there are hits of 1"):
        aggregate(hits, "rrf", doc_of, np.array([0, 2]))
    vectors = Vectors(np.ones((2, 1), dtype=np.float32), np.ones((3, 1), dtype=np.float32))
    with pytest.raises(InputError, match="3 paragraph vectors for 1 paragraphs"):
        aggregate(hits, "vrrf", doc_of, vectors=vectors)


def test_no_hits_at_all() -> None:
    hits = Hits(np.full((2, 3), -1), np.full((2, 3), -np.inf, dtype=np.float32))
    vectors = Vectors(np.ones((2, 1), dtype=np.float32), np.ones((2, 1), dtype=np.float32))
    for name in AGGREGATIONS:
        assert [len(column) for column in aggregate(hits, name, np.array([0, 1]), vectors=vectors)] == [0, 0, 0]
