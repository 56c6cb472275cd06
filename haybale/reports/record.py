"""What is recorded about the runs: seconds by stage, settings, environment, what training found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from haybale.reports.load import Source
from haybale.reports.markup import Html, element, joined
from haybale.reports.section import Section, absent

FOLDER = "A folder written by haybale compare --out would bring"


def timings_section(sources: Sequence[Source]) -> Section:
    """Seconds of each stage as bars, the longest first."""
    timed = [source for source in sources if source.results.get("seconds")]
    if not timed:
        return absent("seconds", "Seconds", f"{FOLDER} the seconds of each stage.")
    parts: list[Html] = []
    for source in timed:
        if len(timed) > 1:
            parts.append(element("h3", source.name))
        parts.append(_bars({str(name): float(value) for name, value in source.results["seconds"].items()}))
    note = element("p", "Each stage counts for itself: what it needs is made before it begins.", class_="note")
    return Section("seconds", "Seconds", joined([*parts, note]))


def _bars(seconds: Mapping[str, float]) -> Html:
    total, greatest = sum(seconds.values()), max(seconds.values()) or 1.0
    rows = []
    for stage, value in sorted(seconds.items(), key=lambda each: (-each[1], each[0])):
        bar = element("span", "", class_="bar", style=f"width:{100 * value / greatest:.2f}%")
        rows.append(
            element(
                "tr",
                element("th", stage, scope="row"),
                element("td", bar, class_="track"),
                element("td", f"{value:,.1f}" if value >= 0.05 else "<0.1", class_="n"),
            )
        )
    rows.append(
        element(
            "tr",
            element("th", "all stages", scope="row"),
            element("td", ""),
            element("td", element("strong", f"{total:,.1f}"), class_="n"),
        )
    )
    return element("table", element("tbody", *rows), class_="bars")


def facts_section(sources: Sequence[Source]) -> Section:
    """What indexing and training found."""
    known = [source for source in sources if source.results.get("facts")]
    if not known:
        return absent("facts", "What was found on the way", f"{FOLDER} what indexing and training found.")
    return Section(
        "facts",
        "What was found on the way",
        _pairs(known, [(source.name, source.results["facts"]) for source in known]),
    )


def settings_section(sources: Sequence[Source]) -> Section:
    """Every setting, and the versions the numbers depend on."""
    known = [source for source in sources if source.settings]
    if not known:
        return absent("settings", "Configuration", f"{FOLDER} settings and environment.")
    body = _pairs(known, [(source.name, source.settings) for source in known])
    environments = [(source.name, source.results["environment"]) for source in known if "environment" in source.results]
    if environments:
        body = joined([body, element("h3", "Environment"), _pairs(known, environments)])
    return Section("settings", "Configuration", body)


def _pairs(sources: Sequence[Source], parts: Sequence[tuple[str, Mapping[str, Any]]]) -> Html:
    shown: list[Html] = []
    for name, values in parts:
        rows = [element("div", element("dt", key), element("dd", value)) for key, value in flattened(values)]
        if len(sources) > 1:
            shown.append(element("h4", name))
        shown.append(element("dl", *rows, class_="pairs"))
    return joined(shown)


def flattened(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Names with values as text, one line each; those within others have the names of both.

    >>> list(flattened({"a": {"b": 0.5, "c": [1, 2]}, "d": None, "e": "/home/someone/model", "f": [{"g": 1}]}))
    [('a, b', '0.5'), ('a, c', '1, 2'), ('d', '–'), ('e', 'model'), ('f, 0, g', '1')]
    """
    for key, value in values.items():
        if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            value = {str(place): each for place, each in enumerate(value)}  # rankers within a ranker
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{before}{key}, ")
        else:
            yield f"{before}{key}", _text(value)


def _text(value: Any) -> str:
    if value is None or value in ({}, [], ""):
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name  # where it lies on a machine is nobody's business
    return str(value)
