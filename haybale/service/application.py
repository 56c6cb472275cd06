"""The web application of a workspace: pages, REST interface and what stands before both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haybale.extras import import_optional
from haybale.service.workspace import Workspace

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app(workspace: Workspace) -> FastAPI:
    """Return the web application of a workspace, which any ASGI server runs.

    Parameters
    ----------
    workspace : Workspace

    Raises
    ------
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
    from haybale.service.api import api
    from haybale.service.pages import pages
    from haybale.service.problems import add_handlers

    # FastAPI's pages of documentation load scripts from elsewhere, so there are none.
    application: FastAPI = fastapi.FastAPI(
        title="haybale", version=__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json"
    )
    application.state.workspace = workspace
    add_handlers(application)
    application.include_router(api(workspace))
    application.include_router(pages(workspace))
    return application
