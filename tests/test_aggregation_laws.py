"""What must hold of any aggregation, whatever its formula: orders, batches, weights, memory, lengths of lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parm_cases import Case, assert_same, cases, options, pairs_of
from parm_oracle import BY_SCORE_OR_RANK, BY_VECTOR, NAMES
from scipy import sparse

from haybale.retrieval import Hits, PassageIndex, Vectors, aggregate, rank_documents


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
    chosen = data.draw(options(case, code_variant=False))
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
    chosen = data.draw(options(case, code_variant=False))
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
    chosen = data.draw(options(case, code_variant=False))
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
def test_a_row_is_a_query_without_offsets(case: Case, name: str) -> None:
    rows = np.arange(len(case.hits) + 1)
    found = aggregate(case.hits, name, case.doc_of, vectors=case.vectors)
    assert_same(found, replace(case, offsets=rows).aggregate(name))


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
