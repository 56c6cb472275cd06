"""The page of searches: the box, the filters, the hits, why a hit is there, and the search as one file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from haybale import __version__
from haybale.collections.unread import counted
from haybale.errors import InputError
from haybale.search import SearchResults
from haybale.service.facets import Facet
from haybale.service.file_worker import MAX_TEXT
from haybale.service.long_queries import query_suffixes
from haybale.service.own_addresses import picture_address
from haybale.service.pages.paragraph_map import ParagraphMap, paragraph_map
from haybale.service.pages.rendering import FOLDER, Renderer, address, document_address, judge_of, view_address
from haybale.service.pages.share_tree import ShareBar, paragraph_explanation, share_bars
from haybale.service.request_texts import paragraphs
from haybale.service.roles import READ, needs
from haybale.service.workspace import Workspace

MAX_DIGITS = 18  # of a number in an address
_HITS_PER_PAGE, _MAX_HITS_PER_PAGE = 10, 100
_MAX_HITS_IN_FILE = 20  # a small number, because each hit is explained
_TOGETHER = {"thread": "mails of a thread", "parent": "a mail and its attachments"}  # by column of the metadata
_MAX_OPEN_VALUES = 8  # of a facet; the others are folded


@dataclass(frozen=True)
class SearchState:
    """What the address of a search says; equal addresses are equal searches.

    ``text`` is the id of a long query, whose text the workspace keeps, ``values`` and ``ends`` are what is
    chosen of facets, ``learned`` says whether the topic's judgements rank, too, and ``together`` is the column by which
    hits are shown together.
    """

    query: str
    text: str
    where: str
    ranker: str
    topic: str
    learned: str
    together: str
    offset: int
    k: int
    values: dict[str, list[str]]
    ends: dict[str, list[str]]

    @classmethod
    def of(cls, request: Request, workspace: Workspace) -> SearchState:
        """Return the state that a request's address has."""
        parameters = request.query_params
        values: dict[str, list[str]] = {}
        ends: dict[str, list[str]] = {}
        for name, value in parameters.multi_items():
            kind, dot, column = name.partition(".")
            if kind == "f" and dot:
                values.setdefault(column, []).append(value)
            elif kind in ("from", "to") and dot and value.strip():
                ends.setdefault(column, ["", ""])[kind == "to"] = value.strip()
        text = parameters.get("text", "")
        query = workspace.long_queries.text(text) if text else parameters.get("q", "")
        names = ("where", "ranker", "topic", "learned", "together")
        where, ranker, topic, learned, together = (parameters.get(name, "").strip() for name in names)
        offset = _number(parameters.get("offset"), 0, 0)
        k = min(_number(parameters.get("k"), _HITS_PER_PAGE, 1), _MAX_HITS_PER_PAGE)
        return cls(query.strip(), text, where, ranker, topic, learned, together, offset, k, values, ends)

    @property
    def facets(self) -> list[tuple[str, str]]:
        """The parameters of the chosen facets."""
        pairs = []
        for column, values in self.values.items():
            pairs += [(f"f.{column}", value) for value in values]
        for column, ends in self.ends.items():
            pairs += [(f"{kind}.{column}", end) for kind, end in zip(("from", "to"), ends, strict=True) if end]
        return pairs

    @property
    def chosen(self) -> dict[str, list[str]]:
        """The chosen values, and the two ends of ranges, by column."""
        return {**self.values, **self.ends}

    def parameters(self, *without: str) -> list[tuple[str, Any]]:
        """Return the parameters of this search's address, except those named."""
        query = ("text", self.text) if self.text else ("q", self.query)
        pairs: list[tuple[str, Any]] = [
            query,
            ("ranker", self.ranker),
            ("where", self.where),
            *self.facets,
            ("topic", self.topic),
            ("learned", self.learned),
            ("together", self.together),
        ]
        pairs += [("k", self.k if self.k != _HITS_PER_PAGE else None), ("offset", self.offset or None)]
        return [(name, value) for name, value in pairs if name not in without and name.partition(".")[0] not in without]

    @property
    def learned_topic(self) -> int | None:
        """The topic whose judgements the ranking uses, or None."""
        return self.topic_number if self.learned else None

    @property
    def topic_number(self) -> int | None:
        """The number of the topic; None if there is none, or no number."""
        return int(self.topic) if self.topic.isdecimal() and len(self.topic) <= MAX_DIGITS else None

    def search(self, workspace: Workspace, judge: str, most: int = _MAX_HITS_PER_PAGE) -> SearchResults:
        """Return the results, as a judge may see them."""
        where, ranker = self.condition(workspace), self.ranker or None
        n, together = min(self.k, most), self.together or None
        return workspace.search(self.query, n, where, ranker, self.offset, self.learned_topic, together, judge)

    def condition(self, workspace: Workspace) -> str | None:
        """Return the condition and the chosen facets as one condition."""
        facets = workspace.condition(self.chosen) if self.chosen else None
        if self.where and facets:
            return f"({self.where}\n) and {facets}"
        return self.where or facets


