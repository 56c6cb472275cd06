"""The filters of the search page: values shown, folded and chosen, orders of lists, an example of a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from haybale.service.facets import Facet

_MAX_OPEN_VALUES = 8  # of a facet; the others are folded


def useful_names(facets: list[Facet]) -> list[str]:
    """Return the columns that can narrow a search: not those with a value of its own for each document, such as a path.

    ``facets`` are those of all documents.
    """
    return [
        facet.name
        for facet in facets
        if facet.kind == "range" or facet.n_values <= _MAX_OPEN_VALUES or facet.values[0][1] > 1
    ]


def facet_view(facet: Facet, chosen: list[str]) -> Mapping[str, Any]:
    """Return a facet with what is chosen of it.

    Values are in the order of their counts, so that one that is chosen stays where it is. A chosen value that no
    document has is last.
    """
    if facet.kind == "range":
        low, high = [*chosen, "", ""][:2]
        is_date = isinstance(facet.least, str)
        return {
            "name": facet.name, "kind": "range", "input": "date" if is_date else "number",
            "low": low, "high": high, "least": facet.least, "most": facet.most,
        }  # fmt: skip
    values = []
    for value, count in facet.values:
        text = str(value).lower() if isinstance(value, bool) else value
        label = ("yes" if value else "no") if isinstance(value, bool) else value
        values.append({"text": text, "label": label, "count": count, "chosen": text in chosen})
    listed = {view["text"] for view in values}
    values += [{"text": text, "label": text, "count": 0, "chosen": True} for text in chosen if text not in listed]
    folded = values[_MAX_OPEN_VALUES:]
    return {
        "name": facet.name, "kind": "value", "shown": values[:_MAX_OPEN_VALUES], "folded": folded,
        "is_open": any(view["chosen"] for view in folded), "unlisted": facet.n_values - len(facet.values),
    }  # fmt: skip


def condition_example(facets: list[Facet]) -> str:
    """Return a condition that the documents could have."""
    for facet in facets:
        name = facet.name if re.fullmatch(r"[a-z_][a-z0-9_]*", facet.name) else f'"{facet.name}"'
        if facet.kind == "value" and facet.values and isinstance(facet.values[0][0], str):
            return f"{name} = '{facet.values[0][0]}'"
        if facet.kind == "range":
            return f"{name} >= '{facet.least}'" if isinstance(facet.least, str) else f"{name} >= {facet.least}"
    return "passages < 100"


def orders(facets: list[Facet]) -> dict[str, str]:
    """Return the orders in which documents can be listed, in words, by what the address says: ``-date`` is descending.

    >>> orders([Facet("date", "range", [], least="2001-01-01"), Facet("pages", "range", [], least=1)])
    {'-date': 'date, newest first', 'date': 'date, oldest first', 'title': 'title', '-title': 'title, from the end',
     '-pages': 'pages, largest first', 'pages': 'pages, smallest first'}
    """
    ranges = [facet for facet in facets if facet.kind == "range"]
    words: dict[str, str] = {}
    for facet in ranges:
        if isinstance(facet.least, str):
            words |= {f"-{facet.name}": f"{facet.name}, newest first", facet.name: f"{facet.name}, oldest first"}
    words |= {"title": "title", "-title": "title, from the end"}
    for facet in ranges:
        if not isinstance(facet.least, str):
            words |= {f"-{facet.name}": f"{facet.name}, largest first", facet.name: f"{facet.name}, smallest first"}
    return words
