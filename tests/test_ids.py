"""Ids at the door, and tables of ids: what is refused, what is found out once, codes into several tables as one."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.errors import InputError
from haybale.retrieval import ids
from haybale.retrieval.ids import as_ids, id_codes, id_order, id_table, in_one_table, names_of

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
