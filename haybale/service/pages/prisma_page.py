"""The page with the PRISMA 2020 flow diagram of a topic, and its files."""

from __future__ import annotations

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from haybale.errors import HaybaleError
from haybale.review.prisma import source_columns
from haybale.service.pages.rendering import Renderer, address, download_headers
from haybale.service.roles import READ, needs
from haybale.service.topic_desk_api import PRISMA_MEDIA_TYPES
from haybale.service.workspace import Workspace


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of PRISMA numbers."""

    @router.get("/topics/{topic}/prisma")
    @needs(READ)
    def page(request: Request, topic: int, source: str = "") -> HTMLResponse:
        summary, error = workspace.topic(topic), ""
        try:
            numbers = workspace.desk.prisma(topic, source or None)
        except HaybaleError as wrong:
            numbers, error = workspace.desk.prisma(topic), str(wrong)
        here = f"{request.scope.get('root_path', '')}/topics/{topic}/prisma"
        return renderer.page(
            request,
            "prisma.html",
            422 if error else 200,
            here="/topics",
            topic=summary,
            numbers=numbers,
            diagram=Markup(numbers.to_svg(is_page=True)),
            columns=source_columns(workspace.engine.snapshot().collection),
            source=source,
            error=error,
            file_link=lambda format: address(f"{here}/file", format=format, source=source),
        )

    @router.get("/topics/{topic}/prisma/file")
    @needs(READ)
    def file(topic: int, format: str = "svg", source: str = "") -> Response:
        text = workspace.desk.prisma(topic, source or None).text(format)
        headers = download_headers(f"PRISMA {workspace.topic(topic).name[:80]}", format)
        return Response(text, media_type=PRISMA_MEDIA_TYPES[format], headers=headers)
