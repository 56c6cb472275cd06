"""The page of trainings: begin one, see how far it is, what it gains, accept its ranker or take it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError
from haybale.service.model_training import RECIPES
from haybale.service.pages.rendering import Renderer
from haybale.service.problems import status_of
from haybale.service.roles import ADMINISTER, READ, needs
from haybale.service.trainings import is_result
from haybale.service.workspace import Workspace

_QUESTIONS = {
    "new topics": {
        "title": "Topics that it has not learned from",
        "text": "Each topic is ranked by a ranker that learned from the other topics only.",
        "lacking": "This needs two topics with a relevant document each.",
    },
    "held-back half": {
        "title": "The held-back half of each topic",
        "text": "Half of a topic's judgements are learned, and the other half is looked for; then the other way round.",
        "lacking": "This needs a topic with two relevant documents.",
    },
}


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of trainings."""

    def shown(request: Request, status: int = 200, error: str = "") -> HTMLResponse:
        all_trainings, topics = workspace.trainings(), workspace.topics()
        useful = [topic for topic in topics if topic.n_relevant]
        default = workspace.rankers[0]
        return renderer.page(
            request,
            "train.html",
            status,
            here="/train",
            error=error,
            questions=_QUESTIONS,
            is_result=is_result,
            running=next((training for training in all_trainings if training.status == "running"), None),
            trainings=[training for training in all_trainings if training.status != "running"],
            has_accepted=any(training.is_accepted for training in all_trainings),
            recipes=RECIPES,
            cannot="" if workspace.can_train else "This service keeps its engine or its judgements in memory only.",
            n_topics=len(useful),
            n_judged=sum(topic.n_judged for topic in useful),
            n_relevant=sum(topic.n_relevant for topic in useful),
            default=default,
            default_text=str(workspace.ranker(default)),
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
