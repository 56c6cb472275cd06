"""The page of what was not read: files and parts of files, with the reasons."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from haybale.collections.unread import counted
from haybale.service.pages.rendering import Renderer, address
from haybale.service.roles import READ, needs
from haybale.service.workspace import Workspace

_PARTS_PER_PAGE = 200


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the route of what was not read."""

    @router.get("/unread")
    @needs(READ)
    def unread(request: Request, offset: Annotated[int, Query(ge=0)] = 0) -> HTMLResponse:
        parts, root = workspace.engine.unread, request.scope.get("root_path", "")
        return renderer.page(
            request,
            "unread.html",
            counts=counted(parts) if parts else "",
            parts=parts[offset : offset + _PARTS_PER_PAGE],
            n_parts=len(parts),
            offset=offset,
            size=_PARTS_PER_PAGE,
            part_link=lambda start: address(f"{root}/unread", offset=start or None),
        )