@dataclass(frozen=True)
class Why:
    """Why a document is there, for templates."""

    ranker: str
    score: float | None
    rank: int | None
    bars: list[ShareBar]
    notes: list[str]
    map: ParagraphMap | None


def why(workspace: Workspace, state: SearchState, doc_id: str, judge: str) -> Why:
    """Return why a search found a document, as a judge may see it."""
    where, ranker = state.condition(workspace), state.ranker or None
    explanation, _ = workspace.explain(state.query, doc_id, where, ranker, state.learned_topic, judge)
    detail = paragraph_explanation(explanation)
    parts = paragraphs(state.query)
    drawn = None if detail is None or isinstance(parts, str) else paragraph_map(detail, parts)
    bars = share_bars(explanation, workspace.query_text)
    return Why(explanation.ranker, explanation.score, explanation.rank, bars, explanation.notes, drawn)


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of searches."""

    @router.get("/")
    @needs(READ)
    def search(request: Request) -> HTMLResponse:
        state, error, results = None, "", None
        try:
            state = SearchState.of(request, workspace)
            if state.query:
                results = state.search(workspace, judge_of(request))
        except InputError as wrong:
            error = str(wrong)
        state = state or SearchState("", "", "", "", "", "", "", 0, _HITS_PER_PAGE, {}, {})
        values = _values(workspace, state, results, error, request.scope.get("root_path", ""), judge_of(request))
        return renderer.page(request, "search.html", 422 if error else 200, **values)

    @router.get("/why")
    @needs(READ)
    def explained(request: Request, id: str) -> HTMLResponse:
        state = SearchState.of(request, workspace)
        reasons, root = why(workspace, state, id, judge_of(request)), request.scope.get("root_path", "")
        if "part" in request.query_params:
            return renderer.page(request, "why_part.html", why=reasons)
        return renderer.page(
            request,
            "why.html",
            why=reasons,
            query=state.query,
            title=workspace.titles([id])[id],
            document_link=root + document_address(id, state.parameters("topic")),
            search_link=root + address("/", state.parameters()),
        )

    @router.get("/sent")
    @needs(READ)
    def sent(request: Request) -> Response:
        state = SearchState.of(request, workspace)
        judge = judge_of(request)
        results = state.search(workspace, judge, _MAX_HITS_IN_FILE)
        styles = [files("haybale") / "palette.css", FOLDER / "static" / "pages.css"]
        page = renderer.text(
            request,
            "sent.html",
            query=state.query,
            hits=[(hit, why(workspace, state, hit.doc_id, judge)) for hit in results],
            n_documents=workspace.engine.collection.n_documents,
            ranker=results.ranker,
            where=state.condition(workspace),
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            version=__version__,
            style=Markup("".join(path.read_text(encoding="utf-8") for path in styles)),
        )
        name = re.sub(r"[^a-z0-9]+", "-", state.query.lower())[:60].strip("-") or "search"
        return HTMLResponse(page, headers={"Content-Disposition": f'attachment; filename="{name}.html"'})


def _values(
    workspace: Workspace, state: SearchState, results: SearchResults | None, error: str, root: str, judge: str
) -> dict[str, Any]:
    """Return what the template of searches shows."""
    collection = workspace.engine.collection
    columns = [] if collection.metadata is None else collection.metadata.column_names
    topics = [] if state.query else [summary for summary in workspace.topics() if not summary.is_closed]
    topic = None if state.topic_number is None else workspace.topic(state.topic_number)
    n_chosen = sum(len([value for value in values if value]) for values in state.chosen.values())
    facets = [_facet_view(facet, state.chosen.get(facet.name, [])) for facet in workspace.facets() if _is_useful(facet)]
    link = partial(address, root + "/")
    return {
        "here": "/",
        "query": state.query,
        "error": error,
        "hits": results or [],
        "groups": None if results is None else results.groups,
        "n_more": {
            group.shown[-1]: len(group.ranks) - len(group.shown) for group in (results and results.groups) or ()
        },
        "below": {rank: group.ranks[0] for group in (results and results.groups) or () for rank in group.shown[1:]},
        "together": state.together,
        "columns_together": {name: words for name, words in _TOGETHER.items() if name in columns},
        "offset": state.offset,
        "size": state.k,
        "rankers": workspace.rankers,
        "ranker": state.ranker or workspace.rankers[0],
        "ranker_asked": state.ranker,
        "where": state.where,
        "where_example": _example(workspace.facets()),
        "max_text": MAX_TEXT,
        "is_long": bool(state.text),
        "suffixes": ", ".join(query_suffixes()),
        "n_documents": collection.n_documents,
        "n_passages": collection.n_passages,
        "unread": counted(unread) if (unread := workspace.engine.unread) else "",
        "topics": sorted(topics, key=lambda summary: summary.last or summary.time, reverse=True)[:5],
        "topic": topic,
        "grades": workspace.shown_grades(topic.id, [hit.doc_id for hit in results or ()], judge) if topic else {},
        "facets": facets,
        "n_chosen": n_chosen,
        "kept": [*state.facets, ("topic", state.topic)] if state.topic else state.facets,
        "carried": [pair for pair in state.parameters("f", "from", "to", "offset") if pair[1]],
        "without_filters": link(state.parameters("f", "from", "to", "where", "offset")),
        "here_link": link(state.parameters()),
        "sent_link": address(root + "/sent", state.parameters(*([] if state.learned else ["topic"]))),
        "learned": state.learned_topic is not None,
        "document_link": lambda doc_id: root + document_address(doc_id, state.parameters("topic", "offset", "k")),
        "is_drawable": workspace.files.is_drawable,
        "view_link": lambda doc_id, passage_id: (
            root + view_address(doc_id, passage_id, None, state.parameters("topic", "offset", "k"))
        ),
        "picture_link": lambda doc_id, passage_id: root + picture_address(doc_id, passage_id, None),
        "why_link": lambda doc_id: address(root + "/why", {"id": doc_id}, state.parameters()),
        "page_link": lambda offset: link(state.parameters("offset"), offset=max(0, offset) or None),
    }


def _is_useful(facet: Facet) -> bool:
    """Return whether a facet can narrow a search: not where every document has a value of its own, such as a path."""
    return facet.kind == "range" or facet.n_values <= _MAX_OPEN_VALUES or facet.values[0][1] > 1


def _facet_view(facet: Facet, chosen: list[str]) -> Mapping[str, Any]:
    """Return a facet with what is chosen of it."""
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
    values.sort(key=lambda view: view["text"] not in chosen)
    n_open = max(_MAX_OPEN_VALUES, len(chosen))
    return {
        "name": facet.name, "kind": "value", "shown": values[:n_open], "folded": values[n_open:],
        "unlisted": facet.n_values - len(facet.values),
    }  # fmt: skip


def _example(facets: list[Facet]) -> str:
    """Return a condition that the documents could have."""
    for facet in facets:
        name = facet.name if re.fullmatch(r"[a-z_][a-z0-9_]*", facet.name) else f'"{facet.name}"'
        if facet.kind == "value" and facet.values and isinstance(facet.values[0][0], str):
            return f"{name} = '{facet.values[0][0]}'"
        if facet.kind == "range":
            return f"{name} >= '{facet.least}'" if isinstance(facet.least, str) else f"{name} >= {facet.least}"
    return "passages < 100"


def _number(digits: str | None, default: int, least: int) -> int:
    return max(least, int(digits)) if digits and digits.isdecimal() and len(digits) < 7 else default
