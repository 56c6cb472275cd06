"""The page of a topic's protocol, what pages of judging show of it, and what admins do with a topic as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from haybale.errors import HaybaleError, InputError
from haybale.review import ReviewProtocol
from haybale.review.keywords import MAX_CHARACTERS, MAX_KEYWORDS, marked_pieces
from haybale.review.protocol import MAX_CRITERIA
from haybale.search.snippets import Snippet
from haybale.service.pages.criteria_text import criteria_markup
from haybale.service.pages.rendering import Renderer, judge_of
from haybale.service.roles import ADMINISTER, JUDGE, READ, needs
from haybale.service.workspace import Workspace

_PARTS = {  # names of the parts of a protocol for people
    "inclusion_criteria": "criteria for inclusion",
    "exclusion_criteria": "criteria for exclusion",
    "exclusion_reasons": "reasons for exclusion",
    "include_keywords": "keywords for inclusion",
    "exclude_keywords": "keywords for exclusion",
    "n_stages": "number of stages",
    "criteria_as_query": "criteria steer the ranking",
}
_MAX_LINES = MAX_KEYWORDS * (MAX_CHARACTERS + 2)  # characters of a list, one entry in a line
_CRITERIA_LEVEL = 4  # of the first heading within criteria, below those of the page

CriteriaField = Annotated[str, Form(max_length=2 * MAX_CRITERIA)]  # browsers send two characters for a new line
LinesField = Annotated[str, Form(max_length=_MAX_LINES)]


def protocol_values(workspace: Workspace, topic: int) -> dict[str, Any]:
    """Return what the templates of judging show of a protocol."""
    protocol = workspace.desk.protocol(topic)
    return {"criteria": _criteria(protocol), **keyword_values(protocol)}


def keyword_values(protocol: ReviewProtocol) -> dict[str, Any]:
    """Return a protocol, and how templates mark its keywords in a text, or in a passage with its own marks."""
    keywords = protocol.include_keywords, protocol.exclude_keywords

    def keyword_pieces(shown: Snippet | str) -> list[tuple[str, str]]:
        if isinstance(shown, str):
            return marked_pieces(shown, [], *keywords)
        return marked_pieces(shown.text, shown.highlights, *keywords)

    return {"protocol": protocol, "keyword_pieces": keyword_pieces}


def _criteria(protocol: ReviewProtocol) -> list[tuple[str, Any]]:
    """Return the headings and texts of the criteria that there are."""
    texts = {"Include": protocol.inclusion_criteria, "Exclude": protocol.exclusion_criteria}
    return [(heading, criteria_markup(text, _CRITERIA_LEVEL)) for heading, text in texts.items() if text]


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of protocols, and of topics as a whole."""

    def shown(request: Request, topic: int, protocol: ReviewProtocol, error: str = "", message: str = "") -> Response:
        versions = [
            {"part": _PARTS[event.kind], "value": _in_words(event.value), "judge": event.judge, "time": event.time}
            for event in reversed(workspace.desk.versions(topic))
        ]
        summary = workspace.topic(topic)
        values: dict[str, Any] = {"protocol": protocol, "versions": versions, "error": error, "message": message}
        values |= {"max_criteria": MAX_CRITERIA, "criteria": _criteria(workspace.desk.protocol(topic))}
        return renderer.page(request, "protocol.html", 422 if error else 200, here="/topics", topic=summary, **values)

    @router.get("/topics/{topic}/protocol")
    @needs(READ)
    def protocol(request: Request, topic: int, saved: bool = False) -> Response:
        return shown(request, topic, workspace.desk.protocol(topic), message="Saved." if saved else "")

    @router.post("/topics/{topic}/protocol")
    @needs(JUDGE)
    def change(
        request: Request,
        topic: int,
        inclusion_criteria: CriteriaField = "",
        exclusion_criteria: CriteriaField = "",
        exclusion_reasons: LinesField = "",
        include_keywords: LinesField = "",
        exclude_keywords: LinesField = "",
        n_stages: Annotated[int, Form()] = 1,
        criteria_as_query: Annotated[bool, Form()] = False,
    ) -> Response:
        lists = {
            "exclusion_reasons": tuple(exclusion_reasons.splitlines()),
            "include_keywords": tuple(include_keywords.splitlines()),
            "exclude_keywords": tuple(exclude_keywords.splitlines()),
        }
        texts = {"inclusion_criteria": inclusion_criteria, "exclusion_criteria": exclusion_criteria}
        changes: dict[str, Any] = {**texts, **lists, "n_stages": n_stages, "criteria_as_query": criteria_as_query}
        try:
            workspace.desk.change_protocol(topic, changes, judge_of(request))
        except InputError as error:
            return shown(request, topic, ReviewProtocol(**changes), error=str(error))
        return RedirectResponse(f"{request.scope.get('root_path', '')}/topics/{topic}/protocol?saved=1", 303)

    @router.post("/topics/{topic}/manage")
    @needs(ADMINISTER)
    def manage(
        request: Request,
        topic: int,
        action: Annotated[str, Form(max_length=20)],
        name: Annotated[str, Form(max_length=500)] = "",
    ) -> Response:
        desk, judge, root = workspace.desk, judge_of(request), request.scope.get("root_path", "")
        actions = {"close": desk.close, "reopen": desk.reopen, "delete": desk.delete, "restore": desk.restore}
        try:
            if action == "rename":
                desk.rename(topic, name, judge)
            elif action in actions:
                actions[action](topic, judge)
            else:
                raise InputError(f"action must be rename, {', '.join(actions)}, found {action!r}")
        except HaybaleError as error:
            detail = f"{error}. Go back to {root}/topics/{topic}."
            return renderer.page(request, "error.html", 422, heading="Not changed", detail=detail)
        return RedirectResponse(f"{root}/topics" if action == "delete" else f"{root}/topics/{topic}", 303)


def _in_words(value: Any) -> str:
    """Return a value of a protocol as a text.

    >>> _in_words(["a", "b"]), _in_words(True), _in_words(2), _in_words("")
    ('a\\nb', 'yes', '2', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ("\n".join(value) if isinstance(value, list) else str(value)) or "none"
