"""Aggregations against dictionaries and loops (``parm_oracle``), laws that hold of any, devices, and what they refuse.

Tolerance: 1e-5, absolute and of the sum of the absolute terms that a score is made of. The rest is equality.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cupy_double import OutOfMemoryError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parm_cases import Case, assert_same, cases, options, pairs_of
from parm_oracle import BY_SCORE_OR_RANK, BY_VECTOR, NAMES, oracle
from scipy import sparse

from haybale.device import to_numpy
from haybale.errors import DeviceError, InputError, UnknownNameError
from haybale.retrieval import AGGREGATIONS, Hits, PassageIndex, Vectors, aggregate, rank_documents

module = sys.modules[aggregate.__module__]  # of the same name as the function
# Of whole numbers these make whole numbers, small enough to be exact in float32 and in any order of addition.
WHOLE = {"maxp", "firstp", "combsum", "vsum", "vmin", "vmax", "vscores", "vranks"}


# Against the oracle --------------------------------------------------------------------------------------


def test_every_aggregation_is_there() -> None:
    assert set(AGGREGATIONS) == set(NAMES)


@pytest.mark.parametrize("occurrences", ["all", "best"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_aggregations_are_the_oracles(data: st.DataObject, name: str, occurrences: str) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case)) | {"occurrences": occurrences}
    expected = case.oracle(name, **chosen)
    result = case.aggregate(name, **chosen)
    assert pairs_of(result) == sorted(expected)  # by query, then document, each once
    assert result[2].dtype == np.float64
    tolerance = case.tolerance(name, **chosen)
    for pair, score in zip(pairs_of(result), result[2].tolist(), strict=True):
        off = 0.0 if case.whole and name in WHOLE else tolerance[pair]
        assert expected[pair] - off <= score <= expected[pair] + off


BY_HAND = {
    # Paragraph 0 finds passages 1, 0, 3 with 4, 3, 2; paragraph 1 finds 0 and 2 with 5 and -1; rrf_k 1; documents
    # are passages 0-1 and 2-3. Passages (1, 0), (2, 1), (0, 4), (1, 1); paragraphs (1, 2) and (3, 0).
    "maxp": (5.0, 2.0),
    "firstp": (5.0, -1.0),
    "combsum": (4 + 3 + 5, 2 - 1),
    "rrf": (1 / 2 + 1 / 3 + 1 / 2, 1 / 4 + 1 / 3),
    "vsum": (4 * 4 + 2 * 1, 4 * 1 + 2 * 5),
    "vavg": (2 * 4 / 3 + 1 * 1 / 3, 2 * 1 / 2 + 1 * 5 / 2),
    "vmin": (1 * 1 + 0 * 0, 1 * 0 + 0 * 1),
    "vmax": (3 * 2 + 2 * 1, 3 * 1 + 2 * 4),
    "vscores": (4 * (4 * 2 + 3 + 5) + 2 * 4, 4 * 2 + 2 * (2 - 4)),
    "vranks": (4 * (3 * 2 + 2 + 3) + 2 * 3, 4 * 1 + 2 * (1 + 2 * 4)),
    "vrrf": (4 * (2 / 2 + 1 / 3 + 1 / 2) + 2 * 1 / 2, 4 * 1 / 4 + 2 * (1 / 4 + 4 / 3)),
}


@pytest.mark.parametrize("name", NAMES)
def test_by_hand(name: str) -> None:
    hits = Hits(np.array([[1, 0, 3], [0, 2, -1]]), np.array([[4, 3, 2], [5, -1, -np.inf]], dtype=np.float32))
    passages = np.array([[1, 0], [2, 1], [0, 4], [1, 1]], dtype=np.float32)
    vectors = Vectors(passages, np.array([[1, 2], [3, 0]], dtype=np.float32))
    given = hits, np.array([0, 0, 1, 1]), np.array([0, 2])
    assert list(oracle(name, *given, vectors, rrf_k=1).values()) == pytest.approx(BY_HAND[name])
    assert list(aggregate(hits, name, *given[1:], vectors=vectors, rrf_k=1)[2]) == pytest.approx(BY_HAND[name])


# Laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_order_of_paragraphs_changes_anything(data: st.DataObject, name: str) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    ranges = zip(case.offsets[:-1], case.offsets[1:], strict=True)
    shuffled = case.rows(np.concatenate([rng.permutation(np.arange(*ends)) for ends in ranges]), case.offsets)
    weights = {"weights": shuffled.weights} if "weights" in chosen else {}
    assert_same(case.aggregate(name, **chosen), shuffled.aggregate(name, **(chosen | weights)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_order_of_queries_changes_anything(data: st.DataObject, name: str) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case))
    lengths = np.diff(case.offsets)
    order = np.array(data.draw(st.permutations(range(len(lengths)))))
    rows = np.concatenate([np.arange(case.offsets[j], case.offsets[j + 1]) for j in order])
    shuffled = case.rows(rows, np.concatenate(([0], np.cumsum(lengths[order]))))
    weights = {"weights": shuffled.weights} if "weights" in chosen else {}
    query, document, score = shuffled.aggregate(name, **(chosen | weights))
    back = np.lexsort((document, order[query]))
    assert_same(case.aggregate(name, **chosen), (order[query][back], document[back], score[back]))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_many_queries_at_once_are_each_alone(data: st.DataObject, name: str) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case))
    query, document, score = case.aggregate(name, **chosen)
    tolerance = case.tolerance(name, 0.0 if name in BY_SCORE_OR_RANK else 1e-6, **chosen)
    for j, (start, end) in enumerate(zip(case.offsets[:-1], case.offsets[1:], strict=True)):
        alone = case.rows(np.arange(start, end), np.array([0, end - start]))
        weights = {"weights": alone.weights} if "weights" in chosen else {}
        found = alone.aggregate(name, **(chosen | weights))
        assert found[1].tolist() == document[query == j].tolist()
        off = np.abs(found[2] - score[query == j])
        assert all(off <= [tolerance[j, number] for number in found[1]])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whole_weights_are_repeated_paragraphs(data: st.DataObject, name: str) -> None:
    case = data.draw(cases(whole=data.draw(st.booleans())))
    chosen = data.draw(options(case))
    chosen["weights"] = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(case.hits), max_size=len(case.hits)))
    )
    lengths = np.add.reduceat(np.append(chosen["weights"], 0), case.offsets[:-1]) * (np.diff(case.offsets) > 0)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    repeated = case.rows(np.repeat(np.arange(len(case.hits)), chosen["weights"].astype(np.int64)), offsets)
    weighted, unweighted = case.aggregate(name, **chosen), repeated.aggregate(name, **(chosen | {"weights": None}))
    assert pairs_of(weighted) == pairs_of(unweighted)
    tolerance = case.tolerance(name, **chosen)
    assert all(np.abs(weighted[2] - unweighted[2]) <= [tolerance[pair] for pair in pairs_of(weighted)])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_memory_budget_changes_anything(data: st.DataObject, name: str) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case))
    assert_same(case.aggregate(name, memory_budget=1, **chosen), case.aggregate(name, memory_budget=2**30, **chosen))


@pytest.mark.parametrize("name", NAMES)
def test_one_short_list_is_rounded_alone_as_among_others(name: str) -> None:
    """Of its two hits on one document only the first counts, and the second's term is larger."""
    passages = np.array([[0.13229221], [1.1499612]], dtype=np.float32)
    hits = Hits(np.array([[-1, -1, -1], [0, 1, -1]]), np.array([[-np.inf] * 3, [1.4, 0.3, -np.inf]], dtype=np.float32))
    vectors = Vectors(passages, np.array([[0.0], [0.15586318]], dtype=np.float32))
    alone, together = (
        aggregate(
            hits, name, np.array([0, 0]), np.array([0, 1, 2]), vectors=vectors, occurrences="best", memory_budget=budget
        )
        for budget in (1, 2**30)
    )
    assert_same(alone, together)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", BY_VECTOR)
