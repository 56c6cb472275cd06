"""The routes of the REST interface about the judges of a topic: who judges what, conflicts, agreement."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from haybale.service.answers import Answer, DocIdAnswer, answers
from haybale.service.api import MAX_NAME, Body, Choice, Grade, api_router, json_rows
from haybale.service.roles import ADMINISTER, JUDGE, READ, needs
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace


class NewScreening(Body):
    """How many judges judge each document of a topic from now on."""

    double_share: float = Field(1.0, ge=0, le=1, description="The share of the documents that two judges judge.")
    seed: int = Field(0, ge=0, lt=2**31, description="Draws the documents.")
    judge: str = Field("", max_length=MAX_NAME)


class NewResolution(Body):
    """The resolution of a conflict between judges."""

    doc_id: str = Field(max_length=MAX_NAME)
    grade: Grade = Field(description="0 for irrelevant, 1 or more for relevant.")
    judge: str = Field("", max_length=MAX_NAME)
    note: str | None = Field(None, max_length=10_000)
    together_with: str | None = Field(
        None,
        max_length=MAX_NAME,
        description="The judge with whom one of the judges has agreed; none for a third judge.",
    )


class ScreeningAnswer(Answer):
    """How many judges judge each document of a topic."""

    double_share: float = Field(description="The share of the documents that two judges judge.")
    seed: int


class ConflictingJudgementAnswer(Answer):
    """What a judge has said about a document."""

    judge: str
    grade: int
    note: str | None
    time: str


class ResolutionAnswer(ConflictingJudgementAnswer):
    """The judgement that resolves a conflict."""

    by: list[str] = Field(description="The judges who have resolved it.")


class ConflictAnswer(Answer):
    """A document that judges have judged differently."""

    doc_id: str
    judgements: list[ConflictingJudgementAnswer]
    resolution: ResolutionAnswer | None


class ConflictsAnswer(Answer):
    """What judges have judged differently."""

    conflicts: list[ConflictAnswer]


class ResolvedAnswer(Answer):
    """A resolution that was added."""

    doc_id: str
    grade: int
    judge: str
    note: str | None
    together_with: str | None


class PairAnswer(Answer):
    """How far two judges agree."""

    judge: str
    other: str
    documents: int = Field(description="How many documents both have judged.")
    only_judge: int = Field(description="How many the first has judged, and the other has not.")
    only_other: int
    agreement: float
    kappa: float | None
    pabak: float


class PairAtATimeAnswer(Answer):
    """How far two judges agreed on the latest documents, after so many that both had judged."""

    judge: str
    other: str
    documents: int
    time: str
    agreement: float
    kappa: float | None
    pabak: float


class AgreementAnswer(Answer):
    """How far each pair of judges agrees, and agreed over time."""

    pairs: list[PairAnswer]
    over_time: list[PairAtATimeAnswer]


def judges_api(workspace: Workspace) -> APIRouter:
    """Return the routes of the judges of topics."""
    router = api_router()

    @router.get("/topics/{topic:number}/agreement", **answers(AgreementAnswer))
    @needs(READ)
    def agreement(topic: int) -> dict[str, Any]:
        """Return how far each pair of judges agrees, and agreed over time, with Cohen's kappa and PABAK."""
        judges = workspace.judges(topic)
        return {"pairs": json_rows(judges.agreement()), "over_time": json_rows(judges.agreement_over_time())}

    @router.get("/topics/{topic:number}/screening", **answers(ScreeningAnswer))
    @needs(READ)
    def screening(topic: int) -> dict[str, Any]:
        """Return which share of the documents needs two judges, and the seed that draws them."""
        return workspace.judges(topic).plan.to_dict()

    @router.post("/topics/{topic:number}/screening", **answers(ScreeningAnswer))
    @needs(ADMINISTER)
    def change_screening(request: Request, topic: int, new_screening: NewScreening) -> dict[str, Any]:
        """Say which share of the documents needs two judges from now on; 0 shows what was hidden."""
        judge = judge_of(request, new_screening.judge)
        workspace.change_screening(topic, new_screening.double_share, new_screening.seed, judge)
        return workspace.judges(topic).plan.to_dict()

    @router.get("/topics/{topic:number}/conflicts", **answers(ConflictsAnswer))
    @needs(READ)
    def conflicts(topic: int, resolved: bool = False) -> dict[str, Any]:
        """Return what judges have judged differently, with their notes: what is open, or what was resolved."""
        return {"conflicts": [conflict.to_dict() for conflict in workspace.judges(topic).conflicts(resolved)]}

    @router.post("/topics/{topic:number}/conflicts", **answers(ResolvedAnswer, 201))
    @needs(JUDGE)
    def resolve(request: Request, topic: int, new_resolution: NewResolution) -> dict[str, Any]:
        """Resolve a conflict as a third judge, or together. The resolution counts, and all judgements stay."""
        judge = judge_of(request, new_resolution.judge)
        doc_id, grade, note = new_resolution.doc_id, new_resolution.grade, new_resolution.note
        workspace.judges(topic).resolve(doc_id, grade, judge, note, new_resolution.together_with)
        return new_resolution.model_dump() | {"judge": judge}

    @router.post("/topics/{topic:number}/conflicts/undo", **answers(DocIdAnswer))
    @needs(JUDGE)
    def undo_resolution(request: Request, topic: int, choice: Choice) -> dict[str, Any]:
        """Take the resolution of a conflict back."""
        workspace.judges(topic).undo_resolution(choice.doc_id, judge_of(request, choice.judge))
        return {"doc_id": choice.doc_id}

    return router
