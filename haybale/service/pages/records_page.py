"""The page on which files of records are added to the engine, with what became of each file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, UploadFile
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError
from haybale.service.pages.rendering import Renderer
from haybale.service.request_work import MAX_UPLOAD
from haybale.service.roles import ADMINISTER, READ, needs
from haybale.service.workspace import Workspace

_MAX_SHOWN = 50  # parts of a file that were not read


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of added records."""

    def shown(request: Request, status: int = 200, error: str = "") -> HTMLResponse:
        files = workspace.added_records.files()
        is_running = any(file.status == "running" for file in files)
        values = {"files": files, "is_running": is_running, "error": error, "max_shown": _MAX_SHOWN}
        n = workspace.engine.snapshot().collection.n_documents
        can_add = workspace.added_records.is_possible
        return renderer.page(request, "records.html", status, here="/topics", n_documents=n, can_add=can_add, **values)

    @router.get("/records")
    @needs(READ)
    def records(request: Request) -> HTMLResponse:
        return shown(request)

    @router.post("/records")
    @needs(ADMINISTER, is_large=True, max_body=MAX_UPLOAD)
    def add(request: Request, file: UploadFile, replace: Annotated[bool, Form()] = False) -> Response:
        try:
            workspace.added_records.add(file.filename or "file", file.file.read(), replace)
        except HaybaleError as error:
            return shown(request, 422, str(error))
        return RedirectResponse(request.scope.get("root_path", "") + "/records", 303)
