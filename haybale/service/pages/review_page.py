"""The page of a review: one document at a time, and how far the review has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from haybale.errors import HaybaleError, InputError
from haybale.review import Audit, ReviewDocument
from haybale.review.keywords import MAX_KEYWORDS
from haybale.review.stopping import parse_rule
from haybale.service.own_addresses import own_path
from haybale.service.pages.audit_page import audit_values
from haybale.service.pages.opening import opening_page
from haybale.service.pages.protocol_page import protocol_values
from haybale.service.pages.rendering import Renderer, address, document_address, judge_of
from haybale.service.roles import JUDGE, READ, needs
from haybale.service.workspace import Workspace

_CARDS_AHEAD = 4  # documents that a page holds, so that the next one is there at once
ReasonsField = Annotated[list[str] | None, Form(max_length=MAX_KEYWORDS)]
_CURVE_SIZE = 300.0, 76.0  # width and height of the curve, in its own units


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of a review."""

    def cards(request: Request, topic: int, n: int, doc: str | None) -> dict[str, Any]:
        judge, summary = judge_of(request), workspace.topic(topic)
        is_open = not (summary.is_closed or summary.is_deleted)
        needs_name = is_open and summary.double_share > 0 and not judge
        is_open = is_open and not needs_name
        documents = workspace.next(topic, n, judge) if is_open else []
        if doc is not None and is_open:
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
            **protocol_values(workspace, topic),
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
            judge_link=f"{here.removesuffix('/review')}/judge",
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
    @needs(READ)
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
        reason: ReasonsField = None,
    ) -> Response:
        who = judge_of(request)

        def judged() -> tuple[str, bool]:
            if grade == "undo":
                return workspace.undo(topic, who), True
            if grade == "skip":
                workspace.skip(topic, doc_id, who)
            elif grade.isdecimal():
                said, reasons = note.strip() or None, reasons_given(reason, int(grade))
                workspace.judge(topic, doc_id, int(grade), who, said, seconds_given(seconds), reasons)
            else:
                raise InputError(f"grade must be a number, skip or undo, found {grade!r}")
            return doc_id, False

        def contradicted(judged_id: str) -> dict[str, int]:
            return workspace.contradicted(topic, judged_id, who)

        return reply(renderer, request, f"/topics/{topic}/review", back, judged, contradicted)


def reply(
    renderer: Renderer,
    request: Request,
    path: str,
    back: str,
    judged: Callable[[], tuple[str, bool]],
    contradicted: Callable[[str], dict[str, int]] = lambda doc_id: {},
) -> Response:
    """Judge as a form says, and return the answer: JSON for scripts; otherwise the next page, or one about an error.

    Parameters
    ----------
    renderer : Renderer
    request : Request
    path : str
        The path of the page with the form.
    back : str
        The address that the form names to go back to; it may be empty.
    judged : callable
        Judges, and returns the id of the document and whether its judgement was taken back; the page shows it then.
    contradicted : callable, default none
        Returns the grades of other judges that contradict the judgement of a document.
    """
    home = request.scope.get("root_path", "") + path
    wants_json = "application/json" in request.headers.get("accept", "")
    try:
        doc_id, is_undone = judged()
    except HaybaleError as error:
        if wants_json:
            raise
        detail = f"{error}. Go back to {home}."
        return renderer.page(request, "error.html", 422, heading="Not judged", detail=detail)
    if wants_json:
        return JSONResponse({"doc_id": doc_id, "contradicts": contradicted(doc_id)})
    return RedirectResponse(address(home, doc=doc_id) if is_undone else own_path(back) or home, 303)


def reasons_given(fields: list[str] | None, grade: int) -> list[str]:
    """Return the reasons for exclusion that a form has; those of a document that is relevant are left out."""
    return [] if grade else [reason.strip() for reason in fields or [] if reason.strip()]


def seconds_given(text: str) -> float | None:
    """Return how long a judge took; None if the page did not measure it."""
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
    audits = [(parse_rule(name), advice) for name, advice in progress.advice.items()]
    return {
        "progress": progress,
        "rules": rules,
        "audit": next((audit_values(rule, advice) for rule, advice in audits if isinstance(rule, Audit)), None),
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