def test_no_memory_budget_changes_larger_queries(name: str, is_sparse: bool) -> None:
    rng = np.random.default_rng(3)
    dense = [rng.normal(size=(size, 48)).astype(np.float32) for size in (400, 40)]
    index = PassageIndex(dense[0], np.arange(0, 401, 10))
    hits, offsets = index.search(dense[1], 100), np.array([0, 3, 3, 20, 21, 40])
    vectors = Vectors(*(map(sparse.csr_matrix, dense) if is_sparse else dense))
    results = [
        aggregate(hits, name, index.doc_of, offsets, vectors=vectors, memory_budget=budget)
        for budget in (2**28, 1, 50_000)
    ]
    assert_same(results[0], results[1])
    assert_same(results[0], results[2])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sparse_vectors_are_dense_ones(data: st.DataObject, name: str) -> None:
    case = data.draw(cases(is_sparse=True))
    chosen = data.draw(options(case))
    dense = replace(case, vectors=Vectors(case.vectors.passages.toarray(), case.vectors.paragraphs.toarray()))
    one, other = case.aggregate(name, **chosen), dense.aggregate(name, **chosen)
    assert pairs_of(one) == pairs_of(other)
    tolerance = case.tolerance(name, **chosen)
    assert all(np.abs(one[2] - other[2]) <= [tolerance[pair] for pair in pairs_of(one)])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_n_hits_cuts_lists_and_may_be_more_than_there_are(data: st.DataObject, name: str) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case))
    width = case.hits.passages.shape[1]
    chosen["n_hits"] = n = data.draw(st.integers(1, 2 * width))
    if n <= width:
        as_wide = case.hits.top(n)
    else:
        more = [((0, 0), (0, n - width))]
        as_wide = Hits(
            np.pad(case.hits.passages, *more, constant_values=-1),
            np.pad(case.hits.scores, *more, constant_values=-np.inf),
        )
    expected = replace(case, hits=as_wide).aggregate(name, **(chosen | {"n_hits": None}))
    assert_same(case.aggregate(name, **chosen), expected)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(case=cases())
