"""The page of searches and of lists without a query: box, filters, hits, why a hit is there, the search as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale import __version__
from haybale.collections.unread import counted
from haybale.errors import InputError, UnknownNameError
from haybale.search import SearchResults
from haybale.search.hit_groups import COPIES
from haybale.service.document_counts import MatchCounts
from haybale.service.document_list import DocumentList, default_order
from haybale.service.file_worker import MAX_TEXT
from haybale.service.long_queries import query_suffixes
from haybale.service.pages.facet_view import condition_example, facet_view, orders, useful_names
from haybale.service.pages.hit_view import HitViews
from haybale.service.pages.paragraph_map import ParagraphMap, paragraph_map
from haybale.service.pages.rendering import FOLDER, Renderer, address, document_address, judge_of
from haybale.service.pages.share_tree import ShareBar, paragraph_explanation, share_bars
from haybale.service.request_texts import paragraphs
from haybale.service.roles import READ, needs
from haybale.service.taken_along import HIT_MEDIA_TYPES, file_stem, hits_response, with_links
from haybale.service.workspace import MAX_RESULTS, Workspace

MAX_DIGITS = 18  # of a number in an address
_HITS_PER_PAGE, _MAX_HITS_PER_PAGE = 10, 100
_HITS_TAKEN = 100  # in a Word file or a table, if nobody says how many
_MAX_HITS_IN_FILE = 20  # a small number, because each hit is explained
_TOGETHER = {"thread": "mails of a thread", "parent": "a mail and its attachments"}  # by column of the metadata
_ALONE = "no"  # in an address: no documents together
_MAX_TOPICS = 50  # that hits can be judged for, the latest ones


@dataclass(frozen=True)
class SearchState:
    """What the address of a search says; equal addresses are equal searches.

    ``text`` is the id of a long query, whose text the workspace keeps, ``values`` and ``ends`` are what is
    chosen of facets, ``learned`` says whether the topic's judgements rank, too, ``together`` is what is shown as one
    (nothing for copies), and ``sort`` is the order of a list without a query: a column, after ``-`` descending.
    """

    query: str = ""
    text: str = ""
    where: str = ""
    ranker: str = ""
    topic: str = ""
    learned: str = ""
    together: str = ""
    sort: str = ""
    offset: int = 0
    k: int = _HITS_PER_PAGE
    values: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[str, list[str]] = field(default_factory=dict)

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
        names = ("where", "ranker", "topic", "learned", "together", "sort")
        named = {name: parameters.get(name, "").strip() for name in names}
        offset = _number(parameters.get("offset"), 0, 0)
        k = min(_number(parameters.get("k"), _HITS_PER_PAGE, 1), _MAX_HITS_PER_PAGE)
        return cls(query.strip(), text, **named, offset=offset, k=k, values=values, ends=ends)

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
            ("sort", self.sort),
        ]
        pairs += [("k", self.k if self.k != _HITS_PER_PAGE else None), ("offset", self.offset or None)]
        return [(name, value) for name, value in pairs if name not in without and name.partition(".")[0] not in without]

    @property
    def is_list(self) -> bool:
        """Whether documents are listed without a query."""
        return not self.query and bool(self.sort or self.where or self.chosen)

    @property
    def grouping(self) -> str | None:
        """What is shown as one, as searches take it."""
        return None if self.together == _ALONE else self.together or COPIES

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
        n = min(self.k, most)
        return workspace.search(self.query, n, where, ranker, self.offset, self.learned_topic, self.grouping, judge)

    def documents(self, workspace: Workspace) -> DocumentList:
        """Return the documents that the filters leave, in the chosen order."""
        sort, descending = self.order(workspace)
        return workspace.documents(self.condition(workspace), sort, descending, self.offset, self.k)

    def order(self, workspace: Workspace) -> tuple[str, bool]:
        """Return the column by which documents are listed, and whether its largest value is first."""
        return (
            (self.sort.removeprefix("-"), self.sort.startswith("-")) if self.sort else default_order(workspace.engine)
        )

    def count(self, workspace: Workspace) -> MatchCounts:
        """Return how many documents match, in all and for each value of the useful facets."""
        where = self.where or None
        return workspace.counts.count(self.query, where, self.chosen, useful_names(workspace.facets()))

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


@dataclass(frozen=True)
class Shown:
    """What a page shows: the counts, and the results of a search or a list."""

    counts: MatchCounts | None = None
    results: SearchResults | None = None
    listed: DocumentList | None = None


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
        state, shown, error = SearchState(), Shown(), ""
        try:
            state = SearchState.of(request, workspace)
            if state.query or state.is_list:
                results = state.search(workspace, judge_of(request)) if state.query else None
                listed = None if state.query else state.documents(workspace)
                shown = Shown(state.count(workspace), results, listed)
        except InputError as wrong:
            error = str(wrong)
        root = request.scope.get("root_path", "")
        values = _values(workspace, state, shown, root, judge_of(request))
        return renderer.page(request, "search.html", 422 if error else 200, error=error, **values)

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
    def sent(request: Request, format: str = "html", n: str = "") -> Response:
        state = SearchState.of(request, workspace)
        judge = judge_of(request)
        if not state.query:
            return RedirectResponse(request.scope.get("root_path", "") + "/", 303)
        if format != "html":
            if format not in HIT_MEDIA_TYPES:
                raise UnknownNameError("format", format, ["html", *HIT_MEDIA_TYPES])
            state = replace(state, k=min(_number(n, _HITS_TAKEN, 1), MAX_RESULTS), offset=0)
            results = state.search(workspace, judge, MAX_RESULTS)
            workspace.logged.exported("hits of a search", len(results), format=format)
            return hits_response(with_links(results, request, state.ranker or None), format)
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
        headers = {"Content-Disposition": f'attachment; filename="{file_stem(state.query)}.html"'}
        return HTMLResponse(page, headers=headers)


def _values(workspace: Workspace, state: SearchState, shown: Shown, root: str, judge: str) -> dict[str, Any]:
    """Return what the template of searches shows."""
    collection, counts, results = workspace.engine.collection, shown.counts, shown.results
    columns = [] if collection.metadata is None else collection.metadata.column_names
    is_start = not state.query and not state.is_list
    topics = [summary for summary in workspace.topics() if not summary.is_closed] if is_start else []
    topic = None if state.topic_number is None else workspace.topic(state.topic_number)
    facets = workspace.facets() if counts is None else counts.facets
    useful = useful_names(workspace.facets())
    link = partial(address, root + "/")
    views = HitViews(workspace, root, state.parameters("topic", "offset", "k"))
    if shown.listed is not None:
        hits, n_shown = views.of_list(shown.listed.documents, state.offset), len(shown.listed.documents)
        has_next = state.offset + n_shown < shown.listed.n_documents
    elif results is not None:
        hits = views.of_results(results, state.grouping, state.parameters())
        n_shown = len(results if results.groups is None else results.groups)
        has_next = n_shown == state.k and state.offset + n_shown < MAX_RESULTS
    else:
        hits, n_shown, has_next = [], 0, False
    doc_ids = [hit.doc_id for hit in hits]
    sort, descending = state.order(workspace)
    return {
        "here": "/",
        "state": state,
        "query": state.query,
        "is_start": is_start,
        "hits": hits,
        "counts": counts,
        "n_without_word": 0 if counts is None or results is None else counts.match(doc_ids).count(False),
        "together": state.together,
        "columns_together": {name: words for name, words in _TOGETHER.items() if name in columns},
        "offset": state.offset,
        "size": state.k,
        "has_next": has_next,
        "rankers": workspace.rankers,
        "ranker": state.ranker or workspace.rankers[0],
        "ranker_asked": state.ranker,
        "where": state.where,
        "where_example": condition_example(workspace.facets()),
        "max_text": MAX_TEXT,
        "is_long": bool(state.text),
        "suffixes": ", ".join(query_suffixes()),
        "n_documents": collection.n_documents,
        "n_passages": collection.n_passages,
        "unread": counted(unread) if (unread := workspace.engine.unread) else "",
        "topics": sorted(topics, key=lambda summary: summary.last or summary.time, reverse=True)[:5],
        "open_topics": workspace.desk.open()[: -_MAX_TOPICS - 1 : -1],
        "topic": topic,
        "grades": workspace.shown_grades(topic.id, doc_ids, judge) if topic else {},
        "facets": [facet_view(facet, state.chosen.get(facet.name, [])) for facet in facets if facet.name in useful],
        "n_chosen": sum(len([value for value in values if value]) for values in state.chosen.values()),
        "orders": orders(workspace.facets()),
        "order": f"-{sort}" if descending else sort,
        "kept": [*state.facets, ("sort", state.sort)] if state.sort else state.facets,
        "carried": [pair for pair in state.parameters("f", "from", "to", "offset", "sort") if pair[1]],
        "list_link": link({"sort": f"-{sort}" if descending else sort}),
        "without_filters": link(_without_filters(state)),
        "here_link": link(state.parameters()),
        "sent_link": address(root + "/sent", state.parameters(*([] if state.learned else ["topic"]))),
        "taken": [pair for pair in state.parameters("offset", *([] if state.learned else ["topic"])) if pair[1]],
        "n_taken": _HITS_TAKEN,
        "max_taken": MAX_RESULTS,
        "learned": state.learned_topic is not None,
        "page_link": lambda offset: link(state.parameters("offset"), offset=max(0, offset) or None),
    }


def _without_filters(state: SearchState) -> Sequence[tuple[str, Any]]:
    """Return the parameters of a search without its filters; a list stays a list."""
    pairs = state.parameters("f", "from", "to", "where", "offset")
    return pairs if state.query or state.sort else [*pairs, ("sort", "title")]


def _number(digits: str | None, default: int, least: int) -> int:
    return max(least, int(digits)) if digits and digits.isdecimal() and len(digits) < 7 else default
