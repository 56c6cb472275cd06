"""One query, unfolded: its text, both rankers' measures, and what they put first."""

from __future__ import annotations

from haybale.reports.markup import Html, element, joined
from haybale.reports.section import shortened
from haybale.reports.study import MEASURE, TOP, Study

QUERY, RELEVANT, FIRST = 1500, 420, 260  # characters of a text that are shown


def query_card(study: Study, ranker: str, query: str, anchor: str) -> Html:
    """A details element; ``ranker`` against the study's baseline."""
    text = study.query_text(query)
    ours, theirs = (study.results.values[name][MEASURE] for name in (ranker, study.baseline))
    difference = float(ours[query] - theirs[query])
    summary = element(
        "summary",
        element("span", f"{difference:+.3f}", class_=f"count {'win' if difference > 0 else 'loss'}"),
        " ",
        element("b", query),
        " ",
        element("span", shortened(" ".join(text.split()), 95), class_="faint", dir="auto"),
    )
    rankings = {name: study.ranking(name, query) for name in (ranker, study.baseline)}
    return element(
        "details",
        summary,
        element("blockquote", shortened(text, QUERY), dir="auto"),
        _measures(study, query, list(rankings)),
        element("h4", "Relevant documents"),
        _relevant(study, query, rankings),
        element("h4", "What comes first"),
        element("div", *(_first(study, query, name, ranked) for name, ranked in rankings.items()), class_="beside"),
        id=anchor,
        class_="query",
    )


def _measures(study: Study, query: str, names: list[str]) -> Html:
    measures = study.results.measures
    head = element("tr", element("th", "ranker", scope="col"), *(_numeric("th", each, "col") for each in measures))
    rows = []
    for name in names:
        values = study.results.values[name]
        cells = [_numeric("td", f"{float(values[measure][query]):.3f}") for measure in measures]
        rows.append(element("tr", element("th", name, scope="row"), *cells))
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Measures, scrolls sideways")


def _numeric(name: str, content: str, scope: str | None = None) -> Html:
    return element(name, content, class_="n", scope=scope)


def _relevant(study: Study, query: str, rankings: dict[str, list[str]]) -> Html:
    """The relevant documents, those that the ranker has first in front."""
    places = {name: {document: rank for rank, document in enumerate(ranked, 1)} for name, ranked in rankings.items()}
    first = next(iter(places.values()))
    documents = sorted(study.relevant[query], key=lambda document: (first.get(document, 10**9), document))
    items = []
    for document in documents:
        ranks = [
            element(
                "span",
                f"{name} ",
                element("b", f"{place[document]:,}") if document in place else element("span", "not found"),
                class_="rank",
            )
            for name, place in places.items()
        ]
        items.append(element("li", _document(study, document, RELEVANT), element("div", *ranks, class_="ranks")))
    return element("ul", *items, class_="documents")


def _first(study: Study, query: str, name: str, ranked: list[str]) -> Html:
    relevant = set(study.relevant[query])
    items = [
        element("li", _document(study, document, FIRST, relevant=document in relevant)) for document in ranked[:TOP]
    ]
    listed = element("ol", *items, class_="documents") if items else element("p", "nothing", class_="note")
    return element("div", element("h5", name), listed)


def _document(study: Study, document: str, most: int, *, relevant: bool = False) -> Html:
    title = study.document_title(document)
    parts: list[object] = [element("b", document)]
    if title and title != document:
        parts.append(element("span", f" {shortened(title, 120)}"))
    if relevant:
        parts.append(element("span", " ✓ relevant", class_="relevant"))
    text = element("p", shortened(study.document_text(document, most + 1), most), class_="excerpt", dir="auto")
    return joined([*parts, text])
