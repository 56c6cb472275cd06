"""The page of a topic's duplicates: groups with their sources, which judges separate and join."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError, InputError
from haybale.service.pages.opening import opening_page
from haybale.service.pages.rendering import Renderer, address, document_address, judge_of
from haybale.service.roles import JUDGE, READ, needs
from haybale.service.topic_groups import ACTIONS
from haybale.service.workspace import Workspace

_GROUPS_PER_PAGE = 50


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of duplicates."""

    def listed(request: Request, topic: int, offset: int = 0, status: int = 200, error: str = "") -> HTMLResponse:
        root, summary = request.scope.get("root_path", ""), workspace.topic(topic)
        duplicates = workspace.duplicates.groups(topic)
        shown = duplicates.groups[offset : offset + _GROUPS_PER_PAGE]
        titles = workspace.titles([doc_id for group in shown for doc_id in group.doc_ids])
        return renderer.page(
            request,
            "duplicates.html",
            status,
            here="/topics",
            topic=summary,
            duplicates=duplicates,
            groups=shown,
            titles=titles,
            sources=duplicates.by_source().to_dict("records") if duplicates.groups else [],
            are_read_once=workspace.duplicates.of(topic).are_read_once,
            offset=offset,
            size=_GROUPS_PER_PAGE,
            error=error,
            here_link=address(f"{root}/topics/{topic}/duplicates"),
            part_link=lambda start: address(f"{root}/topics/{topic}/duplicates", offset=start or None),
            document_link=lambda doc_id: root + document_address(doc_id, {"topic": topic}),
        )

    @router.get("/topics/{topic}/duplicates")
    @needs(READ)
    def shown(request: Request, topic: int, offset: Annotated[int, Query(ge=0)] = 0) -> HTMLResponse:
        return opening_page(workspace, renderer, request, topic) or listed(request, topic, offset)

    @router.post("/topics/{topic}/duplicates")
    @needs(JUDGE)
    def change(
        request: Request,
        topic: int,
        action: Annotated[str, Form(max_length=10)],
        doc_ids: Annotated[str, Form(max_length=100_000)] = "",
        offset: Annotated[int, Form(ge=0)] = 0,
    ) -> Response:
        ids = [line.strip() for line in doc_ids.splitlines() if line.strip()]
        try:
            if action in ("once", "all"):
                workspace.duplicates.of(topic).read_once(action == "once", judge_of(request))
            elif action in ACTIONS:
                workspace.duplicates.change(topic, action, ids, judge_of(request))
            else:
                raise InputError(
                    f"action must be separate, join, once or all, found {action!r:.20}; choose one of them"
                )
        except HaybaleError as error:
            return listed(request, topic, offset, 422, str(error))
        root = request.scope.get("root_path", "")
        return RedirectResponse(address(f"{root}/topics/{topic}/duplicates", offset=offset or None), 303)
