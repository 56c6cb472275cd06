"""All routes of a workspace: its pages and its REST interface."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from haybale.service.api import search_api, topics_api, training_api
from haybale.service.audit_api import audit_api
from haybale.service.description import description_routes
from haybale.service.duplicates_api import duplicates_api
from haybale.service.exports_api import exports_api
from haybale.service.files_api import files_api
from haybale.service.health import health_routes
from haybale.service.judges_api import judges_api
from haybale.service.log_api import log_api
from haybale.service.metrics import Metrics
from haybale.service.pages import pages
from haybale.service.searches_api import feed_routes, searches_api
from haybale.service.security import Access
from haybale.service.topic_desk_api import topic_desk_api
from haybale.service.workspace import Workspace


def workspace_routes(workspace: Workspace, application: FastAPI, access: Access, metrics: Metrics) -> list[APIRouter]:
    """Return the routes of a workspace, which an application serves and describes."""
    all_routes = (
        search_api, topics_api, exports_api, judges_api, duplicates_api, audit_api, topic_desk_api, files_api,
        training_api, searches_api, feed_routes, log_api, pages,
    )  # fmt: skip
    routers = [routes(workspace) for routes in all_routes]
    return [*routers, health_routes(workspace, metrics), description_routes(application, access)]
