"""The routes ``/health``, for a supervisor that restarts the service, ``/ready`` and ``/metrics``, for Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from haybale import __version__
from haybale.service.answers import HealthAnswer, ReadyAnswer, answers, files, name_of
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.metrics import Metrics
from haybale.service.problems import problem
from haybale.service.roles import OPEN, READ, needs
from haybale.service.workspace import Workspace


def health_routes(workspace: Workspace, metrics: Metrics) -> APIRouter:
    """Return the routes ``/health``, ``/ready`` and ``/metrics``."""
    router = APIRouter(tags=["operation"], route_class=GuardedRoute, generate_unique_id_function=name_of)

    @router.get("/health", **answers(HealthAnswer))
    @needs(OPEN)
    def health() -> dict[str, Any]:
        """Return whether the service answers and its judgements can be read; an error otherwise."""
        workspace.store.topics()
        documents = workspace.engine.snapshot().collection.n_documents
        reviews = "ready" if workspace.reviews_are_ready else "being prepared"
        report = {"status": "ok", "version": __version__, "documents": documents, "reviews": reviews}
        if workspace.processes is not None:
            report["search_processes"] = {"wanted": workspace.processes.n, "ready": workspace.processes.n_ready}
        return report

    @router.get("/ready", **answers(ReadyAnswer))
    @needs(OPEN)
    def ready() -> Any:
        """Return whether reviews and the processes that search are ready; 503 while they are being prepared."""
        processes = workspace.processes
        is_ready = workspace.reviews_are_ready and (processes is None or processes.n_ready == processes.n)
        if is_ready:
            return {"status": "ready"}
        answer = problem(503, "reviews or processes that search are being prepared; searches are answered meanwhile")
        answer.headers["retry-after"] = "5"
        return answer

    @router.get("/metrics", **files("text/plain", "application/openmetrics-text"))
    @needs(READ, by_monitors=True)
    def metrics_text(request: Request) -> Response:
        """Return counts and seconds of requests, and the size of the engine, in the text format of Prometheus."""
        content, content_type = metrics.exposition(request.headers.get("accept"))
        return Response(content, headers={"content-type": content_type})

    return router
