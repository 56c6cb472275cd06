"""The pages of the log, for administrators: its lines, one line, a repeated search, and whether the lines fit."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import InputError
from haybale.service.log_api import exported_log, repeated_of
from haybale.service.log_chain import read_heads
from haybale.service.matter_log import ACTIONS, LogEntry
from haybale.service.pages.rendering import Renderer, address, document_address
from haybale.service.roles import ADMINISTER, needs
from haybale.service.workspace import Workspace

_LINES_PER_PAGE = 100
_MAX_HEADS = 1_000_000  # characters


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of the log."""
    log = workspace.log

    def listed(
        request: Request, offset: int = 0, user: str = "", action: str = "", error: str = "", check: Any = None
    ) -> HTMLResponse:
        link, chosen = request.scope.get("root_path", "") + "/log", (user or None, action or None)
        return renderer.page(
            request,
            "log.html",
            422 if error else 200,
            here="/searches",
            lines=log.entries(offset, _LINES_PER_PAGE, *chosen),
            n_lines=log.n_entries(*chosen),
            offset=offset,
            size=_LINES_PER_PAGE,
            user=user,
            users=[name for name in log.users() if name],
            action=action,
            actions=ACTIONS,
            settings=log.settings,
            head=log.head,
            error=error,
            check=check,
            summary=summary,
            part_link=lambda start: address(link, user=user, action=action, offset=max(0, start) or None),
        )

    def one(request: Request, number: int, **more: Any) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        values = {"line": log.entry(number), "repeated": None, "value_of": value_of} | more
        document_link = lambda doc_id: root + document_address(doc_id)  # noqa: E731
        return renderer.page(request, "log_line.html", here="/searches", document_link=document_link, **values)

    @router.get("/log")
    @needs(ADMINISTER)
    def lines(
        request: Request,
        offset: Annotated[int, Query(ge=0, lt=2**53)] = 0,
        user: Annotated[str, Query(max_length=500)] = "",
        action: Annotated[str, Query(max_length=100)] = "",
    ) -> HTMLResponse:
        return listed(request, offset, user, action)

    @router.post("/log")
    @needs(ADMINISTER)
    def change(
        request: Request, keep_days: Annotated[int, Form()], is_on: Annotated[bool | None, Form()] = None
    ) -> Response:
        try:
            log.change(is_on=is_on, keep_days=keep_days)
        except InputError as error:
            return listed(request, error=str(error))
        return RedirectResponse(request.scope.get("root_path", "") + "/log", 303)

    @router.get("/log/export")
    @needs(ADMINISTER, is_large=True)
    def export(format: Literal["jsonl", "csv"] = "jsonl") -> Response:
        return exported_log(log, format)

    @router.post("/log/check")
    @needs(ADMINISTER, is_large=True)
    def check(request: Request, heads: Annotated[str, Form(max_length=_MAX_HEADS)] = "") -> HTMLResponse:
        try:
            return listed(request, check=log.check(read_heads(heads)))
        except InputError as error:
            return listed(request, error=str(error))

    @router.get("/log/{number}")
    @needs(ADMINISTER)
    def line(request: Request, number: int) -> HTMLResponse:
        return one(request, number)

    @router.get("/log/{number}/repeat")
    @needs(ADMINISTER)
    def repeated(request: Request, number: int) -> HTMLResponse:
        return one(request, number, repeated=repeated_of(workspace, number))


def summary(entry: LogEntry) -> str:
    """Return what a line says, in one line.

    >>> summary(LogEntry(1, "", "Ada", "search", {"text": "dogs", "n_hits": 3}, ""))
    'dogs: 3 hits'
    """
    details = entry.details
    if entry.action == "search":
        return f"{details.get('text')}: {details.get('n_hits')} hits"
    if entry.action == "open":
        page = f" {details['page']}" if "page" in details else ""
        return f"{details.get('doc_id')} ({details.get('part')}{page})"
    if entry.action == "judge":
        rows = details.get("rows", [])
        said = ", ".join(f"{row['doc_id']} {row['kind'] if row['grade'] is None else row['grade']}" for row in rows)
        return f"{details.get('name')}: {said}"
    return ", ".join(f"{name.replace('_', ' ')}: {value_of(value)}" for name, value in details.items())


def value_of(value: Any) -> str:
    """Return a value of a line as a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
