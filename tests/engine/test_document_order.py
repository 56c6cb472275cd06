"""Documents sorted by a column: as Python sorts the values, without values last, and equal ones by id."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import CollectionBuilder, Engine
from haybale.errors import InputError, UnknownNameError

VALUES = {
    "day": [None, date(2001, 2, 3), date(1999, 1, 1), date(2020, 5, 5)],
    "pages": [None, 3, 12, -4],
    "weight": [None, 0.5, float("inf"), -2.0],
    "court": [None, "bgh", "BGH", "Ärzte", "§ 9", "§ 10"],
    "signed": [None, True, False],
}


def engine_of(rows: list[dict[str, Any]]) -> Engine:
    builder = CollectionBuilder("rows")
    for number, row in enumerate(rows):
        metadata = {name: value for name, value in row.items() if name != "title"}
        builder.add_document(f"d{(number * 7) % 23:02}", ["a text"], title=row["title"], metadata=metadata)
    return Engine(builder.build(warn=False), language="english", encoder="tfidf(min_df=1)")


rows = st.fixed_dictionaries(
    {name: st.sampled_from(values) for name, values in VALUES.items()}
    | {"title": st.sampled_from(["", "Lease 2", "lease 10", "Élan", "elan"])}
)


def key_of(value: Any) -> Any:
    """Return what a value is sorted by, for the texts that the tests have."""
    folded = {"bgh": 2, "BGH": 2, "Ärzte": 1, "§ 9": 3, "§ 10": 4}
    return folded.get(value, value) if isinstance(value, str) else value


@settings(max_examples=40, deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from(sorted(VALUES)), st.booleans())
def test_documents_are_sorted_as_their_values(made: list[dict[str, Any]], column: str, descending: bool) -> None:
    engine = engine_of(made)
    table = engine.documents_table()
    if column not in table.column_names or table[column].null_count == len(table):
        return
    ids, values = table["id"].to_pylist(), table[column].to_pylist()
    by_id = sorted(range(len(ids)), key=lambda number: ids[number])
    present = [number for number in by_id if values[number] is not None]
    expected = sorted(present, key=lambda number: key_of(values[number]), reverse=descending)
    expected += [number for number in by_id if values[number] is None]
    assert engine.documents_where(sort=column, descending=descending).tolist() == expected


def test_titles_are_sorted_as_people_do() -> None:
    titles = ["lease 10", "Élan", "", "Lease 2", "  elan vital", "§ 1"]
    engine = engine_of([{"title": title, "year": n} for n, title in enumerate(titles)])
    ids = engine.collection.doc_ids.to_pylist()
    shown = [titles[number] or ids[number] for number in engine.documents_where(sort="title").tolist()]
    assert shown == ["d14", "Élan", "  elan vital", "Lease 2", "lease 10", "§ 1"]
    some = engine.documents_where("year > 2", sort="title", descending=True).tolist()
    assert [titles[number] for number in some] == ["§ 1", "Lease 2", "  elan vital"]
    assert engine.documents_where().tolist() == list(range(6))
    engine.add({"new": {"text": "a text", "title": "A"}})
    assert engine.documents_where(sort="title").tolist()[0] == 6


def test_what_cannot_be_sorted_is_refused() -> None:
    builder = CollectionBuilder("lists")
    builder.add_document("a", ["rent"], metadata={"topics": ["tax", "land"]})
    engine = Engine(builder.build(warn=False), language="english", encoder="tfidf(min_df=1)")
    with pytest.raises(InputError, match="lists"):
        engine.documents_where(sort="topics")
    with pytest.raises(UnknownNameError, match=r"titel.*did you mean title"):
        engine.documents_where(sort="titel")
