"""The page of help: how to search, the keys, and what the stopping rules promise."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from haybale.review.progress_counts import DEFAULT_RULES
from haybale.review.stopping import parse_rule
from haybale.service.pages.rendering import Renderer
from haybale.service.roles import READ, needs
from haybale.service.workspace import Workspace


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the route of help."""

    @router.get("/help")
    @needs(READ)
    def shown(request: Request) -> HTMLResponse:
        rules = [parse_rule(name) for name in (*DEFAULT_RULES, "qbcb", "audit")]
        return renderer.page(request, "help.html", here="/help", rules=rules)
