"""Hand requests below ``/matters/NAME/`` on to the application of the matter, for users who may read it.

For everybody else the address does not exist: the application of the service answers, as for any unknown address, and
the matter is not opened.
"""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from haybale.review import judgement_file_of
from haybale.service.matter_store import searches_file_of
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter import Matter
from haybale.service.matters.matter_addresses import matter_address, matter_and_path
from haybale.service.pages.rendering import Renderer
from haybale.service.problems import answer as as_asked
from haybale.service.problems import problem
from haybale.service.roles import ADMINISTER, NONE
from haybale.service.saved_searches import has_feed
from haybale.service.users import User

PAGE_SECONDS = 1.5  # for which a page waits for a matter to open, until it says that it is being opened
WAIT_SECONDS = 20.0  # for which any other request waits


class Dispatcher:
    """The ASGI middleware between that which finds the user of a request and the application of a service.

    Parameters
    ----------
    application : ASGI application
    matters : Matters
    """

    def __init__(self, application: ASGIApp, matters: Matters) -> None:
        self.application, self.matters = application, matters
        self._renderer = Renderer()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on to the matter that it is about, or to the application of the service."""
        name, path = matter_and_path(scope["path"]) if scope["type"] == "http" else ("", "")
        user: User | None = scope["state"]["user"] if name else None
        matter = self.matters.get(name)
        has_right = user is not None and user.right_in(name) != NONE
        if matter is None or not (has_right or _is_feed(matter, path, scope)):
            await self.application(scope, receive, send)
        elif not path:
            query = scope["query_string"].decode("latin-1")
            address = matter_address(scope.get("root_path", ""), name, "/") + (f"?{query}" if query else "")
            await RedirectResponse(address, 307)(scope, receive, send)
        else:
            is_page = scope["method"] in ("GET", "HEAD") and _is_of_browser(scope, path)
            async with matter.use(PAGE_SECONDS if is_page else WAIT_SECONDS) as opened:
                if opened is None:
                    await self._not_open(matter, scope, path, is_page)(scope, receive, send)
                else:
                    await _dispatched(opened, matter.name, path, user, scope, receive, send)

    def _not_open(self, matter: Matter, scope: Scope, path: str, is_page: bool) -> Response:
        """Return the answer to a request to a matter that is being opened, or cannot be opened."""
        request, user = Request(scope), scope["state"]["user"]
        if why := matter.problem:
            is_told = user is not None and user.right_in(matter.name) == ADMINISTER
            detail = f"this matter cannot be opened now: {why if is_told else 'ask its administrator for the reason'}"
            return as_asked(request, 503, detail) if _is_of_browser(scope, path) else problem(503, detail)
        work = matter.work or "it is being opened"
        if is_page:
            answer: Response = self._renderer.page(request, "matter_opening.html", 503, name=matter.name, work=work)
        else:
            answer = problem(503, f"this matter does not answer yet: {work}; try it again in a few seconds")
        answer.headers["retry-after"] = "2"
        return answer


async def _dispatched(
    application: ASGIApp, name: str, path: str, user: User | None, scope: Scope, receive: Receive, send: Send
) -> None:
    """Let the application of a matter answer a request, with the user's right there."""
    within = {
        **scope,
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": matter_address(scope.get("root_path", ""), name),
        "matter": name,
        "state": {**scope["state"], "user": None if user is None else user.within(name)},
    }
    try:
        await application(within, receive, send)
    finally:
        scope["matter"], scope["route"] = name, within.get("route")  # for the log of requests and the metrics


def _is_feed(matter: Matter, path: str, scope: Scope) -> bool:
    """Return whether a request is for a feed of a matter, whose token stands for a user; the matter is not opened."""
    if path != "/feed":
        return False
    token = Request(scope).query_params.get("token", "")
    return has_feed(searches_file_of(judgement_file_of(matter.folder)), token)


def _is_of_browser(scope: Scope, path: str) -> bool:
    """Return whether a request asks for a page of a matter."""
    return not path.startswith("/api") and "text/html" in Request(scope).headers.get("accept", "")
