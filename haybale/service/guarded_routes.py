"""The routes of the service, which check the right of a user before anything else.

Only the router matches paths: no pattern beside it decides what a request may do. A route without a right
cannot be made, and the service answers nothing if its application has a route of another class (:class:`OnlyGuarded`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from haybale.service.entity_tags import with_entity_tag
from haybale.service.problems import answer as as_asked
from haybale.service.problems import problem
from haybale.service.request_work import MAX_BODY, answered
from haybale.service.roles import NONE, OPEN, RANKS, READING
from haybale.service.users import User

_LOGGER = logging.getLogger("haybale.service")


class GuardedRoute(APIRoute):
    """A route that checks the right of a user before anything else. TypeError is raised if its function declares none.

    The pattern of its path matches a whole path: one with a line feed at the end is another path. Where GET is
    answered, HEAD is, too; :class:`~haybale.service.security.Guard` sends its answer without the body.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        right = getattr(endpoint, "right", None)
        if right not in RANKS:
            raise TypeError(f"the route {path} must declare a right, found none; add @needs(READ) to its function")
        self.right: str = right
        self.is_large = bool(getattr(endpoint, "is_large", False))
        self.by_monitors = bool(getattr(endpoint, "by_monitors", False))
        self.of_service = bool(getattr(endpoint, "of_service", False))
        self.max_body = int(getattr(endpoint, "max_body", None) or MAX_BODY)
        self.path_regex = re.compile(rf"(?:{self.path_regex.pattern.removesuffix('$')})\Z", re.DOTALL)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the route answers a request, and what the router adds to its scope."""
        return super().matches(_head_as_get(scope))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose user has the right, and that no other site has caused."""
        scope = _head_as_get(scope)
        refusal = refused(scope, self.right, self.by_monitors, self.of_service) or self._unfit(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            is_change = scope["method"] not in READING
            if self.include_in_schema and not is_change:
                send = with_entity_tag(scope, send)
            await answered(super().handle, scope, receive, send, is_change, self.is_large, self.max_body)

    def _unfit(self, scope: Scope) -> Response | None:
        """Return the problem of a method, or of a parameter of the REST interface, that there is not; None if none."""
        if scope["method"] not in (self.methods or ()):
            same_path = [
                route
                for route in scope["app"].router.routes
                if isinstance(route, GuardedRoute) and route.path_regex == self.path_regex
            ]
            methods = sorted({method for route in same_path for method in route.methods or ()})
            detail = f"expected one of the methods {', '.join(methods)} here, found {scope['method']}; use one of them"
            answer = as_asked(Request(scope), 405, detail)
            answer.headers["allow"] = ", ".join(methods)
            return answer
        if not self.include_in_schema:
            return None
        names = {parameter.alias for parameter in self.dependant.query_params}
        unknown = sorted(set(Request(scope).query_params) - names)
        if not unknown:
            return None
        expected = ", ".join(sorted(names)) or "no parameter"
        return problem(422, f"unknown parameter {unknown[0]!r:.100}; expected {expected}; omit it")


def _head_as_get(scope: Scope) -> Scope:
    return {**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope


def refused(scope: Scope, right: str = NONE, by_monitors: bool = False, of_service: bool = False) -> Response | None:
    """Return the answer to a request whose user does not have a right where it goes; None if the user has it.

    The parameters are those of :func:`~haybale.service.roles.needs`.
    """
    user: User | None = scope["state"]["user"]
    held = OPEN if user is None else user.default_right if of_service else user.right
    if RANKS[held] >= RANKS[right] or (by_monitors and user is not None and user.is_monitor):
        return None
    request = Request(scope)
    if user is not None:
        where = "in the whole service" if of_service else "here"
        detail = f"this needs the right {right!r} {where}, and {user.name!r} has the right {held!r}"
        return as_asked(request, 403, f"{detail}; ask an administrator")
    if "text/html" in request.headers.get("accept", "") and scope["method"] in READING:
        query = scope["query_string"].decode("latin-1")
        root = scope.get("root_path", "")
        back = quote(root + scope["path"] + (f"?{query}" if query else ""), safe="", errors="replace")
        return RedirectResponse(f"{scope['state']['service_path']}/login?back={back}", 303)
    answer = problem(401, "the request needs a token; send the header Authorization: Bearer TOKEN")
    answer.headers["www-authenticate"] = "Bearer"
    return answer


def not_matched(router: Router) -> ASGIApp:
    """Return what answers paths without a route: 401 without a user, as for all other paths, else 404.

    A path of a page with slashes at its end leads to the page.
    """

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        answer = refused(scope)
        path = scope["path"].rstrip("/")
        shorter = {**scope, "path": path}
        is_longer = answer is None and scope["method"] in ("GET", "HEAD") and path != scope["path"]
        if is_longer and any(route.matches(shorter)[0] is Match.FULL for route in router.routes):
            query = scope["query_string"].decode("latin-1")
            address = scope.get("root_path", "") + quote(path) + (f"?{query}" if query else "")
            answer = RedirectResponse(address, 307)
        answer = answer or as_asked(Request(scope), 404, "there is nothing at this address; begin at /")
        await answer(scope, receive, send)

    return respond


class OnlyGuarded:
    """The ASGI middleware that answers nothing if the application has a route that does not check a right."""

    def __init__(self, application: ASGIApp) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or answer with a problem."""
        routes = scope["app"].router.routes if scope["type"] == "http" else []
        unguarded = [route for route in routes if not isinstance(route, GuardedRoute)]
        if not unguarded:
            await self.application(scope, receive, send)
            return
        _LOGGER.error("routes without a right: %s; nothing is answered", unguarded)
        await problem(500, "the service has a route without a right; its log says which")(scope, receive, send)
