"""The REST interface of duplicates, under ``/api``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from haybale.engine import Duplicates
from haybale.service.api import MAX_NAME
from haybale.service.roles import JUDGE, GuardedRoute, needs
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace

Offset = Annotated[int, Query(ge=0, description="The first group.")]
Limit = Annotated[int, Query(ge=1, le=10_000, description="The largest number of groups.")]
DocIds = Annotated[list[Annotated[str, Field(max_length=MAX_NAME)]], Field(max_length=1000)]


class DuplicatesChange(BaseModel):
    """Documents to separate from their groups, or to join."""

    action: Literal["separate", "join"]
    doc_ids: DocIds
    judge: str = Field("", max_length=MAX_NAME)


def duplicates_api(workspace: Workspace) -> APIRouter:
    """Return the routes of duplicates."""
    router = APIRouter(prefix="/api", tags=["api"], route_class=GuardedRoute)

    @router.get("/duplicates")
    @needs(JUDGE, is_large=True)
    def duplicates(offset: Offset = 0, limit: Limit = 1000) -> dict[str, Any]:
        """Return which documents are one record, in groups, and how many come from each source."""
        return _shown(workspace.engine.duplicates(), offset, limit)

    @router.get("/topics/{topic}/duplicates")
    @needs(JUDGE)
    def duplicates_of_topic(topic: int, offset: Offset = 0, limit: Limit = 1000) -> dict[str, Any]:
        """Return the groups that are read once in a topic, after what judges have separated and joined."""
        return _shown(workspace.duplicates.groups(topic), offset, limit)

    @router.post("/topics/{topic}/duplicates")
    @needs(JUDGE)
    def change_duplicates(request: Request, topic: int, change: DuplicatesChange) -> dict[str, Any]:
        """Separate documents from their groups, or join documents, for one topic. It is on disk before the answer."""
        workspace.duplicates.change(topic, change.action, change.doc_ids, judge_of(request, change.judge))
        groups = workspace.duplicates.groups(topic)
        return {name: getattr(groups, name) for name in ("n_documents", "n_duplicates", "n_distinct")}

    return router


def _shown(duplicates: Duplicates, offset: int, limit: int) -> dict[str, Any]:
    values = duplicates.to_dict()
    sources = duplicates.by_source().to_dict("records")
    return {
        **values,
        "groups": values["groups"][offset : offset + limit],
        "n_groups": len(values["groups"]),
        "by_source": sources,
    }
