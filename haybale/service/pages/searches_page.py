"""The pages of saved searches: the list with the numbers of new hits, and one search with its hits, feed and mails."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import InputError
from haybale.service.api import MAX_IN_ADDRESS
from haybale.service.pages.rendering import Renderer, address, document_address, judge_of
from haybale.service.pages.search_page import SearchState
from haybale.service.roles import ADMINISTER, READ, needs
from haybale.service.saved_searches import MAX_HITS, SavedQuery
from haybale.service.searches_api import feed_address
from haybale.service.workspace import Workspace

_MAX_ADDRESS = 20_000  # characters of the address of a search


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of saved searches."""
    saved = workspace.searches

    def listed(request: Request, status: int = 200, error: str = "") -> HTMLResponse:
        searches = saved.listed(judge_of(request))
        return renderer.page(request, "searches.html", status, here="/searches", searches=searches, error=error)

    def one(request: Request, number: int, error: str = "", **more: Any) -> HTMLResponse:
        user, root = judge_of(request), request.scope.get("root_path", "")
        search, news, condition = saved.get(number, user), None, None
        try:
            condition, news = saved.where(search.query), saved.news(number, user)
        except InputError as wrong:  # such as a ranker that the service no longer has
            error = error or str(wrong)
        watches = saved.watches(number, user)
        query = search.query
        return renderer.page(
            request,
            "saved_search.html",
            422 if error else 200,
            here="/searches",
            saved=search,
            condition=condition,
            news=news,
            may_change=search.owner == user or request.state.user.right == ADMINISTER,
            has_feed="feed" in watches,
            mail=watches["mail"].address if "mail" in watches else None,
            search_link=root + (query.address or _address_of(workspace, query)),
            document_link=lambda doc_id: root + document_address(doc_id, _query_parameters(query)),
            **{"error": error, "feed": ""} | more,
        )

    def back(request: Request, number: int | None = None) -> RedirectResponse:
        path = "/searches" if number is None else f"/searches/{number}"
        return RedirectResponse(request.scope.get("root_path", "") + path, 303)

    @router.get("/searches")
    @needs(READ, is_large=True)
    def searches(request: Request) -> HTMLResponse:
        return listed(request)

    @router.post("/searches")
    @needs(READ)
    def save(
        request: Request,
        address: Annotated[str, Form(max_length=_MAX_ADDRESS)],
        name: Annotated[str, Form(max_length=500)],
        k: Annotated[int, Form(ge=1, le=MAX_HITS)] = 20,
        is_shared: Annotated[bool, Form()] = False,
    ) -> Response:
        try:
            query = _query_of(workspace, address, k)
            number = saved.save(query, name, judge_of(request), is_shared).id
        except InputError as error:
            return listed(request, 422, str(error))
        return back(request, number)

    @router.get("/searches/{number}")
    @needs(READ)
    def shown(request: Request, number: int) -> HTMLResponse:
        return one(request, number)

    @router.post("/searches/{number}/seen")
    @needs(READ)
    def seen(request: Request, number: int, state: Annotated[str, Form(max_length=64)]) -> Response:
        saved.look(number, judge_of(request), state)
        return back(request, number)

    @router.post("/searches/{number}/change")
    @needs(READ)
    def change(
        request: Request,
        number: int,
        name: Annotated[str, Form(max_length=500)],
        is_shared: Annotated[bool, Form()] = False,
    ) -> Response:
        is_admin = request.state.user.right == ADMINISTER
        try:
            saved.change(number, judge_of(request), name, is_shared, is_admin)
        except InputError as error:
            return one(request, number, str(error))
        return back(request, number)

    @router.post("/searches/{number}/feed")
    @needs(READ)
    def feed(request: Request, number: int, action: Annotated[str, Form(pattern="^(open|close)$")]) -> Response:
        user = judge_of(request)
        if action == "close":
            saved.close_feed(number, user)
            return back(request, number)
        return one(request, number, feed=feed_address(request, saved.open_feed(number, user)))

    @router.post("/searches/{number}/mail")
    @needs(READ)
    def mail(request: Request, number: int, address: Annotated[str, Form(max_length=500)] = "") -> Response:
        user = judge_of(request)
        try:
            if address.strip():
                saved.mail_to(number, user, address)
            else:
                saved.mail_no_more(number, user)
        except InputError as error:
            return one(request, number, str(error))
        return back(request, number)

    @router.post("/searches/{number}/delete")
    @needs(READ)
    def delete(request: Request, number: int) -> Response:
        saved.delete(number, judge_of(request), request.state.user.right == ADMINISTER)
        return back(request)


def _query_of(workspace: Workspace, link: str, k: int) -> SavedQuery:
    """Return the query of an address of the search page."""
    parameters = link.partition("?")[2]
    scope = {"type": "http", "query_string": parameters.encode("ascii", "replace"), "headers": []}
    state = SearchState.of(Request(scope), workspace)
    kept = address("/", state.parameters("offset", "learned"))
    return SavedQuery(state.query, state.where, state.chosen, state.ranker or workspace.rankers[0], k, kept)


def _address_of(workspace: Workspace, query: SavedQuery) -> str:
    """Return the address of the search page for a query that was saved by a program."""
    is_long = len(query.text) > MAX_IN_ADDRESS
    text = {"text": workspace.long_queries.keep(query.text)} if is_long else {"q": query.text}
    return address("/", text, where=query.where, ranker=query.ranker)


def _query_parameters(query: SavedQuery) -> dict[str, str]:
    """Return the parameters of a document's page that mark what a query matches; none for a long one."""
    return {"q": query.text, "ranker": query.ranker} if len(query.text) <= MAX_IN_ADDRESS else {}
