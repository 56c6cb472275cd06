"""The page that shows a page of a file as a picture, with a passage boxed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from haybale.service.own_addresses import original_address, picture_address
from haybale.service.pages.rendering import Renderer, address, passage_address, view_address
from haybale.service.pages.search_page import SearchState
from haybale.service.request_errors import NotFoundError
from haybale.service.roles import READ, needs
from haybale.service.workspace import Workspace


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the route of pages of files."""

    @router.get("/page")
    @needs(READ, is_large=True)
    def page_of_file(
        request: Request,
        id: str,
        passage: str | None = None,
        page: Annotated[int | None, Query(ge=1, le=10**6)] = None,
    ) -> HTMLResponse:
        state, root = SearchState.of(request, workspace), request.scope.get("root_path", "")
        kept = state.parameters("offset", "k")
        text_link = root + passage_address(id, passage, kept)
        try:
            view = workspace.files.view(id, passage or None, page)
        except NotFoundError as error:
            title = workspace.titles([id]).get(id)
            if title is None:
                raise
            return renderer.page(request, "no_page.html", 404, title=title, detail=str(error), document_link=text_link)
        return renderer.page(
            request,
            "page.html",
            view=view,
            back=address(root + "/", state.parameters("offset")) if state.query or state.is_list else "",
            title=workspace.titles([id]).get(id, id),
            passage_text="" if view.passage_id is None else workspace.files.passage_text(id, view.passage_id),
            other_pages=[number for number in view.pages if number != view.page],
            picture_link=root + picture_address(id, view.passage_id, view.page),
            original_link=root + original_address(id),
            document_link=text_link,
            page_link=lambda number: root + view_address(id, view.passage_id, number, kept),
        )
