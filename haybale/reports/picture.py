"""The picture of queries amid passages, after figure 1a of Bönisch & Mehler 2024."""

from __future__ import annotations

import numpy as np

from haybale.engine import Engine
from haybale.reports.markup import Html, element, joined
from haybale.reports.neighbourhood import Neighbourhood, neighbourhood
from haybale.reports.plane import FEWEST, NAMES, in_plane
from haybale.reports.section import Section, absent, shortened
from haybale.reports.study import Study
from haybale.reports.svg.axes import Frame, wide_and_narrow
from haybale.reports.svg.marks import colour_of, mark
from haybale.reports.svg.scatter import Join, Point, scatter
from haybale.reports.vectors import described
from haybale.stages import stage

TITLE = "Queries amid passages"
HIGHLIGHTED = 6
WIDE, NARROW = Frame(1020, 660, 10, 10, 10, 10), Frame(360, 360, 8, 8, 8, 8)
MEANING = (
    "Points that lie together are near each other in the full space; how far apart groups lie, how large or dense they "
    "are, and the directions mean nothing. A short line is a passage that its query is near to; a long one says only "
    "that other passages are nearer."
)


def picture_section(study: Study, engine: Engine | None, method: str, random_state: int) -> Section:
    """The picture by ``"tsne"`` or ``"umap"``."""
    if engine is None:
        return absent("picture", TITLE, "The picture needs vectors; --encoder tfidf or a store would bring them.")
    if method == "none":
        return absent("picture", TITLE, "Left out; --picture tsne would bring it.")
    shown = neighbourhood(study, engine, random_state)
    if shown.vectors.shape[0] < FEWEST:
        return absent("picture", TITLE, f"The collection has too few passages; a picture needs {FEWEST} points.")
    with stage(NAMES[method]):
        places = in_plane(shown.vectors, method, random_state)
    highlighted = _spread(shown)
    points, joins = _points(study, engine, shown, highlighted)
    label = f"{len(shown.query_ids)} queries amid {len(shown.passages)} passages, by {NAMES[method]}"
    figure = element(
        "figure",
        wide_and_narrow(
            scatter(places, points, joins, WIDE, label=label),
            scatter(places, _smaller(points), joins, NARROW, label=label, titles=False),
        ),
        _legend(study, shown, highlighted),
        element("figcaption", f"{NAMES[method]} of {described(engine)}. {MEANING}"),
    )
    found, of = shown.found
    counted = (
        f"{len(shown.query_ids)} queries by chance, with the {max(map(len, shown.near))} passages nearest to each, and "
        f"the passage of each relevant document that is nearest. In the full space {found} of these {of} relevant "
        "passages are among the nearest of their query."
    )
    return Section("picture", TITLE, joined([element("p", counted), figure]))


def _spread(shown: Neighbourhood) -> list[int]:
    """Queries from the one nearest to a relevant passage to the one farthest from all of its own."""
    having = [place for place, rows in enumerate(shown.relevant) if len(rows)]
    order = sorted(having, key=lambda place: (-shown.similarity[place], shown.query_ids[place]))
    return (
        [order[i] for i in np.unique(np.linspace(0, len(order) - 1, HIGHLIGHTED).round().astype(int))] if order else []
    )


def _points(
    study: Study, engine: Engine, shown: Neighbourhood, highlighted: list[int]
) -> tuple[list[Point], list[Join]]:
    n = len(shown.passages)
    names = engine.passages.passage_ids.take(shown.passages).to_pylist()
    points = [Point("circle", 1.6, "other", str(name)) for name in names]
    joins = []
    for place, (near, relevant) in enumerate(zip(shown.near, shown.relevant, strict=True)):
        for row in near.tolist():
            points[row] = points[row]._replace(radius=2.2, class_="near")
        joins += [Join(n + place, row, "faint") for row in relevant.tolist()]
    for rows in shown.relevant:
        for row in rows.tolist():
            points[row] = points[row]._replace(shape="diamond", radius=3.4, class_="relevant-point")
    for number, place in enumerate(highlighted):
        colour = colour_of(number)
        for row in shown.near[place].tolist():
            if points[row].shape == "circle":
                points[row] = points[row]._replace(radius=3.0, class_=f"near {colour}")
        for row in shown.relevant[place].tolist():
            points[row] = points[row]._replace(radius=5.0, class_=f"relevant-point {colour}")
        joins = [join for join in joins if join.start != n + place]
        joins += [Join(n + place, row, colour) for row in shown.relevant[place].tolist()]
    for place, query in enumerate(shown.query_ids):
        title = f"query {query}: {shortened(' '.join(study.query_text(query).split()), 90)}"
        if place in highlighted:
            points.append(Point("cross", 6.0, f"query {colour_of(highlighted.index(place))}", title))
        else:
            points.append(Point("cross", 3.2, "query", title))
    return points, joins


def _smaller(points: list[Point]) -> list[Point]:
    return [point._replace(radius=0.75 * point.radius) for point in points]


def _legend(study: Study, shown: Neighbourhood, highlighted: list[int]) -> Html:
    kinds = [
        ("cross", "query", "query"),
        ("diamond", "relevant-point", "relevant passage, with a line from its query"),
        ("circle", "near", "passage near to a query"),
        ("circle", "other", "another passage"),
    ]
    items = [element("li", _sign(shape, class_), element("span", name)) for shape, class_, name in kinds]
    for number, place in enumerate(highlighted):
        query = shown.query_ids[place]
        text = shortened(" ".join(study.query_text(query).split()), 70)
        words = element("span", element("b", query), " ", element("span", text, class_="faint"))
        items.append(element("li", _sign("cross", f"query {colour_of(number)}"), words))
    return element("ul", *items, class_="legend kinds")


def _sign(shape: str, class_: str) -> Html:
    sign = mark(shape, 8, 8, 4 if shape != "circle" else 3, class_=class_)
    return element("svg", sign, viewBox="0 0 16 16", class_="scatter", aria_hidden="true")
