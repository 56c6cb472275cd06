"""Take a long text or a file as a query, and go to the address of its search."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile
from starlette.responses import RedirectResponse, Response

from haybale.errors import HaybaleError
from haybale.service.long_queries import query_of_file
from haybale.service.pages.rendering import Renderer, address
from haybale.service.roles import READ, needs
from haybale.service.workspace import Workspace


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the route of long queries."""

    @router.post("/long")
    @needs(READ)
    async def keep(request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool

        async with request.form(max_files=1, max_fields=200, max_part_size=1 << 20) as form:
            file, text = form.get("file"), form.get("q")
            kept = [
                (name, value)
                for name, value in form.multi_items()
                if isinstance(value, str) and name not in ("file", "q", "csrf_token", "text")
            ]
            try:
                if isinstance(file, UploadFile) and file.filename:
                    text = await run_in_threadpool(query_of_file, file.filename, await file.read())
                id = await run_in_threadpool(workspace.long_queries.keep, str(text or ""))
            except HaybaleError as error:
                return renderer.page(request, "error.html", 422, heading="Not searched", detail=f"{error}.")
        return RedirectResponse(address(request.scope.get("root_path", "") + "/", [("text", id)], kept), 303)
