"""The routes of all pages, and the files that pages load."""

from __future__ import annotations

from http import HTTPStatus
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from haybale.service.guarded_routes import GuardedRoute
from haybale.service.pages import (
    audit_page,
    document_page,
    duplicates_page,
    file_page,
    full_text_page,
    help_page,
    judges_page,
    log_page,
    long_query_page,
    prisma_page,
    protocol_page,
    records_page,
    review_page,
    search_page,
    searches_page,
    topic_pages,
    training_page,
    unread_page,
)
from haybale.service.pages.rendering import FOLDER, Renderer
from haybale.service.roles import OPEN, needs
from haybale.service.workspace import Workspace

_STATIC_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def static_routes() -> APIRouter:
    """Return the route of the files that pages load."""
    router = APIRouter(include_in_schema=False, route_class=GuardedRoute)
    served = {path.name: path.read_bytes() for path in (FOLDER / "static").iterdir()}
    served |= {name: (files("haybale") / name).read_bytes() for name in ("palette.css", "theme.js")}

    @router.get("/static/{name}")
    @needs(OPEN)
    def static(name: str) -> Response:
        if name not in served:
            raise HTTPException(404)
        kind = _STATIC_MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(served[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    return router


def pages(workspace: Workspace) -> APIRouter:
    """Return the routes of the pages, and of the files that they load."""
    router = static_routes()
    renderer = Renderer(workspace)
    for module in (
        search_page, long_query_page, document_page, file_page, topic_pages, judges_page, review_page, protocol_page,
        full_text_page, prisma_page, training_page, help_page, unread_page, duplicates_page, records_page,
        audit_page, searches_page, log_page,
    ):  # fmt: skip
        module.add_routes(router, workspace, renderer)
    return router


def error_page(workspace: Workspace | None, request: Request, status: int, detail: str) -> Response:
    """Return the page that says in words what went wrong."""
    heading = "There is no such page" if status == 404 else HTTPStatus(status).phrase
    return Renderer(workspace).page(request, "error.html", status, heading=heading, detail=detail)
