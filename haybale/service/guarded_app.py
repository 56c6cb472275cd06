"""A web application whose routes all declare their role, and whose errors are answered as problems or pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import Response

from haybale import __version__
from haybale.service.acting_user import ActingUser
from haybale.service.guarded_routes import GuardedRoute, OnlyGuarded, not_matched
from haybale.service.problems import add_handlers


def guarded_app(
    error_page: Callable[..., Response], lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None
) -> FastAPI:
    """Return an application without routes.

    Parameters
    ----------
    error_page : callable
        Returns the page for a request, a status and what went wrong.
    lifespan : callable, optional
        The context manager within which requests are answered.
    """
    # FastAPI's pages of documentation load scripts from elsewhere, so there are none.
    options: dict[str, Any] = dict.fromkeys(("docs_url", "redoc_url", "openapi_url"))
    application = FastAPI(title="haybale", version=__version__, redirect_slashes=False, lifespan=lifespan, **options)
    application.state.error_page = error_page
    application.add_middleware(OnlyGuarded)
    application.add_middleware(ActingUser)
    add_handlers(application)
    application.router.route_class = GuardedRoute
    application.router.default = not_matched(application.router)
    return application


def add_routers(application: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes of routers to an application, in their order."""
    application.router.routes.extend(route for router in routers for route in router.routes)
