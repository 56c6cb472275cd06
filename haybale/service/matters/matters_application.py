"""The web application of a service of several matters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TextIO

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from haybale import __version__
from haybale.service.access_log import AccessLog
from haybale.service.answers import Answer, ReadyAnswer, answers, files, name_of
from haybale.service.description import description_routes
from haybale.service.guarded_app import add_routers, guarded_app
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.login import login_routes
from haybale.service.matters.dispatcher import Dispatcher
from haybale.service.matters.kept_matters import Matters
from haybale.service.matters.matter_metrics import matter_gauges
from haybale.service.matters.matters_api import matters_api
from haybale.service.matters.matters_pages import matters_pages
from haybale.service.metrics import Metrics
from haybale.service.pages import error_page
from haybale.service.pages.rendering import Renderer
from haybale.service.pages.users_page import users_pages
from haybale.service.roles import ADMINISTER, NONE, OPEN, needs
from haybale.service.security import Access, Guard
from haybale.service.under_path import UnderPath, checked_root_path
from haybale.service.users_api import users_api


def create_matters_app(
    matters: Matters, access: Access | None = None, log: TextIO | None = None, root_path: str = ""
) -> FastAPI:
    """Return the web application of several matters, which any ASGI server runs.

    Parameters
    ----------
    matters : Matters
        They are watched while the application runs, and closed when it ends.
    access : Access, optional
        Who may use it, and under which names. Default: anybody on this machine.
    log : text stream, optional
        Gets a line of JSON for each request that is not within a matter. Default: no log.
    root_path : str, default ""
        The path under which a proxy serves the application, such as ``"/cases"``.

    Raises
    ------
    InputError
        For a root path that is no path, or that begins like a page of the service.
    """

    @asynccontextmanager
    async def watching(_: FastAPI) -> AsyncIterator[None]:
        matters.start()
        try:
            yield
        finally:
            matters.stop()

    access, metrics = access or Access(), Metrics(partial(matter_gauges, matters))
    application = guarded_app(partial(error_page, None), watching)
    application.add_middleware(Dispatcher, matters=matters)
    application.add_middleware(Guard, access=access)
    application.add_middleware(AccessLog, metrics=metrics, out=log)
    renderer = Renderer()
    of_users = login_routes(renderer), users_pages(renderer), users_api()
    of_matters = matters_api(matters), matters_pages(matters)
    described = _operation_routes(metrics), description_routes(application, access, NONE)
    add_routers(application, [*of_matters, *of_users, *described])
    first_segments = {getattr(route, "path", "").split("/")[1] for route in application.router.routes} - {""}
    application.add_middleware(UnderPath, root_path=checked_root_path(root_path, first_segments | {"matters"}))
    return application


class ServiceAnswer(Answer):
    """That the service answers."""

    status: str
    version: str


def _operation_routes(metrics: Metrics) -> APIRouter:
    """Return the routes ``/health`` and ``/ready``, which tell nothing of matters to anybody, and ``/metrics``."""
    router = APIRouter(tags=["operation"], route_class=GuardedRoute, generate_unique_id_function=name_of)

    @router.get("/health", **answers(ServiceAnswer))
    @needs(OPEN)
    def health() -> dict[str, Any]:
        """Return whether the service answers."""
        return {"status": "ok", "version": __version__}

    @router.get("/ready", **answers(ReadyAnswer))
    @needs(OPEN)
    def ready() -> dict[str, Any]:
        """Return whether the service answers; each matter has this address, too, for its reviews and processes."""
        return {"status": "ready"}

    @router.get("/metrics", **files("text/plain", "application/openmetrics-text"))
    @needs(ADMINISTER, by_monitors=True)
    def metrics_text(request: Request) -> Response:
        """Return counts and seconds of requests, and which matters are open, in the text format of Prometheus."""
        content, content_type = metrics.exposition(request.headers.get("accept"))
        return Response(content, headers={"content-type": content_type})

    return router
