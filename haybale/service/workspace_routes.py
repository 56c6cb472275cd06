"""All routes of the current workspace: its pages and its REST interface."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, FastAPI

from haybale.service.api import search_api, topics_api, training_api
from haybale.service.audit_api import audit_api
from haybale.service.current_workspace import METRICS, WORKSPACE
from haybale.service.description import description_routes
from haybale.service.duplicates_api import duplicates_api
from haybale.service.exports_api import exports_api
from haybale.service.files_api import files_api
from haybale.service.health import health_routes
from haybale.service.judges_api import judges_api
from haybale.service.log_api import log_api
from haybale.service.login import login_routes
from haybale.service.pages import pages
from haybale.service.pages.rendering import Renderer
from haybale.service.pages.users_page import users_pages
from haybale.service.searches_api import feed_routes, searches_api
from haybale.service.security import Access
from haybale.service.topic_desk_api import topic_desk_api
from haybale.service.users_api import users_api


def workspace_routes(application: FastAPI, access: Access) -> list[APIRouter]:
    """Return the routes of the current workspace, which an application serves and describes."""
    return [*_shared_routes(), description_routes(application, access)]


@cache
def routes_of_users() -> list[APIRouter]:
    """Return the routes by which users log in and are managed, with the pages of the current workspace around them."""
    renderer = Renderer(WORKSPACE)
    return [login_routes(renderer), users_pages(renderer), users_api()]


@cache
def _shared_routes() -> list[APIRouter]:
    """Return the routes that all applications share."""
    all_routes = (
        search_api, topics_api, exports_api, judges_api, duplicates_api, audit_api, topic_desk_api, files_api,
        training_api, searches_api, feed_routes, log_api, pages,
    )  # fmt: skip
    return [*(routes(WORKSPACE) for routes in all_routes), health_routes(WORKSPACE, METRICS)]
