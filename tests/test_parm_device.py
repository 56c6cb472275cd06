"""Aggregations and PARM on CuPy's arrays, against the same on NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cupy_double import HAS_CUDA, OutOfMemoryError
from haybale.retrieval.aggregation import cuda_kernels, elementwise, products, task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parm_cases import Case, assert_same, cases, options, pairs_of
from parm_oracle import NAMES
from scipy import sparse

from haybale.device import CPU, Device, to_numpy
from haybale.embeddings import TfidfEncoder, encode_on
from haybale.errors import DeviceError, InputError
from haybale.retrieval import AGGREGATIONS, Hits, ParagraphSearch, PassageIndex, Vectors, aggregate

ENOUGH = cuda_kernels.ENOUGH


def there(cupy: Any, case: Case) -> dict[str, Any]:
    """The case's hits and vectors as CuPy's arrays."""
    vectors = Vectors(cupy.asarray(case.vectors.passages), cupy.asarray(case.vectors.paragraphs))
    return {"hits": Hits(cupy.asarray(case.hits.passages), cupy.asarray(case.hits.scores)), "vectors": vectors}


def assert_as_on_numpy(cupy: Any, name: str, case: Case, **chosen: Any) -> None:
    expected = case.aggregate(name, **chosen)
    on_device = there(cupy, case)
    found = aggregate(on_device["hits"], name, case.doc_of, case.offsets, vectors=on_device["vectors"], **chosen)
    assert all(isinstance(column, cupy.ndarray) for column in found)
    query, document, score = map(to_numpy, found)
    assert pairs_of((query, document)) == pairs_of(expected)
    assert [column.dtype for column in (query, document, score)] == [column.dtype for column in expected]
    if AGGREGATIONS[name].vectors is None:
        np.testing.assert_array_equal(score, expected[2])
    else:
        np.testing.assert_allclose(score, expected[2], rtol=0, atol=1e-6 * np.abs(expected[2]).max(initial=1e-30))


@pytest.fixture(autouse=True)
def few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator makes a thread of Python's for each lane; how many there are changes the order of a sum only."""
    if not HAS_CUDA:
        monkeypatch.setattr(cuda_kernels, "LANES", 2)
        monkeypatch.setattr(cuda_kernels, "ENOUGH", 1)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_aggregations_are_those_of_numpy(data: st.DataObject, name: str, cupy: Any) -> None:
    """Scores without vectors to the bit, those with vectors to 1e-6 of the largest."""
    case = data.draw(cases(is_sparse=False))
    assert_as_on_numpy(cupy, name, case, **data.draw(options(case, code_variant=False)))


@pytest.mark.parametrize("name", NAMES)
def test_the_codes_variant_of_whole_numbers(name: str, cupy: Any) -> None:
    """Scores that are cut are compared where rounding cannot cross a whole number."""
    hits = Hits(np.array([[1, 0, 3], [0, 2, -1]]), np.array([[4, 3, 2], [5, -1, -np.inf]], dtype=np.float32))
    vectors = Vectors(
        np.array([[1, 0], [2, 1], [0, 4], [1, 1]], dtype=np.float32), np.array([[1, 2], [3, 0]], dtype=np.float32)
    )
    case = Case(hits, np.array([0, 0, 1, 1]), np.array([0, 2]), vectors, np.ones(2), True)
    assert_as_on_numpy(cupy, name, case, code_variant=True, rrf_k=1)


