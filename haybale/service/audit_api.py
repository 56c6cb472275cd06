"""The routes of the REST interface that begin the audit of a topic and return what it certifies."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from haybale.service.api import MAX_NAME
from haybale.service.roles import JUDGE, GuardedRoute, needs
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace


class NewAudit(BaseModel):
    """An audit to begin."""

    target: float = Field(0.8, gt=0, le=1, description="The share of the relevant documents to find.")
    confidence: float = Field(0.95, ge=0.5, lt=1, description="The probability with which no bound is too high.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Of the draws. Default: a random number.")
    judge: str = Field("", max_length=MAX_NAME, description="Who begins it.")


def audit_api(workspace: Workspace) -> APIRouter:
    """Return the routes of audits."""
    router = APIRouter(prefix="/api", tags=["api"], route_class=GuardedRoute)

    @router.post("/topics/{topic}/audit", status_code=201)
    @needs(JUDGE)
    def begin(request: Request, topic: int, audit: NewAudit) -> dict[str, Any]:
        """Begin an audit of a topic: documents are drawn at random, and the recall is bounded at every look."""
        name = judge_of(request, audit.judge)
        workspace.audit(topic).begin(audit.target, audit.confidence, seed=audit.seed, judge=name)
        return workspace.audit(topic).statement().to_dict()

    @router.get("/topics/{topic}/audit")
    @needs(JUDGE)
    def statement(topic: int) -> dict[str, Any]:
        """Return what the audit certifies now, with all judgements and draws, to compute it anew."""
        return workspace.audit(topic).statement().to_dict()

    return router
