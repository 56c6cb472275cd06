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
    import_optional("fastapi", "serve")

    from haybale.service.access_log import AccessLog
    from haybale.service.current_workspace import AboutWorkspace, WorkspaceParts
    from haybale.service.guarded_app import add_routers, guarded_app
    from haybale.service.metrics import Metrics, workspace_gauges
    from haybale.service.pages import error_page
    from haybale.service.refreshing import Refreshing
    from haybale.service.security import Access, Guard
    from haybale.service.under_path import UnderPath, checked_root_path
    from haybale.service.workspace_routes import routes_of_users, workspace_routes

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

    access, metrics = access or Access(), Metrics(partial(workspace_gauges, workspace))
    application = guarded_app(partial(error_page, workspace), refreshing)
    application.state.workspace = workspace
    folder = workspace.engine.folder
    application.add_middleware(AboutWorkspace, parts=WorkspaceParts(workspace, metrics))
    application.add_middleware(Guard, access=access, matter=None if folder is None else folder.resolve().name)
    application.add_middleware(AccessLog, metrics=metrics, out=log)
    add_routers(application, [*workspace_routes(application, access), *routes_of_users()])
    first_segments = {getattr(route, "path", "").split("/")[1] for route in application.router.routes} - {""}
    application.add_middleware(UnderPath, root_path=checked_root_path(root_path, first_segments))
    return application