def test_the_kernels_with_all_lanes(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not HAS_CUDA:
        monkeypatch.setattr(cuda_kernels, "LANES", 32)
    rng = np.random.default_rng(0)
    q, passages = rng.normal(size=(2, 45)), rng.normal(size=(3, 45)).astype(np.float32)
    wanted, numbers = np.array([[True, False, False], [True, True, False]]), np.array([2, 0])
    found = products.multiply_on_device(*map(cupy.asarray, (wanted, q, passages, numbers)))
    np.testing.assert_allclose(to_numpy(found), wanted[:, :2] * (q @ passages[numbers].T), rtol=1e-6)
    lists = map(cupy.asarray, (np.array([0, 1, 2, 1]), np.array([0, 3]), np.array([3, 1])))  # of two documents
    least = elementwise._on_device(cupy.asarray(passages), *lists, cupy.asarray(q), cupy.asarray([0, 1]), "minimum")
    expected = [q[0] @ passages.min(axis=0), q[1] @ passages[1]]
    np.testing.assert_allclose(to_numpy(least), expected, rtol=1e-12)


def larger(seed: int = 0, n: int = 30, d: int = 3, width: int = 6) -> Case:
    """Documents of five passages, query documents of one to six paragraphs and one without any."""
    rng = np.random.default_rng(seed)
    passages, paragraphs = (rng.normal(size=(size, d)).astype(np.float32) for size in (n, 14))
    index = PassageIndex(passages, np.arange(0, n + 1, 5))
    hits = index.search(paragraphs, width)
    return Case(hits, index.doc_of, np.array([0, 3, 3, 9, 10, 14]), Vectors(passages, paragraphs), np.ones(14), False)


@pytest.mark.parametrize("name", ["rrf", "vavg", "vmax"])
def test_no_memory_budget_changes_anything(name: str, cupy: Any) -> None:
    case = larger()
    given_there = there(cupy, case)
    whole, small = (
        aggregate(
            given_there["hits"],
            name,
            case.doc_of,
            case.offsets,
            vectors=given_there["vectors"],
            memory_budget=budget,
        )
        for budget in (None, 1)
    )
    assert_same(map(to_numpy, whole), map(to_numpy, small))


@pytest.mark.parametrize("name", ["vrrf", "vmin"])
@pytest.mark.parametrize("on_device", [False, True])
def test_passages_of_float16(name: str, on_device: bool, cupy: Any) -> None:
    """They are multiplied as they are stored: as the same numbers in float32 would be."""
    case = larger()
    half = case.vectors.passages.astype(np.float16)
    same = replace(case, vectors=Vectors(half.astype(np.float32), case.vectors.paragraphs))
    as_half = replace(case, vectors=Vectors(half, case.vectors.paragraphs))
    expected = same.aggregate(name)
    if on_device:
        given_there = there(cupy, as_half)
        assert given_there["vectors"].passages.dtype == np.float16
        found = aggregate(given_there["hits"], name, case.doc_of, case.offsets, vectors=given_there["vectors"])
    else:
        found = as_half.aggregate(name)
        assert_same(found, expected)
    assert_same(map(to_numpy, found[:2]), expected[:2])
    np.testing.assert_allclose(to_numpy(found[2]), expected[2], rtol=0, atol=1e-6 * np.abs(expected[2]).max())


@pytest.mark.parametrize("name", NAMES)
def test_the_host_waits_as_often_for_many_queries_as_for_few(name: str, cupy_double: Any) -> None:
    def waits(case: Case) -> int:
        given_there = there(cupy_double, case)
        before = cupy_double.ndarray.waits
        aggregate(given_there["hits"], name, case.doc_of, case.offsets, vectors=given_there["vectors"])
        return cupy_double.ndarray.waits - before

    case = larger(n=20, d=1, width=4)
    few = case.rows(np.arange(9), np.array([0, 3, 9]))
    assert waits(case) == waits(few)


def test_less_is_done_at_once_where_memory_runs_out(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = larger()
    room = 7  # paragraphs
    plain = task.block_of

    def hungry(passages: Any, *args: Any, **kwargs: Any) -> Any:
        if len(passages) > room:
            raise OutOfMemoryError("out of memory")
        return plain(passages, *args, **kwargs)

    given_there = there(cupy_double, case)
    expected = case.aggregate("rrf")
    monkeypatch.setattr(task, "block_of", hungry)
    assert_same(map(to_numpy, aggregate(given_there["hits"], "rrf", case.doc_of, case.offsets)), expected)
    room = 5
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 query documents"):
        aggregate(given_there["hits"], "rrf", case.doc_of, case.offsets)


@pytest.mark.parametrize("name", ["maxp", "rrf"])
def test_many_queries_with_few_hits_share_no_large_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has a cell for every query with every document that any of its queries found."""
    m, width = 1500, 3
    passages = np.random.default_rng(0).permutation(m * width).reshape(m, width)  # no two find the same
    scores = np.random.default_rng(1).random((m, width)).astype(np.float32)
    doc_of = np.arange(m * width)
    cells = []
    plain = task.block_of

    def counted(*args: Any, **kwargs: Any) -> Any:
        cells.append(plain(*args, **kwargs))
        return cells[-1]

    monkeypatch.setattr(task, "block_of", counted)
    budget = 1e6
    query, document, _ = aggregate(Hits(passages, scores), name, doc_of, memory_budget=budget)
    assert max(8 * block.n_cells for block in cells) < budget
    assert len(cells) < 100
    np.testing.assert_array_equal(query, np.repeat(np.arange(m), width))
    np.testing.assert_array_equal(document, np.sort(passages, axis=1).ravel())


def test_many_queries_with_few_hits_share_no_large_table_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    m, width = 1500, 3
    passages = np.random.default_rng(0).permutation(m * width).reshape(m, width)
    hits = Hits(passages, np.ones((m, width), dtype=np.float32))
    vectors = Vectors(np.ones((m * width, 2), dtype=np.float32), np.ones((m, 2), dtype=np.float32))
    tables, plain = [], task.products

    def counted(*args: Any) -> Any:
        tables.append(plain(*args))
        return tables[-1]

    monkeypatch.setattr(task, "products", counted)
    budget = 1e6
    _, _, score = aggregate(hits, "vsum", np.arange(m * width), vectors=vectors, memory_budget=budget)
    assert max(5 * products.table.size for products in tables) < budget
    assert len(tables) < 100
    np.testing.assert_array_equal(score, np.full(m * width, 2.0))


def test_a_grid_has_at_most_65535_blocks_in_its_second_dimension() -> None:
    assert 2**15 <= ENOUGH < 2**16


def test_what_is_elsewhere(cupy: Any) -> None:
    case = larger()
    given_there = there(cupy, case)
    with pytest.raises(DeviceError, match="passage vectors are on cuda:0, and would meet arrays on cpu"):
        aggregate(case.hits, "vsum", case.doc_of, case.offsets, vectors=given_there["vectors"])
    with pytest.raises(
        (DeviceError, InputError), match=r"cuda:0|NumPy"
    ):  # where the hits are put together, or where they are used
        aggregate(Hits(case.hits.passages, given_there["hits"].scores), "rrf", case.doc_of, case.offsets)
    rows = Vectors(*map(sparse.csr_matrix, (case.vectors.passages, case.vectors.paragraphs)))
    with pytest.raises(DeviceError, match=r"sparse vectors are in main memory only, and the hits are on cuda:0"):
        aggregate(given_there["hits"], "vsum", case.doc_of, case.offsets, vectors=rows)
    # From main memory they are copied.
    copied = aggregate(given_there["hits"], "vsum", case.doc_of, case.offsets, vectors=case.vectors)
    assert isinstance(copied[2], cupy.ndarray)
    assert_same(map(to_numpy, copied[:2]), case.aggregate("vsum")[:2])


class IndexThere(PassageIndex):
    """An index on a device: its vectors are there, and so are the hits of queries from there."""

    def __init__(self, cupy: Any, vectors: np.ndarray, offsets: np.ndarray) -> None:
        super().__init__(vectors, offsets)
        self.host = PassageIndex(vectors, offsets)
        self.cupy, self.device = cupy, Device("cuda", 0)
        self.vectors = cupy.asarray(vectors)

    def search(self, queries: Any, k: int, *, exclude: Any = None) -> Hits:
        assert isinstance(queries, self.cupy.ndarray)
        assert queries.dtype == np.float32
        found = self.host.search(to_numpy(queries), k, exclude=exclude)
        return Hits(self.cupy.asarray(found.passages), self.cupy.asarray(found.scores))

    def similarities(self, queries: Any, document: int) -> Any:
        return self.cupy.asarray(self.host.similarities(to_numpy(queries), document))


def indexes(cupy: Any) -> tuple[PassageIndex, PassageIndex, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    vectors, offsets = rng.normal(size=(40, 4)).astype(np.float32), np.array([0, 5, 12, 13, 30, 40])
    queries = [rng.normal(size=(size, 4)).astype(np.float32) for size in (2, 3, 1)]
    return PassageIndex(vectors, offsets), IndexThere(cupy, vectors, offsets), queries


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_parm_on_a_device(name: str, cupy: Any) -> None:
    here, away, queries = indexes(cupy)
    ids = ["a", "b", "c"]
    expected = ParagraphSearch(here, name, n_hits=10).rank(ids, queries, exclude=["1", None, None])
    ranker = ParagraphSearch(away, name, n_hits=10)
    for given_as in (
        queries,
        [cupy.asarray(query) for query in queries],
        [queries[0], *map(cupy.asarray, queries[1:])],
    ):
        found = ranker.rank(ids, given_as, exclude=["1", None, None])
        for query_id in ids:
            assert [doc for doc, _ in found[query_id]] == [doc for doc, _ in expected[query_id]]
            assert dict(found[query_id]) == pytest.approx(dict(expected[query_id]), rel=1e-6, abs=1e-6)
    hits = ranker.search(queries)
    assert isinstance(hits.hits.passages, cupy.ndarray)
    assert isinstance(hits.vectors.paragraphs, cupy.ndarray)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_explanations_of_an_index_on_a_device(name: str, cupy: Any) -> None:
    here, away, queries = indexes(cupy)
    best = ParagraphSearch(here, name, n_hits=10).rank(["q"], queries[1:2])["q"][0][0]
    expected = ParagraphSearch(here, name, n_hits=10).explain(queries[1], best)
    found = ParagraphSearch(away, name, n_hits=10).explain(queries[1], best)
    assert found.rank == expected.rank == 1
    assert found.score == pytest.approx(expected.score, rel=1e-6)
    assert found.share.sum() == pytest.approx(found.score)
    np.testing.assert_allclose(found.share, expected.share, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(found.ranks, expected.ranks)
    assert isinstance(found.similarity, np.ndarray)
    assert str(found) == str(expected)


class OnDevice:
    """An encoder that hands over arrays of the device, and says which way it was asked."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.asked = cupy, []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append("passages")
        return np.array([[len(text), 1, 0, 0] for text in texts], dtype=np.float32)

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return -self.encode(texts)

    def encode_queries_tensor(self, texts: Sequence[str]) -> Any:
        self.asked.append("queries there")
        return self.cupy.asarray(-np.array([[len(text), 1, 0, 0] for text in texts], dtype=np.float32))


def test_parm_takes_what_the_encoder_has_on_the_device(cupy: Any) -> None:
    _, away, _ = indexes(cupy)
    encoder = OnDevice(cupy)
    found = ParagraphSearch(away, "vsum", encoder=encoder, n_hits=5).search([["one", "three"], ["four"]])
    assert encoder.asked == ["queries there"]
    np.testing.assert_array_equal(to_numpy(found.vectors.paragraphs)[:, 0], [-3, -5, -4])
    there_too = encode_on(encoder, ["one"], Device("cuda", 0))  # it has no tensors of passages
    assert isinstance(there_too, cupy.ndarray)
    assert encode_on(encoder, ["one"], CPU, queries=True).tolist() == [[-3, -1, 0, 0]]
    words = TfidfEncoder(min_df=1).fit(["one two", "two three"])
    assert sparse.issparse(encode_on(words, ["one"], CPU, queries=True))
