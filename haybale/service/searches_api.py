"""The routes of the REST interface for saved searches, and the feeds of these, which need no user."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from haybale.service.answers import Answer, HitAnswer, answers
from haybale.service.api import MAX_NAME, NOT_BLANK, NOT_BLANK_PATTERN, Body, JudgeName, NotBlank, api_router
from haybale.service.atom_feed import ATOM_TYPE, atom_of
from haybale.service.file_worker import MAX_TEXT
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.pages.rendering import address, document_address
from haybale.service.roles import ADMINISTER, OPEN, READ, needs
from haybale.service.saved_searches import MAX_HITS, MAX_SEARCH_NAME, ListedSearch, SavedQuery, SavedSearch, SearchNews
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace

_MAX_LISTED = 1000
_DIGEST = r"^[0-9a-f]{64}$"


class NewSearch(Body):
    """A search to save. ``k`` documents are its hits."""

    name: str = Field(min_length=1, max_length=MAX_SEARCH_NAME, pattern=NOT_BLANK_PATTERN)
    q: Annotated[str, NotBlank] = Field(max_length=MAX_TEXT, json_schema_extra=NOT_BLANK)
    where: str | None = Field(None, max_length=2000)
    ranker: str | None = Field(None, max_length=MAX_NAME, description="Default: the first one, by its name of now.")
    k: int = Field(20, ge=1, le=MAX_HITS)
    is_shared: bool = Field(False, description="Whether others see it.")
    judge: str = Field("", max_length=MAX_NAME, description="Who saves it, where there are no users.")


class SearchChanges(Body):
    """What to change about a saved search; what is left out stays."""

    name: str | None = Field(None, min_length=1, max_length=MAX_SEARCH_NAME)
    is_shared: bool | None = None
    judge: str = Field("", max_length=MAX_NAME)


class Seen(Body):
    """That a user has seen the hits of a saved search."""

    state: str | None = Field(None, pattern=_DIGEST, description="That of the hits. Default: that of now.")
    judge: str = Field("", max_length=MAX_NAME)


class MailAddress(Body):
    """Where new hits are mailed to; an empty address ends the mails."""

    address: str = Field(max_length=254)
    judge: str = Field("", max_length=MAX_NAME)


class FeedChange(Body):
    """Whether there is a feed; a new one ends the one before."""

    is_open: bool
    judge: str = Field("", max_length=MAX_NAME)


class Removal(Body):
    """Who deletes something."""

    judge: str = Field("", max_length=MAX_NAME)


class SavedSearchAnswer(Answer):
    """A saved search."""

    id: int
    name: str
    owner: str
    is_shared: bool
    time: str
    q: str
    where: str
    chosen: dict[str, list[str]] = Field(description="Values of filters that were chosen on the page, by column.")
    ranker: str
    k: int


class ListedSearchAnswer(SavedSearchAnswer):
    """A saved search, as a user sees it."""

    since: str | None = Field(description="When the user looked last.")
    n_new: int | None = Field(description="Hits that are new or changed; None without a look, or if there is no time.")
    problem: str = Field(description="Why it cannot be searched; empty if it can.")
    has_feed: bool
    mail: str | None


class SavedSearchesAnswer(Answer):
    """Some saved searches, and the number of all."""

    searches: list[ListedSearchAnswer]
    n_searches: int


class MarkedHitAnswer(HitAnswer):
    """A hit of a saved search."""

    novelty: str = Field(description="new, changed, or empty.")


class SearchNewsAnswer(Answer):
    """The hits of a saved search, with what is new since the last look of the user."""

    search: SavedSearchAnswer
    hits: list[MarkedHitAnswer]
    n_new: int
    state: str = Field(description="The digest of the documents that were searched; send it when they were seen.")
    since: str | None
    is_certain: bool = Field(description="Whether the engine still has the documents of the last look.")


class FeedAnswer(Answer):
    """The address of a feed, which is not shown again; None if there is none."""

    address: str | None


class MailAnswer(Answer):
    """Where new hits are mailed to; None for nowhere."""

    address: str | None


class RemovedAnswer(Answer):
    """What was deleted."""

    id: int


def searches_api(workspace: Workspace) -> APIRouter:
    """Return the routes of saved searches."""
    router, saved = api_router(), workspace.searches

    @router.get("/searches", **answers(SavedSearchesAnswer))
    @needs(READ, is_large=True)
    def searches(
        request: Request,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 100,
        judge: JudgeName = "",
    ) -> dict[str, Any]:
        """Return the searches that the user has saved, and those that others share, by name."""
        listed = saved.listed(judge_of(request, judge))
        shown = [_listed(search) for search in listed[offset : offset + limit]]
        return {"searches": shown, "n_searches": len(listed)}

    @router.post("/searches", **answers(SavedSearchAnswer, 201))
    @needs(READ)
    def save_search(request: Request, body: NewSearch) -> dict[str, Any]:
        """Save a search, whose hits count as seen."""
        query = SavedQuery(body.q, body.where or "", {}, body.ranker or workspace.rankers[0], body.k)
        return _shown(saved.save(query, body.name, judge_of(request, body.judge), body.is_shared))

    @router.get("/searches/{number:number}", **answers(SearchNewsAnswer))
    @needs(READ)
    def saved_search(request: Request, number: int, judge: JudgeName = "") -> dict[str, Any]:
        """Return the hits of a saved search, and which are new since the last look of the user."""
        user = judge_of(request, judge)
        return _news(saved.get(number, user), saved.news(number, user))

    @router.patch("/searches/{number:number}", **answers(SavedSearchAnswer))
    @needs(READ)
    def change_search(request: Request, number: int, changes: SearchChanges) -> dict[str, Any]:
        """Rename a saved search, or share it with others, or no more; its owner and administrators may."""
        user, is_admin = judge_of(request, changes.judge), request.state.user.right == ADMINISTER
        return _shown(saved.change(number, user, changes.name, changes.is_shared, is_admin))

    @router.post("/searches/{number:number}/delete", **answers(RemovedAnswer))
    @needs(READ)
    def delete_search(request: Request, number: int, body: Removal) -> dict[str, Any]:
        """Delete a saved search with its feeds and mails; its owner and administrators may."""
        saved.delete(number, judge_of(request, body.judge), request.state.user.right == ADMINISTER)
        return {"id": number}

    @router.post("/searches/{number:number}/seen", **answers(SearchNewsAnswer))
    @needs(READ)
    def see_search(request: Request, number: int, seen: Seen) -> dict[str, Any]:
        """Note that the user has seen the hits; what was added since the documents of ``state`` stays new."""
        user = judge_of(request, seen.judge)
        saved.look(number, user, seen.state)
        return _news(saved.get(number, user), saved.news(number, user))

    @router.post("/searches/{number:number}/feed", **answers(FeedAnswer))
    @needs(READ)
    def change_feed(request: Request, number: int, change: FeedChange) -> dict[str, Any]:
        """Open an Atom feed of new hits, whose address needs no token and is kept nowhere; or end it."""
        user = judge_of(request, change.judge)
        if not change.is_open:
            saved.close_feed(number, user)
            return {"address": None}
        return {"address": feed_address(request, saved.open_feed(number, user))}

    @router.post("/searches/{number:number}/mail", **answers(MailAnswer))
    @needs(READ)
    def change_mail(request: Request, number: int, mail: MailAddress) -> dict[str, Any]:
        """Let ``haybale alert`` mail new hits to an address; an empty one ends the mails."""
        user = judge_of(request, mail.judge)
        if not mail.address.strip():
            saved.mail_no_more(number, user)
            return {"address": None}
        saved.mail_to(number, user, mail.address)
        return {"address": mail.address.strip()}

    return router


def feed_routes(workspace: Workspace) -> APIRouter:
    """Return the route of feeds, for readers that cannot log in: the token in the address stands for its user."""
    router = APIRouter(include_in_schema=False, route_class=GuardedRoute)

    @router.get("/feed")
    @needs(OPEN)
    def feed(request: Request, token: Annotated[str, Query(max_length=100)] = "") -> Response:
        folder = workspace.engine.folder
        matter = None if folder is None else folder.resolve().name
        listed = workspace.searches.feed(token, lambda user: request.state.access.may_read(user, matter))
        root = whole_root(request)
        content = atom_of(
            listed,
            workspace.engine.identity,
            feed_address(request, token),
            f"{root}/searches/{listed.search.id}",
            lambda doc_id: root + document_address(doc_id),
        )
        return Response(content, media_type=ATOM_TYPE)

    return router


def feed_address(request: Request, token: str) -> str:
    """Return the whole address of a feed."""
    return address(f"{whole_root(request)}/feed", {"token": token})


def whole_root(request: Request) -> str:
    """Return the address under which this service was asked, without a slash at its end."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"


def _shown(search: SavedSearch) -> dict[str, Any]:
    query = asdict(search.query)
    shown = {"q": query["text"], **{name: query[name] for name in ("where", "chosen", "ranker", "k")}}
    return {name: value for name, value in vars(search).items() if name != "query"} | shown


def _listed(listed: ListedSearch) -> dict[str, Any]:
    return _shown(listed.search) | {name: value for name, value in vars(listed).items() if name != "search"}


def _news(search: SavedSearch, news: SearchNews) -> dict[str, Any]:
    return {
        "search": _shown(search),
        "hits": [marked.hit.to_dict() | {"novelty": marked.novelty} for marked in news.hits],
        "n_new": len(news.new),
        "state": news.state,
        "since": news.since,
        "is_certain": news.is_certain,
    }
