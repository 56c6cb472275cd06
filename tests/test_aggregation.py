"""Aggregations against dictionaries and loops (``parm_oracle``), and what they refuse.

Tolerance: 1e-5, absolute and of the sum of the absolute terms that a score is made of. The rest is equality.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parm_cases import Case, assert_same, cases, options, pairs_of
from parm_oracle import BY_SCORE_OR_RANK, BY_VECTOR, NAMES, oracle
from scipy import sparse

from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import AGGREGATIONS, Hits, PassageIndex, Vectors, aggregate

# Of whole numbers these make whole numbers, small enough to be exact in float32 and in any order of addition.
WHOLE = {"maxp", "firstp", "combsum", "vsum", "vmin", "vmax", "vscores", "vranks"}


# Against the oracle --------------------------------------------------------------------------------------


def test_every_aggregation_is_there() -> None:
    assert set(AGGREGATIONS) == set(NAMES)


@pytest.mark.parametrize("code_variant", [False, True])
@pytest.mark.parametrize("occurrences", ["all", "best"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_aggregations_are_the_oracles(data: st.DataObject, name: str, occurrences: str, code_variant: bool) -> None:
    case = data.draw(cases())
    chosen = data.draw(options(case)) | {"occurrences": occurrences, "code_variant": code_variant}
    expected = case.oracle(name, truncate=False, **chosen)
    result = case.aggregate(name, **chosen)
    assert pairs_of(result) == sorted(expected)  # by query, then document, each once
    assert result[2].dtype == np.float64
    tolerance = case.tolerance(name, **chosen)
    for pair, score in zip(pairs_of(result), result[2].tolist(), strict=True):
        off = 0.0 if case.whole and name in WHOLE else tolerance[pair]
        low, high = expected[pair] - off, expected[pair] + off
        if code_variant and name in BY_VECTOR:
            assert score in (math.trunc(low), math.trunc(high))  # two numbers only where rounding could cross one
        else:
            assert low <= score <= high


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


@pytest.mark.parametrize("name", NAMES)
def test_hits_of_a_search(name: str) -> None:
    """The hits an index gives, some rows short because the paragraph's own document is left out."""
    rng = np.random.default_rng(5)
    vectors = Vectors(*(rng.normal(size=(size, 4)).astype(np.float32) for size in (25, 9)))
    index = PassageIndex(vectors.passages, np.array([0, 6, 6, 20, 25]))
    hits = index.search(vectors.paragraphs, 25, exclude=rng.integers(-1, 4, size=9))
    case = Case(hits, index.doc_of, np.array([0, 4, 5, 9]), vectors, np.ones(9), False)
    query, document, score = case.aggregate(name)
    expected, tolerance = case.oracle(name), case.tolerance(name)
    pairs = sorted(expected)
    assert list(zip(query, document, strict=True)) == pairs
    assert all(np.abs(score - [expected[pair] for pair in pairs]) <= [tolerance[pair] for pair in pairs])


@pytest.mark.parametrize("name", ["rrf", "vranks", "vrrf"])
def test_the_codes_variant_of_a_list_of_1000_hits_is_the_papers(name: str) -> None:
    rng = np.random.default_rng(0)
    hits = Hits(rng.permutation(1000)[None], -np.sort(rng.normal(size=(1, 1000))).astype(np.float32))
    vectors = Vectors(*(rng.integers(0, 3, size=(size, 3)).astype(np.float32) for size in (1000, 1)))
    doc_of = np.arange(1000) // 50
    plain = aggregate(hits, name, doc_of, vectors=vectors)[2]
    variant = aggregate(hits, name, doc_of, vectors=vectors, code_variant=True)[2]
    np.testing.assert_array_equal(variant, plain if name == "rrf" else np.trunc(plain))


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


@pytest.mark.parametrize("name", BY_SCORE_OR_RANK)
def test_the_others_do_not(name: str) -> None:
    assert_same(two_hits(name, vectors=None), two_hits(name))


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
