"""The page of trainings: what can be trained, begin it, how far it is, what it gains, accept its ranker or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError
from haybale.service.pages.rendering import Renderer, address
from haybale.service.problems import status_of
from haybale.service.roles import ADMINISTER, READ, needs
from haybale.service.training_readiness import ENOUGH, RECIPES
from haybale.service.trainings import is_result
from haybale.service.workspace import Workspace

_QUESTIONS = {
    "new topics": {
        "title": "Topics that it has not learned from",
        "text": "Each topic is ranked by a ranker that learned from the other topics only.",
    },
    "held-back half": {
        "title": "The held-back half of each topic",
        "text": "Half of a topic's judgements are learned, and the other half is looked for; then the other way round.",
    },
}
_MEMORY_ONLY = "this service keeps its engine or its judgements in memory only; start it with both in files"
_BEING_PREPARED = "reviews are being prepared after the start; load the page again in a minute"


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of trainings."""

    def shown(request: Request, status: int = 200, error: str = "") -> HTMLResponse:
        all_trainings = workspace.trainings()
        default, root = workspace.rankers[0], request.scope.get("root_path", "")
        return renderer.page(
            request,
            "train.html",
            status,
            here="/train",
            error=error,
            comparisons=_QUESTIONS,
            is_result=is_result,
            running=next((training for training in all_trainings if training.status == "running"), None),
            trainings=[training for training in all_trainings if training.status != "running"],
            has_accepted=any(training.is_accepted for training in all_trainings),
            recipes=RECIPES,
            enough=ENOUGH,
            default=default,
            default_text=str(workspace.ranker(default)),
            **_readiness_values(workspace, root),
        )

    def done(request: Request, action: Callable[[], object]) -> Response:
        try:
            action()
        except HaybaleError as error:
            return shown(request, status_of(error), str(error))
        return RedirectResponse(request.scope.get("root_path", "") + "/train", 303)

    @router.get("/train")
    @needs(READ)
    def trainings(request: Request) -> HTMLResponse:
        return shown(request)

    @router.post("/train")
    @needs(ADMINISTER)
    def start(request: Request, recipe: Annotated[str, Form(max_length=100)] = "") -> Response:
        return done(request, lambda: workspace.start_training(recipe or None))

    @router.post("/train/revert")
    @needs(ADMINISTER)
    def revert(request: Request) -> Response:
        return done(request, workspace.revert)

    @router.post("/train/{number}/accept")
    @needs(ADMINISTER)
    def accept(request: Request, number: int) -> Response:
        return done(request, lambda: workspace.accept(number))


def _readiness_values(workspace: Workspace, root: str) -> dict[str, Any]:
    """Return what the page says before a training: what it would learn from, and what is missing."""
    readiness = workspace.training_readiness() if workspace.wait_for_reviews() else None
    missing = "" if workspace.can_train else _MEMORY_ONLY
    if not missing:
        missing = _BEING_PREPARED if readiness is None else readiness.missing
    topics = [topic for topic in workspace.topics() if topic.n_relevant and topic.text.strip()]
    only = topics[0] if readiness is not None and readiness.n_questions == 1 and topics else None
    link = "" if only is None else address(f"{root}/", q=only.text[:1000], topic=only.id, learned=1)
    return {"readiness": readiness, "missing": missing, "only_topic": only, "only_topic_link": link}
