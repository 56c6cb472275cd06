"""Test conversions of ids, tables of ids and look-ups, against dictionaries, and test what is rejected."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections.ids import (
    Lookup,
    as_ids,
    first_in_both,
    id_codes,
    id_strings,
    id_table,
    in_one_table,
    in_order_of_ids,
)  # fmt: skip
from haybale.errors import InputError
from haybale.retrieval import PassageIndex

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)
tables = st.lists(names, unique=True, min_size=1, max_size=8)


def column(ids: list[str], chunks: int = 1) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(list(part), pa.large_string()) for part in np.array_split(ids, chunks)])


@pytest.mark.parametrize(
    "given_ids",
    [
        ["7", "é", "𝄞"],
        np.array(["7", "é", "𝄞"]),
        pa.array(["7", "é", "𝄞"]),
        pa.chunked_array([["7"], ["é", "𝄞"]]),
        (np.uint8(7), np.str_("é"), pa.scalar("𝄞")),
        pd.Series([7, "é", "𝄞"]),
    ],
)
def test_ids_of_any_type_become_strings(given_ids: Any) -> None:
    found = as_ids(given_ids, "query ids")
    assert found == ["7", "é", "𝄞"] == id_table(given_ids).to_pylist() == id_strings(given_ids, "query").to_pylist()
    assert {type(name) for name in found} == {str}


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        *((["a", value], "strings or whole numbers") for value in (None, 1.5, True, b"a", pa.scalar(None))),
        (["a", "a\0b"], r"'a\\x00b'"),
        (["\ud800", "b"], r"'\\ud800'"),
        ("abc", "'abc'"),
        (3, "3"),
    ],
)
def test_invalid_ids_are_rejected(invalid: Any, message: str) -> None:
    converters = (
        lambda: as_ids(invalid, "document ids"), lambda: id_table(invalid), lambda: id_strings(invalid, "document")
    )  # fmt: skip
    for convert in converters:
        with pytest.raises(InputError, match=f"document ids: .*{message}"):
            convert()
    with pytest.raises(InputError, match=r"run: .*'\\ud800'"):
        id_codes(pd.Series(["\ud800"], dtype=object), "run")
    with pytest.raises(InputError, match="'a'"):
        id_table(["a", "b", "a"])


@given(ids=tables, chunks=st.integers(1, 3), seed=st.integers(0, 99))
def test_codes_are_sorted_in_pythons_order_of_strings(ids: list[str], chunks: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(len(ids), size=2 * len(ids))
    distinct, positions = in_order_of_ids(column(ids, chunks), codes)
    assert [ids[code] for code in distinct] == sorted({ids[code] for code in codes})
    np.testing.assert_array_equal(distinct[positions], codes)


@given(
    lists=st.lists(tables, min_size=1, max_size=4), which=st.lists(st.integers(0, 3), max_size=6), seed=st.integers(0)
)
def test_codes_into_several_tables_become_codes_into_one(lists: list[list[str]], which: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = [id_table(ids) for ids in lists]
    chosen = [columns[i % len(lists)] for i in which]
    codes = [rng.integers(len(each), size=rng.integers(4)) for each in chosen]
    joint, found = in_one_table(chosen, codes)
    assert len(set(joint.to_pylist())) == len(joint)
    for each, old, new in zip(chosen, codes, found, strict=True):
        assert joint.take(pa.array(new)).to_pylist() == [each[int(i)].as_py() for i in old]
    if len({tuple(lists[i % len(lists)]) for i in which}) == 1:  # equal tables are reused
        assert joint is chosen[0]


@pytest.mark.parametrize("kind", [object, "str", "category", "Int64", np.int8])
def test_codes_of_columns_of_any_type(kind: Any) -> None:
    codes, found = id_codes(pd.Series([3, 1, 3]).astype(kind), "run")
    assert ([found[i] for i in codes], found) == (["3", "1", "3"], ["3", "1"])


@given(known=tables, wanted=st.lists(names, max_size=20), chunks=st.integers(1, 3))
def test_lookups_agree_with_a_dictionary(known: list[str], wanted: list[str], chunks: int) -> None:
    oracle = {name: number for number, name in enumerate(known)}
    lookup = pickle.loads(pickle.dumps(Lookup(column(known, chunks))))
    expected = [oracle.get(name, -1) for name in wanted]
    assert lookup.find(wanted, "document").tolist() == expected
    assert first_in_both(column(known, chunks), column(wanted)) == next(
        (name for name in known if name in wanted), None
    )
    if -1 in expected:
        with pytest.raises(InputError) as error:
            lookup.numbers(wanted, "document")
        assert f"unknown document id {wanted[expected.index(-1)]!r}" in str(error.value)
    else:
        assert lookup.numbers(wanted, "document").tolist() == expected
    assert Lookup(pa.chunked_array([], pa.large_string())).numbers([], "query").tolist() == []


def test_indexes_accept_ids_of_any_type() -> None:
    index = PassageIndex(np.eye(3), [0, 2, 3], passage_ids=[10, 11, 12], doc_ids=np.array(["x", "y"]))
    assert index.passage_ids.to_pylist() == ["10", "11", "12"]
    assert index.document_numbers([index.doc_ids[1]]).tolist() == [1]
    assert index.numbers([12, "10"]).tolist() == [2, 0]
    queries = np.ones((2, 3))
    expected = index.search(queries, 2, exclude=[-1, 1]).passages
    for exclude in ([None, "y"], pa.array([None, "y"]), np.array([None, "y"], dtype=object), np.array([-1, 1])):
        np.testing.assert_array_equal(index.search(queries, 2, exclude=exclude).passages, expected)
    invalid: list[Any] = [[0.5, 1.0], "xy", [0], [[0, 1]], [-2, 0], [0, 2], [True, False]]
    for exclude in invalid:
        with pytest.raises(InputError, match="exclude"):
            index.search(queries, 2, exclude=exclude)
    with pytest.raises(InputError, match="'a'"):
        PassageIndex(np.eye(3), passage_ids=["b", "a", "a"])
