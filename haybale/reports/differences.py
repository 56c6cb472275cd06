"""Query by query: where a ranker wins and loses against the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from haybale.reports.markup import Html, element, joined
from haybale.reports.query_card import query_card
from haybale.reports.section import Section, absent
from haybale.reports.study import MEASURE, Study
from haybale.reports.svg.axes import Frame, wide_and_narrow
from haybale.reports.svg.differences import difference_bars

WIDE, NARROW = Frame(1020, 260, bottom=24), Frame(360, 210, left=38, right=8, bottom=24)
TITLE = "Query by query"


@dataclass(frozen=True)
class Differences:
    """Queries by difference in nDCG@10, the ranker's minus the baseline's, largest first, equal ones by id."""

    queries: list[str]
    values: list[float]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Wins, ties and losses of the ranker."""
        wins, losses = sum(value > 0 for value in self.values), sum(value < 0 for value in self.values)
        return wins, len(self.values) - wins - losses, losses

    def wins(self, n: int) -> list[str]:
        """The n largest, largest first."""
        return [query for query, value in zip(self.queries, self.values, strict=True) if value > 0][:n]

    def losses(self, n: int) -> list[str]:
        """The n largest, largest first."""
        found = [(value, query) for query, value in zip(self.queries, self.values, strict=True) if value < 0]
        return [query for _, query in sorted(found)[:n]]


def differences(study: Study, ranker: str) -> Differences:
    """Of all measured queries."""
    ours, theirs = (study.results.values[name][MEASURE] for name in (ranker, study.baseline))
    values = {str(query): float(ours[query] - theirs[query]) for query in study.query_ids}
    queries = sorted(values, key=lambda query: (-values[query], query))
    return Differences(queries, [values[query] for query in queries])


def differences_section(study: Study, n: int) -> Section:
    """All queries as bars; the n largest wins and losses with their texts."""
    if study.ranker is None:
        return absent("queries", TITLE, "There is one run only. A second one would bring wins and losses by query.")
    ranker, found = study.ranker, differences(study, study.ranker)
    shown = {"Largest wins": found.wins(n), "Largest losses": found.losses(n)}
    anchors = {query: f"q{number}" for number, query in enumerate(q for part in shown.values() for q in part)}
    wins, ties, losses = found.counts
    counts = element(
        "p",
        element("b", ranker),
        " against ",
        element("b", study.baseline),
        f" in {MEASURE}: ",
        *_count("win", wins, "wins"),
        ", ",
        *_count("tie", ties, "ties"),
        ", ",
        *_count("loss", losses, "losses"),
        ".",
        class_="counts",
    )
    caption = element(
        "figcaption",
        f"A bar a query, sorted by the difference in {MEASURE}: up where {ranker} is better, down where "
        f"{study.baseline} is. A bar of a query that is shown below leads to it.",
    )
    body = [counts, element("figure", _bars(study, found, anchors, ranker), caption)]
    for heading, queries in shown.items():
        if queries:
            cards = [query_card(study, ranker, query, anchors[query]) for query in queries]
            body += [element("h3", heading), *cards]
    return Section("queries", TITLE, joined(body))


def _count(kind: str, number: int, word: str) -> tuple[Html, str]:
    return element("span", f"{number:,}", class_=f"count {kind}"), f" {word}"


def _bars(study: Study, found: Differences, anchors: dict[str, str], ranker: str) -> Html:
    label = f"Differences in {MEASURE} of {len(found.queries)} queries, {ranker} minus {study.baseline}, sorted"
    titles = [f"{query}: {value:+.3f}" for query, value in zip(found.queries, found.values, strict=True)]
    links = {number: f"#{anchors[query]}" for number, query in enumerate(found.queries) if query in anchors}
    charts = [
        difference_bars(found.values, titles, frame, label=label, x_label="queries", links=links)
        for frame in (WIDE, NARROW)
    ]
    return wide_and_narrow(*charts)
