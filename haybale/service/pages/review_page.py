"""The page of a review: one document at a time, and how far the review has come."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from haybale.errors import HaybaleError, InputError
from haybale.review import ReviewDocument
from haybale.review.stopping import parse_rule
from haybale.service.own_addresses import own_path
from haybale.service.pages.opening import opening_page
from haybale.service.pages.rendering import Renderer, address, document_address, judge_of
from haybale.service.roles import JUDGE, needs
from haybale.service.workspace import Workspace

_CARDS_AHEAD = 4  # documents that a page holds, so that the next one is there at once
_CURVE_SIZE = 300.0, 76.0  # width and height of the curve, in its own units


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of a review."""

    def cards(request: Request, topic: int, n: int, doc: str | None) -> dict[str, Any]:
        judge, summary = judge_of(request), workspace.topic(topic)
        needs_name = summary.double_share > 0 and not judge
        documents = [] if needs_name else workspace.next(topic, n, judge)
        if needs_name:
            doc = None
        if doc is not None:
            others = [document for document in documents if document.doc_id != doc]
            documents = [_card(workspace, topic, doc, documents), *others]
        root = request.scope.get("root_path", "")
        return {
            "topic": summary,
            "cards": documents,
            "needs_name": needs_name,
            "n_held": workspace.n_held(topic, judge),
            "document_link": lambda doc_id: root + document_address(doc_id, {"topic": topic}),
            "others": lambda doc_id: {
                name: grade for name, grade in workspace.grades(topic, doc_id, judge).items() if name != judge
            },
        }

    @router.get("/topics/{topic}/review")
    @needs(JUDGE)
    def review(request: Request, topic: int, doc: str | None = None) -> HTMLResponse:
        if (opening := opening_page(workspace, renderer, request, topic)) is not None:
            return opening
        root = request.scope.get("root_path", "")
        here = f"{root}/topics/{topic}/review"
        return renderer.page(
            request,
            "review.html",
            here="/topics",
            error="",
            here_link=here,
            cards_link=f"{root}/topics/{topic}/cards?n={_CARDS_AHEAD}",
            progress_link=f"{root}/topics/{topic}/progress",
            **cards(request, topic, 1, doc),
            **progress_values(workspace, topic),
        )

    @router.get("/topics/{topic}/cards")
    @needs(JUDGE)
    def following(request: Request, topic: int, n: int = _CARDS_AHEAD, doc: str | None = None) -> HTMLResponse:
        return renderer.page(request, "card.html", **cards(request, topic, min(max(n, 1), 10), doc))

    @router.get("/topics/{topic}/progress")
    @needs(JUDGE)
    def progress(request: Request, topic: int) -> HTMLResponse:
        return renderer.page(
            request, "progress.html", topic=workspace.topic(topic), **progress_values(workspace, topic)
        )

    @router.post("/topics/{topic}/judge")
    @needs(JUDGE)
    def judge(
        request: Request,
        topic: int,
        grade: Annotated[str, Form(max_length=10)],
        doc_id: Annotated[str, Form(max_length=1000)] = "",
        note: Annotated[str, Form(max_length=10_000)] = "",
        seconds: Annotated[str, Form(max_length=20)] = "",
        back: Annotated[str, Form(max_length=20_000)] = "",
    ) -> Response:
        who, wants_json = judge_of(request), "application/json" in request.headers.get("accept", "")
        again = None
        try:
            if grade == "undo":
                doc_id = again = workspace.undo(topic, who)
            elif grade == "skip":
                workspace.skip(topic, doc_id, who)
            elif grade.isdecimal():
                workspace.judge(topic, doc_id, int(grade), who, note.strip() or None, _seconds(seconds))
            else:
                raise InputError(f"grade must be a number, skip or undo, found {grade!r}")
        except HaybaleError as error:
            if wants_json:
                raise
            root = request.scope.get("root_path", "")
            return renderer.page(
                request,
                "error.html",
                422,
                heading="Not judged",
                detail=f"{error}. Go back to {root}/topics/{topic}/review.",
            )
        if wants_json:
            return JSONResponse({"doc_id": doc_id, "contradicts": workspace.contradicted(topic, doc_id, who)})
        home = address(f"{request.scope.get('root_path', '')}/topics/{topic}/review", doc=again)
        return RedirectResponse(home if again else own_path(back) or home, 303)


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e6 else None


def _card(workspace: Workspace, topic: int, doc_id: str, proposed: list[ReviewDocument]) -> ReviewDocument:
    """Return a document to judge: the proposed one, else with the passage that fits the topic's text best."""
    for document in proposed:
        if document.doc_id == doc_id:
            return document
    opened = workspace.document(doc_id, workspace.topic(topic).text, limit=1)
    shown = (opened.matching or opened.passages)[:1]
    return ReviewDocument(doc_id, opened.title, opened.metadata, shown, None, None, "", [])


def progress_values(workspace: Workspace, topic: int) -> dict[str, Any]:
    """Return what the template of the progress shows."""
    progress = workspace.progress(topic)
    rules: list[dict[str, Any]] = [
        {"name": name.partition("(")[0], "kind": rule.kind, "promise": rule.promise, "advice": advice}
        for name, advice in progress.advice.items()
        for rule in [parse_rule(name)]
    ]
    estimates = [rule for rule in rules if rule["advice"].recall is not None]
    first = next((rule for rule in estimates if rule["advice"].low is not None), estimates[0] if estimates else None)
    return {
        "progress": progress,
        "rules": rules,
        "recall": None if first is None else first["advice"],
        "recall_rule": "" if first is None else first["name"],
        "curve": _curve(workspace.labels(topic)),
    }


def _curve(labels: list[bool]) -> str:
    """Return the path of an SVG: how many relevant documents were found among those that were proposed, in order."""
    n, total = len(labels), sum(labels)
    if n < 2 or not total:
        return ""
    width, height = _CURVE_SIZE
    points, n_relevant = ["M0 76"], 0
    for n_read, label in enumerate(labels, 1):
        n_relevant += label
        points.append(f"L{width * n_read / n:.1f} {height - (height - 4) * n_relevant / total:.1f}")
    return "".join(points)
