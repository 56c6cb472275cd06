"""Recall against cut-off, as lines and as numbers."""

from __future__ import annotations

from haybale.evaluation import recall_curves
from haybale.reports.markup import Html, element, joined
from haybale.reports.section import Section
from haybale.reports.study import Study
from haybale.reports.svg.axes import Frame, wide_and_narrow
from haybale.reports.svg.lines import legend, line_chart

WIDE, NARROW = Frame(1020, 440, right=20), Frame(360, 300, left=34, right=18)


def recall_section(study: Study) -> Section:
    """The curves of all runs over the queries that are measured."""
    curves = recall_curves(study.runs, study.qrels)
    points = {str(name): (curves.index.tolist(), curves[name].tolist()) for name in curves.columns}
    label = f"Recall of {len(points)} runs at cut-offs from {curves.index[0]:,} to {curves.index[-1]:,}"
    charts = [
        line_chart(points, frame, label=label, x_label="documents looked at", neutral=study.baseline)
        for frame in (WIDE, NARROW)
    ]
    figure = element(
        "figure",
        wide_and_narrow(*charts),
        legend(list(points), study.baseline),
        element(
            "figcaption",
            "The share of the relevant documents that is among the first so many of a ranking, on average over "
            "queries. The axis is logarithmic.",
        ),
        class_="series-figure",
    )
    return Section("recall", "Recall", joined([figure, _numbers(points)]))


def _numbers(points: dict[str, tuple[list[float], list[float]]]) -> Html:
    cutoffs = next(iter(points.values()))[0]
    head = [element("th", "ranker", scope="col")]
    head += [element("th", f"@{cutoff:,}", scope="col", class_="n") for cutoff in cutoffs]
    rows = [
        element("tr", element("th", name, scope="row"), *(element("td", f"{y:.4f}", class_="n") for y in ys))
        for name, (_, ys) in points.items()
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    box = element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Recall, scrolls sideways")
    return element("details", element("summary", "The numbers"), box)
