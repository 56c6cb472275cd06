"""The web application of a workspace: pages, REST interface, and the middleware before both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TextIO

from haybale.extras import import_optional
from haybale.service.workspace import Workspace

if TYPE_CHECKING:
    from fastapi import FastAPI

    from haybale.service.security import Access


def create_app(
    workspace: Workspace, access: Access | None = None, log: TextIO | None = None, root_path: str = ""
) -> FastAPI:
    """Return the web application of a workspace, which any ASGI server runs.

    Parameters
    ----------
    workspace : Workspace
    access : haybale.service.security.Access, optional
        Who may use it, and under which names. Default: anybody on this machine, as ``localhost`` or ``127.0.0.1``.
    log : text stream, optional
        Gets a line of JSON for each request. Default: no log.
    root_path : str, default ""
        The path under which a proxy serves the application, such as ``"/cases"``.

    Raises
    ------
    InputError
        For a root path that is no path, or that begins like a page of the service.
    MissingExtraError
        Without the extra ``serve``.

    Examples
    --------
    >>> from haybale import Engine, parse
    >>> from haybale.review import JudgementStore
    >>> engine = Engine({"a": "Dogs bark."}, language="english", encoder="tfidf(min_df=1)")
    >>> create_app(Workspace(engine, {"bm25": parse("bm25").fit(engine)}, JudgementStore())).title
    'haybale'
    """
    fastapi = import_optional("fastapi", "serve")

    from haybale import __version__
    from haybale.service.access_log import AccessLog
    from haybale.service.acting_user import ActingUser
    from haybale.service.api import search_api, topics_api, training_api
    from haybale.service.audit_api import audit_api
    from haybale.service.description import description_routes
    from haybale.service.duplicates_api import duplicates_api
    from haybale.service.files_api import files_api
    from haybale.service.guarded_routes import GuardedRoute, OnlyGuarded, not_matched
    from haybale.service.health import health_routes
    from haybale.service.judges_api import judges_api
    from haybale.service.log_api import log_api
    from haybale.service.login import login_routes
    from haybale.service.metrics import Metrics
    from haybale.service.pages import error_page, pages
    from haybale.service.pages.rendering import Renderer
    from haybale.service.pages.users_page import users_pages
    from haybale.service.problems import add_handlers
    from haybale.service.refreshing import Refreshing
    from haybale.service.searches_api import feed_routes, searches_api
    from haybale.service.security import Access, Guard
    from haybale.service.topic_desk_api import topic_desk_api
    from haybale.service.under_path import UnderPath, checked_root_path
    from haybale.service.users_api import users_api

    @asynccontextmanager
    async def refreshing(_: FastAPI) -> AsyncIterator[None]:
        thread = Refreshing(workspace)
        thread.start()
        workspace.start_processes()
        try:
            yield
        finally:
            workspace.stop_processes()
            thread.stop()

    # FastAPI's pages of documentation load scripts from elsewhere, so there are none.
    application: FastAPI = fastapi.FastAPI(
        title="haybale",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=refreshing,
    )
    application.state.workspace = workspace
    application.state.error_page = partial(error_page, workspace)
    metrics = Metrics(workspace)
    access = access or Access()
    folder = workspace.engine.folder
    application.add_middleware(OnlyGuarded)
    application.add_middleware(ActingUser)
    application.add_middleware(Guard, access=access, matter=None if folder is None else folder.resolve().name)
    application.add_middleware(AccessLog, metrics=metrics, out=log)
    add_handlers(application)

    application.router.route_class = GuardedRoute
    application.router.default = not_matched(application.router)
    all_routes = (
        search_api, topics_api, judges_api, duplicates_api, audit_api, topic_desk_api, files_api,
        training_api, searches_api, feed_routes, log_api, pages,
    )  # fmt: skip
    of_workspace = [routes(workspace) for routes in all_routes]
    renderer = Renderer(workspace)
    of_service = health_routes(workspace, metrics), login_routes(renderer), users_pages(renderer), users_api()
    routers = *of_workspace, *of_service, description_routes(application, access)
    application.router.routes.extend(route for router in routers for route in router.routes)
    first_segments = {getattr(route, "path", "").split("/")[1] for route in application.router.routes} - {""}
    application.add_middleware(UnderPath, root_path=checked_root_path(root_path, first_segments))
    return application
