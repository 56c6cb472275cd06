"""The page that is shown while a review is being opened: what is done, and a search meanwhile."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import HTMLResponse

from haybale.service.pages.rendering import Renderer
from haybale.service.workspace import Workspace


def opening_page(workspace: Workspace, renderer: Renderer, request: Request, topic: int) -> HTMLResponse | None:
    """Return the page if the review of a topic is not open yet, else None. It loads itself again until then."""
    work = workspace.opening(topic)
    if work is None:
        return None
    return renderer.page(request, "opening.html", here="/topics", topic=workspace.topic(topic), work=work)
