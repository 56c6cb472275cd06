"""The pages of a service that belong to no matter: the list of matters with a search over several, and its help."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from haybale.errors import InputError
from haybale.service.api import MAX_IN_ADDRESS
from haybale.service.matters.joint_search import JointResults, search_matters
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter_addresses import matter_address
from haybale.service.matters.readable_matters import readable, summary_of
from haybale.service.pages.rendering import Renderer, address, document_address
from haybale.service.pages.routes import static_routes
from haybale.service.roles import NONE, needs

_HITS_PER_PAGE = 10
_MAX_OFFSET = 990
_WAIT_SECONDS = 3.0  # for which a page waits for matters to open; its next load has their hits


def matters_pages(matters: Matters) -> APIRouter:
    """Return the routes of the pages, and of the files that they load."""
    router, renderer = static_routes(), Renderer()

    @router.get("/")
    @needs(NONE)
    async def start(request: Request) -> HTMLResponse:
        parameters, user, root = request.query_params, request.state.user, request.scope.get("root_path", "")
        query, names = parameters.get("q", "").strip(), parameters.getlist("matter")
        digits = parameters.get("offset", "0")
        offset = min(int(digits), _MAX_OFFSET) if digits.isdecimal() and len(digits) < 7 else 0
        results: JointResults | None = None
        error = ""
        try:
            chosen = readable(matters, user, names or None)
            if query and chosen:
                results = await search_matters(chosen, query, _HITS_PER_PAGE, None, offset, _WAIT_SECONDS)
        except InputError as wrong:
            error = str(wrong)
        kept = [("q", query), *(("matter", name) for name in names)]
        return renderer.page(
            request,
            "matters.html",
            422 if error else 200,
            here="/",
            query=query,
            error=error,
            matters=[summary_of(matter, user) for matter in readable(matters, user)],
            chosen=names,
            results=results,
            offset=offset,
            size=_HITS_PER_PAGE,
            is_opening=results is not None and any(matter.is_opening for matter in results.unanswered),
            max_text=MAX_IN_ADDRESS,
            matter_link=lambda name: matter_address(root, name, "/"),
            search_link=lambda name: matter_address(root, name, address("/", q=query)),
            hit_link=lambda hit: matter_address(root, hit.matter, document_address(hit.hit.doc_id, {"q": query})),
            page_link=lambda start: root + address("/", kept, offset=start or None),
        )

    @router.get("/help")
    @needs(NONE)
    def shown(request: Request) -> Response:
        return renderer.page(request, "matters_help.html", here="/help")

    return router
