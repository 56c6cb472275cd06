"""The audit of a topic on pages: begin it, show its bound, and return its statement as a file."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from haybale.errors import HaybaleError, UnknownNameError
from haybale.review import Advice, Audit
from haybale.review.audit_statement import floored_percent
from haybale.service.pages.rendering import Renderer, judge_of
from haybale.service.roles import JUDGE, READ, needs
from haybale.service.workspace import Workspace

_MEDIA_TYPES = {"html": "text/html", "json": "application/json"}


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of audits."""

    @router.post("/topics/{topic}/audit")
    @needs(JUDGE)
    def begin(
        request: Request,
        topic: int,
        target: Annotated[float, Form()] = 0.8,
        confidence: Annotated[float, Form()] = 0.95,
    ) -> Response:
        home = f"{request.scope.get('root_path', '')}/topics/{topic}"
        try:
            workspace.audit(topic).begin(target, confidence, judge=judge_of(request))
        except HaybaleError as error:
            return _refused(request, renderer, f"{error}. Go back to {home}.")
        return RedirectResponse(f"{home}/review", 303)

    @router.get("/topics/{topic}/audit")
    @needs(READ)
    def statement(request: Request, topic: int, format: str = "html") -> Response:
        if format not in _MEDIA_TYPES:
            raise UnknownNameError("format", format, _MEDIA_TYPES)
        certified = workspace.audit(topic).statement()
        text = certified.to_html() if format == "html" else certified.to_json()
        headers = {"Content-Disposition": f'attachment; filename="statement-{topic}.{format}"'}
        return PlainTextResponse(text, media_type=_MEDIA_TYPES[format], headers=headers)


def _refused(request: Request, renderer: Renderer, detail: str) -> HTMLResponse:
    return renderer.page(request, "error.html", 422, heading="No audit was begun", detail=detail)


def audit_values(rule: Audit, advice: Advice) -> dict[str, Any]:
    """Return what a page shows of an audit."""
    return {
        "low": None if advice.low is None else floored_percent(advice.low),
        "confidence": f"{100 * rule.confidence:g} %",
        "target": f"{100 * rule.target:g} %",
        "stop": advice.stop,
        "reason": advice.reason,
        "gauge": advice,
    }
