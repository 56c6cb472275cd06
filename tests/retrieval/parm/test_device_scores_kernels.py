"""The kernels of device_scores.cu on the CPU: aggregations with blocks of several threads, and single kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import cupy_kernels
from support.cuda_on_cpu import kernels_of

import haybale.retrieval.parm
from haybale.device import to_numpy
from haybale.errors import InputError
from haybale.retrieval import AGGREGATIONS, Hits, ParagraphSearch, PassageIndex, Vectors, aggregate
from haybale.retrieval.parm import device_scores
from haybale.retrieval.parm.formulas import round_for_sums

SOURCE = Path(haybale.retrieval.parm.__file__).with_name("device_scores.cu")
THREADS = st.sampled_from([1, 32, 64, 96])
ORDERS = st.integers(0, 3)


def draw_hits(rng: np.random.Generator, n: int, rows: int, width: int) -> Hits:
    """Return hits on n passages with ties, and rows that are full, short or empty."""
    passages, scores = np.full((rows, width), -1), np.full((rows, width), -np.inf, dtype=np.float32)
    for row in range(rows):
        count = rng.choice([0, min(n, width), rng.integers(min(n, width) + 1)], p=[0.1, 0.4, 0.5])
        passages[row, :count] = rng.permutation(n)[:count]
        scores[row, :count] = -np.sort(-rng.choice([-0.7, 0.0, 0.1, 0.3, 0.31, 1.4], size=count))
    return Hits(passages, scores)


def draw_lengths(rng: np.random.Generator) -> Any:
    """Return the numbers of paragraphs of query documents, some of which have none."""
    return rng.choice([0, 1, 2, 5], size=rng.integers(1, 6))


@pytest.mark.parametrize("occurrences", ["all", "best"])
@pytest.mark.parametrize("name", AGGREGATIONS)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(seed=st.integers(0, 2**32 - 1), threads=THREADS, order=ORDERS, half=st.booleans(), one_block=st.booleans())
def test_scores_equal_those_of_the_cpu(
    cupy_double: Any, name: str, occurrences: str, seed: int, threads: int, order: int, half: bool, one_block: bool
) -> None:
    """Scores without vectors have the same bits; those with vectors agree to 1e-6 of the largest."""
    rng = np.random.default_rng(seed)
    n, d, lengths = int(rng.integers(1, 40)), int(rng.integers(1, 70)), draw_lengths(rng)
    hits = draw_hits(rng, n, int(lengths.sum()), int(rng.integers(1, 20)))
    passages = rng.normal(size=(n, d)).astype(np.float16 if half else np.float32)
    passages[rng.random(n) < 0.2] = 0
    paragraphs = rng.normal(size=(len(hits), d)).astype(np.float32)
    # Some documents have no passage; in some cases, all have one, or there is one document.
    doc_of = np.sort(rng.integers(rng.choice([1, 5, 50]), size=n)) if rng.random() < 0.7 else np.arange(n)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    options: dict[str, Any] = {"occurrences": occurrences, "n_hits": [None, 3][rng.integers(2)], "rrf_k": 1.0}
    expected = aggregate(hits, name, doc_of, offsets, vectors=Vectors(passages, paragraphs), **options)
    on_device = Hits(cupy_double.asarray(hits.passages), cupy_double.asarray(hits.scores))
    vectors = Vectors(cupy_double.asarray(passages), cupy_double.asarray(paragraphs))
    results = []
    for n_threads, n_order in ((threads, order), (threads, order + 1), (1, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cupy_kernels, "MOST_THREADS", n_threads)
            patch.setattr(cupy_kernels, "ORDER", n_order)
            if one_block:
                patch.setattr(device_scores, "_MAX_BLOCKS", 1)
            columns = aggregate(on_device, name, doc_of, offsets, vectors=vectors, **options)
        results.append([to_numpy(column) for column in columns])
    for left, right in zip(*results[:2], strict=True):  # the order of threads and blocks changes no bit
        np.testing.assert_array_equal(left, right)
    tolerance = 0.0 if AGGREGATIONS[name].vectors is None else 1e-6 * np.abs(expected[2]).max(initial=1e-30)
    for query, document, score in results:
        np.testing.assert_array_equal(query, expected[0])
        np.testing.assert_array_equal(document, expected[1])
        np.testing.assert_allclose(score, expected[2], rtol=0, atol=tolerance)
        assert [column.dtype for column in (query, document, score)] == [column.dtype for column in expected]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 70), THREADS, ORDERS)
def test_paragraphs_are_reduced(seed: int, d: int, threads: int, order: int) -> None:
    """Sums have the bits of the CPU, whose order differs."""
    rng, kernels = np.random.default_rng(seed), kernels_of(SOURCE)
    lengths = draw_lengths(rng)
    n, offsets = len(lengths), np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    rows = (rng.normal(size=(offsets[-1], d)) * 10.0 ** rng.integers(-5, 6, (offsets[-1], d))).astype(np.float32)
    rows[rng.random(len(rows)) < 0.2] = 0
    rounded = round_for_sums(rows.astype(np.float64), np.repeat(np.arange(n), lengths), n, lengths)
    for how, (reduce, values) in enumerate(((np.sum, rounded), (np.min, rows), (np.max, rows))):
        out = np.full((n, d), np.nan)
        arguments = [rows, offsets, np.int64(d), np.int32(how), out]
        kernels.launch("reduce_paragraphs", [n], [threads], arguments, 8 * threads, order)
        for query in range(n):
            part = values[offsets[query] : offsets[query + 1]]
            np.testing.assert_array_equal(out[query], reduce(part, axis=0) if len(part) else np.zeros(d))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 300), THREADS, ORDERS, st.integers(1, 3))
def test_the_largest_passage(seed: int, size: int, threads: int, order: int, blocks: int) -> None:
    passages, out = np.random.default_rng(seed).integers(-1, 2**40, size), np.zeros(blocks, dtype=np.int64)
    arguments = [passages if size else np.zeros(1, dtype=np.int64), np.int64(size), out]
    kernels_of(SOURCE).launch("largest_passages", [blocks], [threads], arguments, 8 * threads, order)
    assert out.max() == passages.max(initial=-1)


def test_every_value_of_float16() -> None:
    """The products of 1 with all finite values are these values, subnormal numbers included."""
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)]
    n = len(values)
    keys, terms = np.arange(n), np.full(n, np.nan)
    scores, weights, one = np.zeros(n, dtype=np.float32), np.ones(n), np.ones((1, 1))
    sizes = np.int64(n), np.int64(1), np.int64(n), np.int64(n)
    arguments = [keys, keys.copy(), scores, weights, np.int32(1), values.view(np.uint16), one, *sizes, terms]
    kernels_of(SOURCE).launch("weigh_products_float16", [8], [1], arguments)
    np.testing.assert_array_equal(terms, values.astype(np.float64))


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_explanations_sum_to_the_scores(cupy_double: Any, name: str) -> None:
    rng = np.random.default_rng(2)
    vectors, queries = (rng.normal(size=(n, 6)).astype(np.float32) for n in (40, 3))
    offsets = np.sort(np.concatenate(([0, 40], rng.choice(np.arange(1, 40), 12, replace=False))))
    runs, reasons = [], []
    for device in ("cuda", "cpu"):
        ranker = ParagraphSearch(PassageIndex(vectors, offsets, device=device), name, n_hits=10)
        runs.append(ranker.rank(["q"], [queries])["q"])
        reasons.append([ranker.explain(queries, doc_id) for doc_id, _ in runs[-1]])
    assert [doc_id for doc_id, _ in runs[0]] == [doc_id for doc_id, _ in runs[1]]
    for (_, score), rank, reason, of_cpu in zip(runs[0], range(1, 99), *reasons, strict=False):
        assert (reason.score, reason.rank, reason.n_documents) == (score, rank, len(runs[0]))
        np.testing.assert_array_equal(reason.ranks, of_cpu.ranks)
        np.testing.assert_allclose(reason.share, of_cpu.share, rtol=1e-5, atol=1e-6)
        assert reason.share.sum() == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize("m", [0, 2])
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_no_hits(cupy_double: Any, name: str, m: int) -> None:
    hits = Hits(cupy_double.full((m, 3), -1), cupy_double.full((m, 3), -np.inf, dtype=np.float32))
    vectors = Vectors(*(cupy_double.ones((n, 1), dtype=np.float32) for n in (2, m)))
    for offsets in (None, np.array([0, 0, m])):
        columns = aggregate(hits, name, np.array([0, 1]), offsets, vectors=vectors)
        assert [column.shape for column in columns] == [(0,)] * 3
        assert all(isinstance(column, cupy_double.ndarray) for column in columns)


def test_large_numbers_of_passages_are_refused(cupy_double: Any) -> None:
    hits = Hits(cupy_double.asarray(np.array([[0, 7], [2, -1]])), cupy_double.ones((2, 2), dtype=np.float32))
    with pytest.raises(InputError, match=r"below 7, found 7"):
        aggregate(hits, "rrf", np.arange(7))


@pytest.mark.parametrize("name", ["rrf", "vrrf", "vmin"])
def test_blocks_of_few_queries_change_no_bit(cupy_double: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    hits = draw_hits(rng, 30, 24, 8)
    on_device = Hits(cupy_double.asarray(hits.passages), cupy_double.asarray(hits.scores))
    vectors = Vectors(*(cupy_double.asarray(rng.normal(size=(n, 5)).astype(np.float32)) for n in (30, 24)))
    call = (on_device, name, np.arange(30) // 3, np.array([0, 3, 3, 9, 10, 24]))
    at_once = aggregate(*call, vectors=vectors)
    monkeypatch.setattr(sys.modules[aggregate.__module__], "_MAX_DEVICE_BYTES", 1)
    for left, right in zip(at_once, aggregate(*call, vectors=vectors), strict=True):
        np.testing.assert_array_equal(to_numpy(left), to_numpy(right))
