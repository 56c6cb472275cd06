"""The REST interface of duplicates, under ``/api``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from haybale.engine import Duplicates
from haybale.service.answers import Answer, answers
from haybale.service.api import MAX_NAME, Body, api_router
from haybale.service.roles import JUDGE, READ, needs
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace

Offset = Annotated[int, Query(ge=0, description="The first group.")]
Limit = Annotated[int, Query(ge=1, le=10_000, description="The largest number of groups.")]
DocIds = Annotated[list[Annotated[str, Field(max_length=MAX_NAME)]], Field(max_length=1000)]


class GroupAnswer(Answer):
    """Documents that are one record; the first one is read for all."""

    doc_ids: list[str]
    sources: list[str] = Field(description="The file or the database of each document; may be empty.")
    reasons: list[str]


class SourceAnswer(Answer):
    """How many documents come from a source, and how many of them another document represents."""

    source: str
    documents: int
    duplicates: int


class DuplicatesCounts(Answer):
    """The numbers of documents, of those that another one represents, and of those that are left to read."""

    n_documents: int
    n_duplicates: int
    n_distinct: int


class DuplicatesAnswer(DuplicatesCounts):
    """Some groups of duplicates, and the number of all."""

    groups: list[GroupAnswer]
    n_groups: int
    by_source: list[SourceAnswer]


class DuplicatesChange(Body):
    """Documents to separate from their groups, or to join."""

    action: Literal["separate", "join"]
    doc_ids: DocIds
    judge: str = Field("", max_length=MAX_NAME)


def duplicates_api(workspace: Workspace) -> APIRouter:
    """Return the routes of duplicates."""
    router = api_router()

    @router.get("/duplicates", **answers(DuplicatesAnswer))
    @needs(READ, is_large=True)
    def duplicates(offset: Offset = 0, limit: Limit = 1000) -> dict[str, Any]:
        """Return which documents are one record, in groups, and how many come from each source."""
        return _shown(workspace.engine.duplicates(), offset, limit)

    @router.get("/topics/{topic:number}/duplicates", **answers(DuplicatesAnswer))
    @needs(READ)
    def duplicates_of_topic(topic: int, offset: Offset = 0, limit: Limit = 1000) -> dict[str, Any]:
        """Return the groups that are read once in a topic, after what judges have separated and joined."""
        return _shown(workspace.duplicates.groups(topic), offset, limit)

    @router.post("/topics/{topic:number}/duplicates", **answers(DuplicatesCounts))
    @needs(JUDGE)
    def change_duplicates(request: Request, topic: int, change: DuplicatesChange) -> dict[str, Any]:
        """Separate documents from their groups, or join documents, for one topic. It is on disk before the answer."""
        workspace.duplicates.change(topic, change.action, change.doc_ids, judge_of(request, change.judge))
        groups = workspace.duplicates.groups(topic)
        return {name: getattr(groups, name) for name in ("n_documents", "n_duplicates", "n_distinct")}

    return router


def _shown(duplicates: Duplicates, offset: int, limit: int) -> dict[str, Any]:
    values = duplicates.to_dict()
    shown = {"groups": values["groups"][offset : offset + limit], "n_groups": len(values["groups"])}
    return {**values, **shown, "by_source": duplicates.by_source().to_dict("records")}
