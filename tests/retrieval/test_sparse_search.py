"""Exact search over sparse vectors, for the CPU and for a device, compared with dense products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.device import Device, to_device
from haybale.errors import InputError
from haybale.retrieval import PassageIndex
from haybale.vectors import check_sparse


def random_csr(rng: np.random.Generator, n: int, d: int, density: float = 0.3, values: int = 3) -> sparse.csr_matrix:
    """Return a matrix of few distinct values, so that ties are frequent; some rows are empty."""
    dense = rng.integers(1, values + 1, size=(n, d)) * (rng.random((n, d)) < density)
    return sparse.csr_matrix(dense.astype(np.float32))


def oracle(queries: Any, passages: Any, k: int, doc_of: Any, own: Any) -> tuple[Any, Any]:
    """Return the hits by one float64 product at a time; passages without a common term are no hits."""
    rows, values = [], []
    for i, query in enumerate(queries.toarray().astype(np.float64)):
        scores = []
        for j, passage in enumerate(passages.toarray().astype(np.float64)):
            common = np.any((query != 0) & (passage != 0)) and not (own[i] >= 0 and doc_of[j] == own[i])
            scores.append(np.float32(sum(query * passage)) if common else -np.inf)
        order = sorted(range(len(scores)), key=lambda j: (-scores[j], str(doc_of[j]), j))[:k]
        rows.append([j if np.isfinite(scores[j]) else -1 for j in order])
        values.append([scores[j] for j in order])
    return np.array(rows), np.array(values, dtype=np.float32)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), memory=st.sampled_from([1.0, 1e9]))
def test_hits_equal_the_oracles(
    cupy: Any, data: st.DataObject, seed: int, memory: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are small integers, so their sums do not depend on the order."""
    monkeypatch.setattr(Device, "half_of_memory", lambda self: memory)
    monkeypatch.setattr("haybale.retrieval.inverted._QUERIES_PER_TASK", 1 if memory == 1 else 32)
    n, m, d = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(seed)
    density = data.draw(st.sampled_from([0.3, 0.02]))  # many or few passages share a term with a query
    passages, queries = random_csr(rng, n, d, density), random_csr(rng, m, d, max(0.1, density))
    if data.draw(st.booleans()):  # a passage whose products sum to 0 is a hit
        passages = check_sparse(passages.multiply(rng.choice([-1, 1], size=(n, d))), "passages")
    cuts = np.sort(rng.integers(0, n + 1, size=data.draw(st.integers(0, 5))))
    offsets = np.concatenate(([0], cuts, [n]))
    own = rng.integers(-1, len(offsets) - 1, size=m)
    k = data.draw(st.integers(1, n))
    index = PassageIndex(passages, offsets)
    hits = index.search(queries, k, exclude=own)
    rows, scores = oracle(queries, passages, k, index.doc_of, own)
    on_device = PassageIndex(passages, offsets, device="cuda")
    assert on_device.search(to_device(queries, on_device.device), k, exclude=own).passages.device.id == 0
    for found in (hits, on_device.search(queries, k, exclude=own)):
        np.testing.assert_array_equal(found.passages, rows)
        np.testing.assert_array_equal(found.scores, scores)
    document = data.draw(st.integers(0, len(offsets) - 2))
    products = queries.toarray() @ passages.toarray()[offsets[document] : offsets[document + 1]].T
    for each in (index, on_device):
        np.testing.assert_array_equal(each.similarities(queries, document), products)
    some = index.search(queries, data.draw(st.integers(1, n)), exclude=own)
    by_document = [
        sorted(zip(*each.documents(queries, k, exclude=own, hits=hits), strict=True))
        for each in (index, on_device)
        for hits in (None, some)
    ]
    assert all(found == by_document[0] for found in by_document)


def test_sparse_vectors_of_a_device_stay_on_the_cpu(cupy: Any, tmp_path: Path) -> None:
    """An index on a device keeps the device through all of its methods, and is saved as one on the CPU is."""
    rng = np.random.default_rng(5)
    passages, queries = random_csr(rng, 30, 9), random_csr(rng, 4, 9)
    offsets, ids = np.array([0, 10, 20]), [f"d{number}" for number in range(3)]
    more = {"passage_ids": [f"new{number}" for number in range(10)], "doc_ids": ids[2:]}
    files, expected = [], []
    for device in ("cpu", "cuda"):
        index = PassageIndex(passages[:20], offsets, doc_ids=ids[:2], device=device)
        whole = index.extended(to_device(passages[20:], index.device), np.array([0, 10]), **more)
        taken = whole.take([0, 2])
        taken.save(tmp_path / device)
        opened = PassageIndex.open(tmp_path / device, device=device)
        for each in (whole, taken, opened):
            assert each.device.kind == device
            assert sparse.issparse(each.vectors)
        files.append((tmp_path / device / "vectors.safetensors").read_bytes())
        for each in (taken, opened):
            expected.append(each.search(queries, 5))
            np.testing.assert_array_equal(expected[-1].passages, expected[0].passages)
            np.testing.assert_array_equal(expected[-1].scores, expected[0].scores)
            on_device = each.search(to_device(queries, each.device), 5)
            assert (
                (on_device.passages.device.id == 0) if device == "cuda" else isinstance(on_device.passages, np.ndarray)
            )
    assert files[0] == files[1]


def test_sparse_input_is_normalised_and_not_changed() -> None:
    """Entries may be unsorted, duplicate or zero; any float type and sparse format is accepted."""
    messy = sparse.csr_matrix((np.array([1.0, 2.0, 0.0, 3.0]), [2, 2, 1, 0], [0, 4, 4]), shape=(2, 3))
    expected = [[3, 0, 3], [0, 0, 0]]
    for given_as in (messy, messy.tocoo(), messy.astype(np.float32), sparse.csr_array(messy)):
        index = PassageIndex(given_as)
        assert index.vectors.toarray().tolist() == expected
        assert index.vectors.dtype == np.float32
        assert index.search(sparse.csr_matrix(np.ones((1, 3))), 2).passages.tolist() == [[0, -1]]
    assert messy.data.tolist() == [1, 2, 0, 3]


def test_invalid_matrices_are_rejected() -> None:
    identity = sparse.identity(3, format="csr")
    index = PassageIndex(identity)
    assert (index.dim, len(index), index.is_sparse) == (3, 3, True)
    for call, named in [
        (lambda: index.search(np.eye(3), 1), "queries: expected a sparse"),
        (lambda: PassageIndex(np.eye(3)).search(identity, 1), "queries: expected a dense"),
        (lambda: index.search(sparse.identity(2, format="csr"), 1), "width 3.* 2"),
        (lambda: PassageIndex(sparse.csr_matrix([[1.0, 2.0], [0.0, np.nan]])), "passages: row 1"),
        (lambda: PassageIndex(identity, backend="cuvs"), "backend.*'cuvs'"),
    ]:
        with pytest.raises(InputError, match=named):
            call()
