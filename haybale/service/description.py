"""The description of the REST interface at ``/openapi.json``: what FastAPI knows of the routes, and what holds for all.

Each operation lists the problems that it may answer with, and needs a token where the service has users.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from pydantic import TypeAdapter

from haybale.service.answers import ProblemAnswer
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.roles import OPEN, READ, needs
from haybale.service.security import Access

PROBLEM_TYPE = "application/problem+json"
_PROBLEMS = {  # of any operation, by status
    400: "The head or the encoding of the request is wrong.",
    401: "The request needs a token.",
    403: "The right of the user does not suffice, or the request did not come from this service.",
    404: "There is no such document, topic, training or address.",
    405: "The address has no such method.",
    408: "The request did not arrive in time.",
    409: "The request is well formed, but not possible with what the service has, or within its limits.",
    413: "The request is too long.",
    414: "The address is too long.",
    421: "The Host header names another service.",
    422: "The request is not as this description says.",
    429: "Too many wrong tokens are being answered.",
    500: "The service has failed; its log says why.",
    503: "The service is too busy, or a file of it cannot be read or written.",
    507: "The disk of the service is full.",
}
_SCHEME = {"token": {"type": "http", "scheme": "bearer", "description": "A token, as haybale add-user prints it."}}


def description_routes(application: FastAPI, access: Access, right: str = READ) -> APIRouter:
    """Return the route ``/openapi.json``, which needs a right."""
    router = APIRouter(include_in_schema=False, route_class=GuardedRoute)

    @router.get("/openapi.json")
    @needs(right, by_monitors=True)
    def description(request: Request) -> dict[str, Any]:
        routes = (route for route in application.router.routes if isinstance(route, GuardedRoute))
        open_paths = frozenset(route.path_format for route in routes if route.right == OPEN)
        return described(application, access.users is not None, open_paths, request.scope.get("root_path", ""))

    return router


def described(application: FastAPI, has_users: bool, open_paths: frozenset[str], root_path: str = "") -> dict[str, Any]:
    """Return the description of an application's REST interface.

    Parameters
    ----------
    application : FastAPI
    has_users : bool
        Whether requests need a token.
    open_paths : frozenset of str
        The paths that anybody may ask for.
    root_path : str, default ""
        The path under which the application is served.
    """
    document: dict[str, Any] = {**application.openapi()}
    components = {**document.get("components", {})}
    schemas = {**components.get("schemas", {}), "Problem": TypeAdapter(ProblemAnswer).json_schema()}
    for replaced in ("HTTPValidationError", "ValidationError"):
        schemas.pop(replaced, None)
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    problems = {f"Problem{status}": {"description": about, "content": content} for status, about in _PROBLEMS.items()}
    components |= {"schemas": schemas, "responses": problems}
    if has_users:
        components["securitySchemes"] = _SCHEME
    references = {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in _PROBLEMS}
    document["paths"] = {
        path: {
            method: {**operation, "responses": {**operation["responses"], **references}}
            | ({"security": [{"token": []}]} if has_users and path not in open_paths else {})
            for method, operation in operations.items()
        }
        for path, operations in document["paths"].items()
    }
    return document | {"components": components, "servers": [{"url": root_path or "/"}]}
