"""The pages and the REST interface of a matter, within the application of a service, which finds the user."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI, Request
from starlette.responses import Response

from haybale.service.current_workspace import WORKSPACE
from haybale.service.guarded_app import add_routers, guarded_app
from haybale.service.pages import error_page
from haybale.service.problems import answer
from haybale.service.security import Access
from haybale.service.workspace_routes import workspace_routes


def matter_app(access: Access) -> FastAPI:
    """Return the application that answers requests about any matter, within ``AboutWorkspace``."""
    application = guarded_app(partial(error_page, WORKSPACE))
    application.add_exception_handler(Exception, _failed)
    add_routers(application, workspace_routes(application, access))
    return application


def _failed(request: Request, error: Exception) -> Response:
    """Answer a failure, which :class:`~haybale.service.security.Guard` logs."""
    return answer(request, 500, "the service has failed; its log says why")
