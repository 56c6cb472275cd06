"""The routes of the REST interface for protocols, full texts, PRISMA numbers, and topics as a whole."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from haybale.review import ReviewProtocol
from haybale.review.keywords import MAX_CHARACTERS, MAX_KEYWORDS
from haybale.review.protocol import MAX_CRITERIA
from haybale.service.answers import (
    AddedJudgementAnswer,
    Answer,
    DocIdAnswer,
    ProposedAnswer,
    TopicsAnswer,
    answers,
    files,
)
from haybale.service.api import MAX_NAME, Body, Choice, Judge, NewJudgement, api_router
from haybale.service.roles import ADMINISTER, JUDGE, READ, needs
from haybale.service.security import judge_of
from haybale.service.topic_summary import TopicSummary
from haybale.service.workspace import Workspace

PRISMA_MEDIA_TYPES = {"svg": "image/svg+xml", "csv": "text/csv; charset=utf-8", "json": "application/json"}

Criteria = Annotated[str, Field(max_length=MAX_CRITERIA)]
Texts = Annotated[list[Annotated[str, Field(max_length=MAX_CHARACTERS)]], Field(max_length=MAX_KEYWORDS)]


class ProtocolChanges(Body):
    """Parts of a protocol to change; those that are left out stay."""

    inclusion_criteria: Criteria | None = Field(None, description="Text in Markdown.")
    exclusion_criteria: Criteria | None = None
    exclusion_reasons: Texts | None = None
    include_keywords: Texts | None = Field(None, description="Whole words; * at the end stands for any ending.")
    exclude_keywords: Texts | None = None
    n_stages: int | None = Field(None, ge=1, le=2, description="2: included records are judged again by full text.")
    criteria_as_query: bool | None = Field(None, description="Whether the criteria for inclusion steer the ranking.")
    judge: str = Field("", max_length=MAX_NAME)


class TopicChanges(Body):
    """What to change about a topic as a whole; what is left out stays."""

    name: str | None = Field(None, max_length=MAX_NAME)
    is_closed: bool | None = Field(None, description="A closed topic can be read and exported, but not judged.")
    is_deleted: bool | None = Field(None, description="Lists and trainings leave a deleted topic out; all is kept.")


class ProtocolVersion(Answer):
    """A change of a part of a protocol."""

    part: str
    value: Any
    judge: str
    time: str


class ProtocolAnswer(Answer):
    """The protocol of a topic, and every change of it, in order."""

    protocol: ReviewProtocol
    versions: list[ProtocolVersion]


class FullTextsAnswer(Answer):
    """Full texts to judge."""

    documents: list[ProposedAnswer]


class FullTextProgressAnswer(Answer):
    """How many full texts were sought, judged and included."""

    n_sought: int
    n_not_retrieved: int
    n_assessed: int
    n_included: int
    n_skipped: int
    n_left: int


class PrismaAnswer(Answer):
    """The numbers of the PRISMA 2020 flow diagram."""

    topic: str
    identified: dict[str, int] = Field(description="Records by database or file.")
    n_identified: int
    n_duplicates: int
    n_not_read: int
    n_screened: int
    excluded: dict[str, int] = Field(description="Records by their main reason for exclusion.")
    n_excluded: int
    n_stages: int
    n_sought: int
    n_not_retrieved: int
    n_waiting: int
    n_assessed: int
    full_texts_excluded: dict[str, int] = Field(description="Reports by their main reason for exclusion.")
    n_full_texts_excluded: int
    n_included: int
    n_gone: int = Field(description="Judged records that are gone; no other number counts them.")


_PRISMA = files("image/svg+xml", "text/csv")
_PRISMA["responses"][200] |= {"model": PrismaAnswer}


def topic_desk_api(workspace: Workspace) -> APIRouter:
    """Return the routes."""
    desk = workspace.desk
    router = api_router()

    def protocol_answer(topic: int) -> dict[str, Any]:
        versions = [
            {"part": event.kind, "value": event.value, "judge": event.judge, "time": event.time}
            for event in desk.versions(topic)
        ]
        return {"protocol": desk.protocol(topic).to_dict(), "versions": versions}

    @router.patch("/topics/{topic:number}", **answers(TopicSummary))
    @needs(ADMINISTER)
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

    @router.get("/deleted-topics", **answers(TopicsAnswer))
    @needs(ADMINISTER)
    def deleted_topics() -> dict[str, Any]:
        """Return the deleted topics, which can be restored."""
        summaries = [summary.to_dict() for summary in desk.deleted()]
        return {"topics": summaries, "n_topics": len(summaries)}

    @router.get("/topics/{topic:number}/protocol", **answers(ProtocolAnswer))
    @needs(READ)
    def protocol(topic: int) -> dict[str, Any]:
        """Return criteria, reasons for exclusion, keywords and stages, and every change of them, in order."""
        return protocol_answer(topic)

    @router.patch("/topics/{topic:number}/protocol", **answers(ProtocolAnswer))
    @needs(JUDGE)
    def change_protocol(request: Request, topic: int, changes: ProtocolChanges) -> dict[str, Any]:
        """Change parts of the protocol; the earlier ones are kept."""
        values = changes.model_dump(exclude={"judge"}, exclude_none=True)
        desk.change_protocol(topic, values, judge_of(request, changes.judge))
        return protocol_answer(topic)

    @router.get("/topics/{topic:number}/prisma", **_PRISMA)
    @needs(READ)
    def prisma(
        topic: int,
        format: Literal["json", "csv", "svg"] = "json",
        source: Annotated[str | None, Query(max_length=MAX_NAME, description="A column of the metadata.")] = None,
    ) -> Response:
        """Return the numbers of the PRISMA 2020 flow diagram, or the diagram itself."""
        return Response(desk.prisma(topic, source).text(format), media_type=PRISMA_MEDIA_TYPES[format])

    @router.get("/topics/{topic:number}/full-text/next", **answers(FullTextsAnswer))
    @needs(JUDGE)
    def following_full_text(
        request: Request,
        topic: int,
        n: Annotated[int, Query(ge=1, le=100)] = 1,
        judge: Annotated[str, Query(max_length=MAX_NAME)] = "",
    ) -> dict[str, Any]:
        """Return the full texts to judge next: documents that were included by title and abstract."""
        documents = desk.next_full_text(topic, n, judge_of(request, judge))
        return {"documents": [document.to_dict() for document in documents]}

    @router.post("/topics/{topic:number}/full-text/judgements", **answers(AddedJudgementAnswer, 201))
    @needs(JUDGE)
    def judge_full_text(request: Request, topic: int, new_judgement: NewJudgement) -> dict[str, Any]:
        """Judge a document by its full text; the reason "not retrieved" says that nobody could get it."""
        values = new_judgement.model_dump() | {"judge": judge_of(request, new_judgement.judge)}
        desk.judge_full_text(topic, **values)
        return values

    @router.post("/topics/{topic:number}/full-text/undo", **answers(DocIdAnswer))
    @needs(JUDGE)
    def undo_full_text(request: Request, topic: int, body: Judge) -> dict[str, Any]:
        """Take the last judgement or skip of a judge in the stage of full texts back."""
        return {"doc_id": desk.undo_full_text(topic, judge_of(request, body.judge))}

    @router.post("/topics/{topic:number}/full-text/skip", **answers(DocIdAnswer))
    @needs(JUDGE)
    def skip_full_text(request: Request, topic: int, choice: Choice) -> dict[str, Any]:
        """Put a full text off: it is proposed again after all others."""
        desk.skip_full_text(topic, choice.doc_id, judge_of(request, choice.judge))
        return {"doc_id": choice.doc_id}

    @router.get("/topics/{topic:number}/full-text/progress", **answers(FullTextProgressAnswer))
    @needs(READ)
    def full_text_progress(topic: int) -> dict[str, Any]:
        """Return how many full texts were sought, judged and included."""
        return desk.full_text_progress(topic).to_dict()

    return router
