"""The page on which what was included by title and abstract is judged again by its full text."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from haybale.errors import InputError
from haybale.review import NOT_RETRIEVED
from haybale.service.pages.protocol_page import protocol_values
from haybale.service.pages.rendering import Renderer, document_address, judge_of
from haybale.service.pages.review_page import ReasonsField, reasons_given, reply, seconds_given
from haybale.service.roles import JUDGE, READ, needs
from haybale.service.workspace import Workspace

_CARDS_AHEAD = 3


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of the stage of full texts."""
    desk = workspace.desk

    def cards(request: Request, topic: int, n: int, doc: str | None) -> dict[str, Any]:
        judge, root = judge_of(request), request.scope.get("root_path", "")
        summary = workspace.topic(topic)
        is_open = not (summary.is_closed or summary.is_deleted)
        documents = desk.next_full_text(topic, n, judge) if is_open else []
        if doc is not None and is_open:
            documents = [desk.full_text(topic, doc), *(shown for shown in documents if shown.doc_id != doc)]
        grades = desk.full_text_grades
        return {
            "topic": summary,
            "cards": documents,
            "needs_name": False,
            "n_held": 0,
            "stage_progress": desk.full_text_progress(topic),
            "document_link": lambda doc_id: root + document_address(doc_id, {"topic": topic}),
            "others": lambda doc_id: {name: grade for name, grade in grades(topic, doc_id).items() if name != judge},
            **protocol_values(workspace, topic),
        }

    @router.get("/topics/{topic}/full-text")
    @needs(JUDGE)
    def full_text(request: Request, topic: int, doc: str | None = None) -> HTMLResponse:
        here = f"{request.scope.get('root_path', '')}/topics/{topic}/full-text"
        links: dict[str, Any] = {
            "here_link": here, "judge_link": f"{here}/judge", "cards_link": f"{here}/cards?n={_CARDS_AHEAD}",
            "progress_link": f"{here}/progress",
        }  # fmt: skip
        return renderer.page(request, "full_text.html", here="/topics", **links, **cards(request, topic, 1, doc))

    @router.get("/topics/{topic}/full-text/cards")
    @needs(JUDGE)
    def following(request: Request, topic: int, n: int = _CARDS_AHEAD, doc: str | None = None) -> HTMLResponse:
        return renderer.page(request, "card.html", **cards(request, topic, min(max(n, 1), 10), doc))

    @router.get("/topics/{topic}/full-text/progress")
    @needs(READ)
    def progress(request: Request, topic: int) -> HTMLResponse:
        values: dict[str, Any] = {"topic": workspace.topic(topic), "stage_progress": desk.full_text_progress(topic)}
        return renderer.page(request, "full_text_progress.html", **values)

    @router.post("/topics/{topic}/full-text/judge")
    @needs(JUDGE)
    def judge(
        request: Request,
        topic: int,
        grade: Annotated[str, Form(max_length=20)],
        doc_id: Annotated[str, Form(max_length=1000)] = "",
        note: Annotated[str, Form(max_length=10_000)] = "",
        seconds: Annotated[str, Form(max_length=20)] = "",
        back: Annotated[str, Form(max_length=20_000)] = "",
        reason: ReasonsField = None,
    ) -> Response:
        who, said, taken = judge_of(request), note.strip() or None, seconds_given(seconds)

        def judged() -> tuple[str, bool]:
            if grade == "undo":
                return desk.undo_full_text(topic, who), True
            if grade == "skip":
                desk.skip_full_text(topic, doc_id, who)
            elif grade == "not-retrieved":
                desk.judge_full_text(topic, doc_id, 0, who, said, taken, [NOT_RETRIEVED])
            elif grade.isdecimal():
                reasons = reasons_given(reason, int(grade))
                desk.judge_full_text(topic, doc_id, int(grade), who, said, taken, reasons)
            else:
                raise InputError(f"grade must be a number, skip, not-retrieved or undo, found {grade!r}")
            return doc_id, False

        return reply(renderer, request, f"/topics/{topic}/full-text", back, judged)
