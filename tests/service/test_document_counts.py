"""Counts of the search page and of the REST interface: of what matches, under the filters of the other columns."""

from __future__ import annotations

from typing import Any

import pytest
from support.decisions import decisions

from haybale import Engine
from haybale.errors import InputError

QUERIES = ["", "dog", "dog lease", '"the dog" damage', "appeal"]
CHOSEN: list[dict[str, list[Any]]] = [
    {},
    {"court": ["BGH"]},
    {"court": ["BGH"], "topics": ["dog", "tax"], "year": [2004, None]},
    {"date": ["2003-01-01", "2010-12-31"], "topics": ["lease"]},
    {"court": ["no such court"]},
]


def rows_of(engine: Engine) -> list[dict[str, Any]]:
    rows = engine.documents_table().to_pylist()
    return [row | {"text": "\n".join(decisions()[row["id"]]["text"]).lower()} for row in rows]


def has(row: dict[str, Any], query: str) -> bool:
    """Return whether a decision matches one of the queries; their words have no inflections there."""
    if query == '"the dog" damage':
        return "the dog" in row["text"]
    return not query or any(word in row["text"].split() for word in query.split())


def fulfils(row: dict[str, Any], column: str, values: list[Any]) -> bool:
    if column == "topics":
        return bool(set(values) & set(row["topics"]))
    if column in ("year", "date"):
        low, high = values
        value = row[column] if column == "year" else row[column].isoformat()
        return (low is None or value >= low) and (high is None or value <= high)
    return row[column] in values


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
def test_each_column_is_counted_under_the_filters_of_the_others(
    workspace: Any, client: Any, query: str, chosen: dict[str, list[Any]]
) -> None:
    rows = [row for row in rows_of(workspace.engine) if has(row, query) and row["year"] < 2020]
    body = {"q": query, "where": "year < 2020", "chosen": chosen}
    counted = client.post("/api/facets", json=body).json()
    assert counted["n_documents"] == 24
    assert counted["n_matching"] == sum(all(fulfils(row, *pair) for pair in chosen.items()) for row in rows)
    for facet in counted["facets"]:
        if facet["kind"] == "range":
            continue
        others = [pair for pair in chosen.items() if pair[0] != facet["name"]]
        left = [row for row in rows if all(fulfils(row, *pair) for pair in others)]
        numbers = {value["value"]: value["documents"] for value in facet["values"]}
        values = [value for row in left for value in ([row["court"]] if facet["name"] == "court" else row["topics"])]
        assert numbers == {value: values.count(value) for value in set(values)}
        assert facet["n_values"] == len(numbers)
        assert list(numbers.values()) == sorted(numbers.values(), reverse=True)
    if not chosen:
        assert client.get("/api/facets", params={"q": query, "where": "year < 2020"}).json() == counted


def test_counts_of_wrong_searches_are_refused(workspace: Any, client: Any) -> None:
    for wrong in ({"where": "yeer > 1"}, {"chosen": {"yeer": [1, 2]}}, {"chosen": {"year": [1]}}, {"q": "x" * 300_000}):
        with pytest.raises(InputError):
            workspace.counts.count(wrong.get("q", ""), wrong.get("where"), wrong.get("chosen"))
        assert client.post("/api/facets", json=wrong).status_code in (409, 422)
    assert client.post("/api/facets", json={"chosen": {"court": [["BGH"]]}}).status_code == 422


def test_documents_are_listed_part_by_part(workspace: Any, client: Any) -> None:
    def ids(**params: Any) -> list[str]:
        return [document["doc_id"] for document in client.get("/api/documents", params=params).json()["documents"]]

    by_date = sorted(rows_of(workspace.engine), key=lambda row: row["date"])
    assert ids() == [row["id"] for row in reversed(by_date)]  # the newest first
    assert ids(sort="date") == [row["id"] for row in by_date]
    titles = [row["id"] for row in sorted(by_date, key=lambda row: (row["title"].split()[0], row["year"]))]
    parts = [ids(sort="title", offset=offset, limit=7) for offset in range(0, 28, 7)]
    assert [doc_id for part in parts for doc_id in part] == titles
    some = client.get(
        "/api/documents", params={"where": "court = 'BGH'", "sort": "year", "descending": True, "limit": 2}
    )
    assert some.json()["n_documents"] == 12
    assert [document["metadata"]["year"] for document in some.json()["documents"]] == [2022, 2020]
    assert some.json()["documents"][0]["snippets"][0]["text"]
    assert ids(offset=1000) == []
    for params, status in (
        ({"sort": "titel"}, 409),
        ({"sort": "topics"}, 409),
        ({"limit": 0}, 422),
        ({"srot": "x"}, 422),
    ):
        assert client.get("/api/documents", params=params).status_code == status