def test_rankings_fall_by_score_and_rise_by_id(case: Case, name: str) -> None:
    n_documents = int(case.doc_of.max()) + 1
    doc_ids = [f"d{n_documents - i}" for i in range(n_documents)]  # ids fall where numbers rise
    starts = np.concatenate(([0], np.cumsum(np.bincount(case.doc_of, minlength=n_documents))))
    index = PassageIndex(np.ones((len(case.doc_of), 1)), starts, doc_ids=doc_ids)
    query_ids = [f"q{j}" for j in range(len(case.offsets) - 1)]
    run = rank_documents(index, case.hits, query_ids, name, case.offsets, vectors=case.vectors)
    query, document, score = case.aggregate(name)
    for j, query_id in enumerate(query_ids):
        mine = [(doc_ids[d], s) for q, d, s in zip(query, document, score, strict=True) if q == j]
        assert run[query_id] == sorted(mine, key=lambda found: (-found[1], found[0]))


# On a device, and in little memory ---------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_aggregations_are_those_of_numpy(data: st.DataObject, name: str, cupy: Any) -> None:
    """Scores without vectors to the bit, those with vectors to 1e-6 of the largest."""
    case = data.draw(cases(is_sparse=False))
    assert_as_on_numpy(cupy, name, case, **data.draw(options(case)))


def larger(seed: int = 0, n: int = 30, d: int = 3, width: int = 6) -> Case:
    """Documents of five passages, query documents of one to six paragraphs and one without any."""
    rng = np.random.default_rng(seed)
    passages, paragraphs = (rng.normal(size=(size, d)).astype(np.float32) for size in (n, 14))
    index = PassageIndex(passages, np.arange(0, n + 1, 5))
    hits = index.search(paragraphs, width)
    return Case(hits, index.doc_of, np.array([0, 3, 3, 9, 10, 14]), Vectors(passages, paragraphs), np.ones(14), False)


@pytest.mark.parametrize("name", ["rrf", "vavg", "vmax"])
def test_no_memory_budget_changes_anything_on_a_device(name: str, cupy: Any) -> None:
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
    plain = module.block_of

    def hungry(hits: Hits, *args: Any) -> Any:
        if len(hits) > room:
            raise OutOfMemoryError("out of memory")
        return plain(hits, *args)

    given_there = there(cupy_double, case)
    expected = case.aggregate("rrf")
    monkeypatch.setattr(module, "block_of", hungry)
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
    plain = module.block_of

    def counted(*args: Any) -> Any:
        cells.append(plain(*args))
        return cells[-1]

    monkeypatch.setattr(module, "block_of", counted)
    budget = 1e6
    query, document, _ = aggregate(Hits(passages, scores), name, doc_of, memory_budget=budget)
    assert max(8 * block.n_cells for block in cells) < budget
    assert len(cells) < 100
    np.testing.assert_array_equal(query, np.repeat(np.arange(m), width))
    np.testing.assert_array_equal(document, np.sort(passages, axis=1).ravel())


