"""Ids to numbers: a dictionary oracle, ids of every kind, and what is no id."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.collections import Collection
from haybale.collections.lookup import Lookup, id_strings
from haybale.errors import InputError
from haybale.retrieval import PassageIndex

ids = st.lists(st.text(st.sampled_from("ab\u00e4\u00df\U0001f42b\x00 "), max_size=4), max_size=40)
large = pa.large_string()


def cut(column: list[str], cuts: list[int], before: list[str]) -> pa.ChunkedArray:
    """A column in chunks, each a slice of a longer array, some of them empty."""
    ends = [0, *sorted(min(place, len(column)) for place in cuts), len(column)]
    chunks = []
    for first, last in pairwise(ends):
        whole = pa.array([*before, *column[first:last], "behind"], type=large)
        chunks.append(whole.slice(len(before), last - first))
    return pa.chunked_array(chunks, type=large)


@settings(max_examples=200, deadline=None)
@given(known=ids, asked=ids, cuts=st.lists(st.integers(0, 40), max_size=3), before=ids)
def test_numbers_are_those_of_a_dictionary(
    known: list[str], asked: list[str], cuts: list[int], before: list[str]
) -> None:
    known = list(dict.fromkeys(known))
    oracle = {name: number for number, name in enumerate(known)}
    lookup = Lookup(cut(known, cuts, before))
    expected = [oracle.get(name, -1) for name in asked]
    assert lookup.find(pa.array(asked, type=large)).tolist() == expected
    assert lookup.find(cut(asked, cuts, before)).tolist() == expected
    if -1 in expected:
        with pytest.raises(InputError) as error:
            lookup.numbers(asked, "document")
        assert str(error.value) == f"unknown document id {asked[expected.index(-1)]!r}"
    else:
        assert lookup.numbers(asked, "document").tolist() == expected


def test_real_ids(pydocs: Collection) -> None:
    names = pydocs.passages.ids
    found = pydocs.passage_numbers(names)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.arange(len(names)))
    backwards = names.to_pylist()[::-1]
    np.testing.assert_array_equal(pydocs.passage_numbers(backwards), np.arange(len(names))[::-1])


@pytest.mark.parametrize(
    "given_as",
    [
        ["7", "b"],
        ("7", "b"),
        [7, "b"],
        [np.int32(7), np.str_("b")],
        np.array(["7", "b"]),
        np.array(["7", "b"], dtype=object),
        pd.Series(["7", "b"]),
        [pa.scalar("7"), pa.scalar("b", pa.large_string())],
        [pa.scalar(7), "b"],
        pa.array(["7", "b"]),
        pa.array(["7", "b"]).dictionary_encode(),
        pa.chunked_array([["7"], ["b"]]),
        iter(["7", "b"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ids_of_every_kind(given_as: Any) -> None:
    assert Lookup(pa.array(["a", "b", "7"])).numbers(given_as, "document").tolist() == [2, 1]


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ("ab", "expected a sequence of document ids, found one string: 'ab'"),
        (b"ab", "expected a sequence of document ids, found one string"),
        (3, "expected a sequence of document ids, found 3"),
        ([1.0], r"document ids must be strings or whole numbers, found 1\.0"),
        ([True], "must be strings or whole numbers, found True"),
        (["a", None], "must be strings or whole numbers, found None"),
        ([float("nan")], "found nan"),
        ([b"a"], "found b'a'"),
        ([["a"]], r"found \['a'\]"),
        ([pa.scalar(None)], "found None"),
        (pa.array(["a", None]), "found None"),
        (pa.array([0.5]), r"found 0\.5"),
        (["\ud800"], r"document id '\\ud800' is not Unicode text"),
        ([3], "unknown document id '3'"),
    ],
)
def test_what_is_no_id_is_refused(given_as: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Lookup(pa.array(["a", "b"])).numbers(given_as, "document")


def test_columns_without_bytes() -> None:
    for column in (pa.array([], type=large), pa.chunked_array([], type=large)):
        assert Lookup(column).find(pa.array(["", "a"])).tolist() == [-1, -1]
        assert Lookup(column).numbers([], "query").tolist() == []
    assert Lookup(pa.array([""])).find(pa.array(["", "a"])).tolist() == [0, -1]


def test_the_first_of_equal_ids_and_a_lookup_elsewhere() -> None:
    lookup = Lookup(pa.array(["a", "b", "a"]))
    assert lookup.numbers(["a"], "query").tolist() == [0]
    assert pickle.loads(pickle.dumps(lookup)).numbers(["b"], "query").tolist() == [1]


def test_an_index_takes_ids_of_every_kind() -> None:
    index = PassageIndex(np.eye(3), [0, 2, 3], passage_ids=[10, 11, 12], doc_ids=np.array(["x", "y"]))
    assert index.passage_ids.to_pylist() == ["10", "11", "12"]
    assert index.document_number(index.doc_ids[1]) == 1
    assert index.numbers([12, "10"]).tolist() == [2, 0]
    queries = np.ones((2, 3))
    expected = index.search(queries, 2, exclude=[-1, 1]).passages
    kinds: list[Any] = [
        [None, "y"],
        [pa.scalar(None), pa.scalar("y")],
        pa.array([None, "y"]),
        pa.chunked_array([[None, "y"]]),
        np.array([None, np.str_("y")], dtype=object),
        pa.array([-1, 1]),
        np.array([-1, 1], dtype=np.int8),
    ]
    for exclude in kinds:
        np.testing.assert_array_equal(index.search(queries, 2, exclude=exclude).passages, expected)
    np.testing.assert_array_equal(
        index.search(queries, 2, exclude=np.array(["x", "y"])).passages,
        index.search(queries, 2, exclude=[0, 1]).passages,
    )
    bad: list[Any] = [[0.5, 1.0], "xy", [0], [[0, 1]], [-2, 0], [0, 2], [True, False]]
    for exclude in bad:
        with pytest.raises(InputError, match="exclude must hold 2 document ids, or numbers below 2 and -1 for none"):
            index.search(queries, 2, exclude=exclude)
    with pytest.raises(InputError, match="document ids must be strings or whole numbers, found nan"):
        index.search(queries, 2, exclude=["x", float("nan")])
    with pytest.raises(InputError, match="passage_ids hold an id twice: 'a'"):
        PassageIndex(np.eye(3), passage_ids=["b", "a", "a"])
    with pytest.raises(InputError, match="doc ids must be strings or whole numbers, found None"):
        PassageIndex(np.eye(2), doc_ids=["a", None])
    with pytest.raises(InputError, match="doc_offsets must rise"):
        PassageIndex(np.eye(2), [])


def test_no_query_excludes_nothing() -> None:
    index = PassageIndex(np.eye(2))
    assert len(index.search(np.empty((0, 2)), 1, exclude=[])) == 0


def test_numbers_become_strings() -> None:
    assert id_strings(pa.array([1, 2]), "query").to_pylist() == ["1", "2"]
    assert id_strings(range(2), "query").type == large
