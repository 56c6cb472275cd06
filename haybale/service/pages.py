"""The pages of the service."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from haybale.service.workspace import Workspace


def pages(workspace: Workspace) -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def start() -> PlainTextResponse:
        return PlainTextResponse(f"{workspace.engine!r}\n")

    return router