def test_what_is_elsewhere(cupy: Any) -> None:
    import cupyx.scipy.sparse as cupyx

    case = larger()
    given_there = there(cupy, case)
    with pytest.raises(DeviceError, match="passage vectors are on cuda:0, and would meet arrays on cpu"):
        aggregate(case.hits, "vsum", case.doc_of, case.offsets, vectors=given_there["vectors"])
    with pytest.raises(
        (DeviceError, InputError), match=r"cuda:0|NumPy"
    ):  # where the hits are put together, or where they are used
        aggregate(Hits(case.hits.passages, given_there["hits"].scores), "rrf", case.doc_of, case.offsets)
    rows = Vectors(*map(sparse.csr_matrix, (case.vectors.passages, case.vectors.paragraphs)))
    sparse_there = Vectors(*(cupyx.csr_matrix(matrix) for matrix in (rows.passages, rows.paragraphs)))
    for hits, vectors in ((given_there["hits"], rows), (case.hits, sparse_there), (given_there["hits"], sparse_there)):
        found = aggregate(hits, "vsum", case.doc_of, case.offsets, vectors=vectors)  # in main memory
        assert_same(found, aggregate(case.hits, "vsum", case.doc_of, case.offsets, vectors=rows))
    # From main memory they are copied.
    copied = aggregate(given_there["hits"], "vsum", case.doc_of, case.offsets, vectors=case.vectors)
    assert isinstance(copied[2], cupy.ndarray)
    assert_same(map(to_numpy, copied[:2]), case.aggregate("vsum")[:2])


# Nothing, and what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_no_hits_at_all(name: str, m: int) -> None:
    hits = Hits(np.full((m, 3), -1), np.full((m, 3), -np.inf, dtype=np.float32))
    for matrix in (np.asarray, sparse.csr_matrix):
        vectors = Vectors(matrix(np.ones((2, 1), dtype=np.float32)), matrix(np.ones((m, 1), dtype=np.float32)))
        for offsets in (None, np.array([0, 0, m])):
            found = aggregate(hits, name, np.array([0, 1]), offsets, vectors=vectors)
            assert [column.shape for column in found] == [(0,)] * 3


def two_hits(name: str = "rrf", **options):
    """One paragraph that finds two documents."""
    hits = Hits(np.array([[0, 1]]), np.ones((1, 2), dtype=np.float32))
    options.setdefault("vectors", Vectors(np.ones((2, 1), dtype=np.float32), np.ones((1, 1), dtype=np.float32)))
    return aggregate(hits, name, np.array([0, 1]), **options)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="'best'") as refused:
        two_hits("best")
    assert all(name in str(refused.value).split("known: ")[1].split(", ") for name in NAMES)
    with pytest.raises(InputError, match=r"some.*all.*best"):
        two_hits(occurrences="some")


@pytest.mark.parametrize("name", BY_VECTOR)
def test_vector_aggregations_need_vectors(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' needs vectors") as refused:
        two_hits(name, vectors=None)
    assert all(other in str(refused.value) for other in BY_SCORE_OR_RANK)


@pytest.mark.parametrize("name", NAMES)
def test_offsets_must_end_at_the_last_paragraph(name: str) -> None:
    with pytest.raises(InputError, match="offsets end at 2, but there are hits of 1"):
        two_hits(name, offsets=np.array([0, 2]))


@pytest.mark.parametrize("name", BY_VECTOR)
def test_vectors_must_be_those_of_the_paragraphs(name: str) -> None:
    ones = np.ones((3, 1), dtype=np.float32)
    with pytest.raises(InputError, match="3 paragraph vectors for 1 paragraph"):
        two_hits(name, vectors=Vectors(ones[:2], ones))
    with pytest.raises(InputError, match="width"):
        two_hits(name, vectors=Vectors(ones[:2], np.ones((1, 2), dtype=np.float32)))
    with pytest.raises(InputError, match="sparse"):
        two_hits(name, vectors=Vectors(ones[:2], sparse.csr_matrix(ones[:1])))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_numbers_from_0_up_one_a_paragraph(name: str) -> None:
    for weights in ([-1.0], [np.nan], [np.inf], [1.0, 1.0], []):
        with pytest.raises(InputError, match="weight"):
            two_hits(name, weights=np.array(weights))
    assert len(two_hits(name, weights=np.array([0]))[0]) == 0


@pytest.mark.parametrize("rrf_k", [-1, -3.0, np.nan])
@pytest.mark.parametrize("name", ["rrf", "vrrf"])
def test_rrf_k_leaves_no_rank_at_0(name: str, rrf_k: float) -> None:
    with pytest.raises(InputError, match="rrf_k"):
        two_hits(name, rrf_k=rrf_k)
