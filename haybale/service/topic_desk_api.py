"""The routes of the REST interface for protocols, full texts, PRISMA numbers, and topics as a whole."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from haybale.review.keywords import MAX_CHARACTERS, MAX_KEYWORDS
from haybale.review.protocol import MAX_CRITERIA
from haybale.service.roles import ADMIN, JUDGE, GuardedRoute, needs
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace

PRISMA_MEDIA_TYPES = {"svg": "image/svg+xml", "csv": "text/csv; charset=utf-8", "json": "application/json"}
_MAX_NAME = 500  # characters of names and ids

Criteria = Annotated[str, Field(max_length=MAX_CRITERIA)]
Texts = Annotated[list[Annotated[str, Field(max_length=MAX_CHARACTERS)]], Field(max_length=MAX_KEYWORDS)]
JudgeName = Annotated[str, Query(max_length=_MAX_NAME)]


class ProtocolChanges(BaseModel):
    """Parts of a protocol to change; those that are left out stay."""

    inclusion_criteria: Criteria | None = Field(None, description="Text in Markdown.")
    exclusion_criteria: Criteria | None = None
    exclusion_reasons: Texts | None = None
    include_keywords: Texts | None = Field(None, description="Whole words; * at the end stands for any ending.")
    exclude_keywords: Texts | None = None
    n_stages: Literal[1, 2] | None = Field(None, description="2: included records are judged again by full text.")
    criteria_as_query: bool | None = Field(None, description="Whether the criteria for inclusion steer the ranking.")
    judge: str = Field("", max_length=_MAX_NAME)


class FullTextJudgement(BaseModel):
    """A judgement of a full text."""

    doc_id: str = Field(max_length=_MAX_NAME)
    grade: int = Field(ge=0, lt=2**31, description="0 for excluded, 1 or more for included.")
    judge: str = Field("", max_length=_MAX_NAME)
    note: str | None = Field(None, max_length=10_000)
    seconds: float | None = Field(None, ge=0, lt=1e9)
    reasons: Texts = Field([], description='Reasons for exclusion, the main one first, or "not retrieved".')


class ChosenFullText(BaseModel):
    """A full text that a judge puts off."""

    doc_id: str = Field(max_length=_MAX_NAME)
    judge: str = Field("", max_length=_MAX_NAME)


class FullTextJudge(BaseModel):
    """A judge of full texts by name."""

    judge: str = Field("", max_length=_MAX_NAME)


class TopicChanges(BaseModel):
    """What to change about a topic as a whole; what is left out stays."""

    name: str | None = Field(None, max_length=_MAX_NAME)
    is_closed: bool | None = Field(None, description="A closed topic can be read and exported, but not judged.")
    is_deleted: bool | None = Field(None, description="Lists and trainings leave a deleted topic out; all is kept.")


def topic_desk_api(workspace: Workspace) -> APIRouter:
    """Return the routes."""
    router, desk = APIRouter(prefix="/api", tags=["api"], route_class=GuardedRoute), workspace.desk

    @router.patch("/topics/{topic}")
    @needs(ADMIN)
    def change_topic(request: Request, topic: int, changes: TopicChanges) -> dict[str, Any]:
        """Rename, close, open, delete or restore a topic."""
        judge = judge_of(request, "")
        if changes.name is not None:
            desk.rename(topic, changes.name, judge)
        if changes.is_closed is not None:
            (desk.close if changes.is_closed else desk.reopen)(topic, judge)
        if changes.is_deleted is not None:
            (desk.delete if changes.is_deleted else desk.restore)(topic, judge)
        return workspace.topic(topic).to_dict()

    @router.get("/deleted-topics")
    @needs(ADMIN)
    def deleted() -> dict[str, Any]:
        """Return the deleted topics, which can be restored."""
        return {"topics": [summary.to_dict() for summary in desk.deleted()]}

    @router.get("/topics/{topic}/protocol")
    @needs(JUDGE)
    def protocol(topic: int) -> dict[str, Any]:
        """Return criteria, reasons for exclusion, keywords and stages, and every change of them, in order."""
        versions = [
            {"part": event.kind, "value": event.value, "judge": event.judge, "time": event.time}
            for event in desk.versions(topic)
        ]
        return {"protocol": desk.protocol(topic).to_dict(), "versions": versions}

    @router.patch("/topics/{topic}/protocol")
    @needs(JUDGE)
    def change_protocol(request: Request, topic: int, changes: ProtocolChanges) -> dict[str, Any]:
        """Change parts of the protocol; the earlier ones are kept."""
        values = changes.model_dump(exclude={"judge"}, exclude_none=True)
        return {"protocol": desk.change_protocol(topic, values, judge_of(request, changes.judge)).to_dict()}

    @router.get("/topics/{topic}/prisma")
    @needs(JUDGE)
    def prisma(
        topic: int,
        format: Literal["json", "csv", "svg"] = "json",
        source: Annotated[str | None, Query(max_length=_MAX_NAME, description="A column of the metadata.")] = None,
    ) -> Response:
        """Return the numbers of the PRISMA 2020 flow diagram, or the diagram itself."""
        return Response(desk.prisma(topic, source).text(format), media_type=PRISMA_MEDIA_TYPES[format])

    @router.get("/topics/{topic}/full-text/next")
    @needs(JUDGE)
    def following(
        request: Request, topic: int, n: Annotated[int, Query(ge=1, le=100)] = 1, judge: JudgeName = ""
    ) -> dict[str, Any]:
        """Return the full texts to judge next: documents that were included by title and abstract."""
        documents = desk.next_full_text(topic, n, judge_of(request, judge))
        return {"documents": [document.to_dict() for document in documents]}

    @router.post("/topics/{topic}/full-text/judgements", status_code=201)
    @needs(JUDGE)
    def judge(request: Request, topic: int, judgement: FullTextJudgement) -> dict[str, Any]:
        """Judge a document by its full text. The judgement is on disk before the answer."""
        name = judge_of(request, judgement.judge)
        values = judgement.model_dump(exclude={"judge"}) | {"judge": name}
        desk.judge_full_text(topic, **values)
        return values

    @router.post("/topics/{topic}/full-text/undo")
    @needs(JUDGE)
    def undo(request: Request, topic: int, body: FullTextJudge) -> dict[str, Any]:
        """Take the last judgement or skip of a judge in the stage of full texts back."""
        return {"doc_id": desk.undo_full_text(topic, judge_of(request, body.judge))}

    @router.post("/topics/{topic}/full-text/skip")
    @needs(JUDGE)
    def skip(request: Request, topic: int, choice: ChosenFullText) -> dict[str, Any]:
        """Put a full text off: it is proposed again after all others."""
        desk.skip_full_text(topic, choice.doc_id, judge_of(request, choice.judge))
        return {"doc_id": choice.doc_id}

    @router.get("/topics/{topic}/full-text/progress")
    @needs(JUDGE)
    def progress(topic: int) -> dict[str, Any]:
        """Return how many full texts were sought, judged and included."""
        return desk.full_text_progress(topic).to_dict()

    return router
