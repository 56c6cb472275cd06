"""Ids as strings, tables of ids, numbers of ids: what is refused, what is found out once, a dictionary as oracle."""

from __future__ import annotations

import gc
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.collections import ids
from haybale.collections.ids import Lookup, as_ids, id_codes, id_order, id_table, in_one_table, names_of
from haybale.errors import InputError
from haybale.retrieval import PassageIndex

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)


def table(*of: str, chunks: int = 1) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(list(part), pa.large_string()) for part in np.array_split(of, chunks)])


@pytest.mark.parametrize(
    "given_ids",
    [
        ["7", "é", "𝄞"],
        np.array(["7", "é", "𝄞"]),
        pa.array(["7", "é", "𝄞"]),
        pa.chunked_array([["7"], ["é", "𝄞"]]).combine_chunks().dictionary_encode(),
        list(pa.array(["7", "é", "𝄞"], pa.large_string())),
        [7, np.str_("é"), "𝄞"],
        (np.uint8(7), pa.scalar("é"), "𝄞"),
        pd.Series(["7", "é", "𝄞"]),
    ],
)
def test_ids_are_strings_whatever_they_came_as(given_ids: Any) -> None:
    found = as_ids(given_ids, "query ids")
    assert found == ["7", "é", "𝄞"]
    assert {type(name) for name in found} == {str}
    assert id_table(given_ids).to_pylist() == found


@pytest.mark.parametrize(
    "wrong", [None, float("nan"), 1.5, True, np.True_, b"a", pa.scalar(None), pa.scalar(0.5), pd.NA, ("a",)]
)
def test_what_is_no_id_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="query ids: expected strings or whole numbers, found "):
        as_ids(["a", wrong], "query ids")
    with pytest.raises(InputError, match="document ids: expected strings"):
        id_table(["a", wrong])


def test_ids_that_cannot_be_written_are_refused() -> None:
    for bad, message in (("a\0b", "holds a NUL"), ("\ud800", "no character of UTF-8")):
        for several in ([bad], ["a", bad, "b"]):
            with pytest.raises(InputError, match=message):
                as_ids(several, "query ids")
    for one in ("abc", b"abc"):
        with pytest.raises(InputError, match="expected a sequence of ids"):
            as_ids(one, "query ids")
    assert as_ids([], "query ids") == []
    assert as_ids([""], "query ids") == [""]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["a", "b", "a"], "'a' occurs twice"),
        (["a", None], "found None"),
        (["a", "b\0"], "holds a NUL"),
    ],
)
def test_tables_of_anything_else_than_distinct_ids_are_refused(bad: list[Any], message: str) -> None:
    for of in (pa.chunked_array([pa.array(bad, pa.large_string())]), pa.chunked_array([bad[:1], bad[1:]]), bad):
        with pytest.raises(InputError, match=message):
            id_table(of)


@given(of=st.lists(names, unique=True, max_size=8), chunks=st.integers(1, 3))
def test_the_order_is_pythons(of: list[str], chunks: int) -> None:
    known = id_table(table(*of, chunks=chunks))
    order = id_order(known)
    assert [of[code] for code in order.codes] == sorted(of)
    assert [sorted(of)[place] for place in order.places] == of


def test_a_table_is_checked_and_sorted_once_and_forgotten_with_its_last_user(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("count_distinct", "sort_indices"):
        real = getattr(ids.pc, name)
        monkeypatch.setattr(ids.pc, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))[1])
    known, before = table("b", "a"), len(ids._known)
    for _ in range(3):
        assert id_table(known) is known
        id_order(known)
    assert calls == ["count_distinct", "sort_indices"]
    assert len(ids._known) == before + 1
    del known
    gc.collect()
    assert len(ids._known) <= before


@given(
    tables=st.lists(st.lists(names, unique=True, min_size=1, max_size=5), min_size=1, max_size=4),
    which=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_codes_into_several_tables_are_codes_into_one(tables: list[list[str]], which: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [id_table(of) for of in tables]
    of = [made[i % len(made)] for i in which]
    codes = [rng.integers(len(each), size=rng.integers(4)) for each in of]
    one, found = in_one_table(of, codes)
    assert len(set(one.to_pylist())) == len(one)
    for each, old, new in zip(of, codes, found, strict=True):
        assert one.take(pa.array(new)).to_pylist() == [each[int(i)].as_py() for i in old]


def test_equal_tables_are_one() -> None:
    one, other = id_table(["a", "b"]), id_table(["a", "b"])
    codes = [np.array([1]), np.array([0])]
    found, same = in_one_table([one, other], codes)
    assert found is one
    assert all(new is old for new, old in zip(same, codes, strict=True))
    assert in_one_table([], [])[1] == []


@given(of=st.lists(names, unique=True, min_size=1, max_size=30), seed=st.integers(0, 99), n=st.integers(0, 40))
def test_names_of_codes(of: list[str], seed: int, n: int) -> None:
    codes = np.random.default_rng(seed).integers(len(of), size=n)
    assert names_of(id_table(of), codes) == [of[code] for code in codes]


@pytest.mark.parametrize("kind", [object, "str", "category", "Int64", np.int8])
def test_columns_of_ids(kind: Any) -> None:
    codes, found = id_codes(pd.Series([3, 1, 3]).astype(kind), "run")
    assert ([found[i] for i in codes], found) == (["3", "1", "3"], ["3", "1"])
    mixed = pd.Series(np.array([pa.scalar("a"), "a", np.str_("b")], dtype=object))
    assert id_codes(mixed, "run")[0].tolist() == [0, 0, 1]


# numbers of ids ---------------------------------------------------------------------------------------------

of_ids = st.lists(st.text(st.sampled_from("ab\u00e4\u00df\U0001f42b\x00 "), max_size=4), max_size=40)
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
@given(known=of_ids, asked=of_ids, cuts=st.lists(st.integers(0, 40), max_size=3), before=of_ids)
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


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ("ab", "document ids: expected a sequence of ids, found one string: 'ab'"),
        (3, "document ids: expected a sequence of ids, found 3"),
        ([1.0], r"document ids: expected strings or whole numbers, found 1\.0"),
        (pa.array(["a", None]), "found None"),
        (["\ud800"], r"document ids: '\\ud800' is not Unicode text"),
        ([3], "unknown document id '3'"),
    ],
)
def test_numbers_of_what_is_no_id_are_refused(given_as: Any, message: str) -> None:
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
    with pytest.raises(InputError, match="document ids: expected strings or whole numbers, found nan"):
        index.search(queries, 2, exclude=["x", float("nan")])
    with pytest.raises(InputError, match="passage_ids hold an id twice: 'a'"):
        PassageIndex(np.eye(3), passage_ids=["b", "a", "a"])
    with pytest.raises(InputError, match="doc ids: expected strings or whole numbers, found None"):
        PassageIndex(np.eye(2), doc_ids=["a", None])
    with pytest.raises(InputError, match="doc_offsets must rise"):
        PassageIndex(np.eye(2), [])
