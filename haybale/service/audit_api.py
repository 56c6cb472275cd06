"""The routes of the REST interface that begin the audit of a topic and return what it certifies."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from haybale.review.audit_statement import AuditedDocument, Look
from haybale.service.answers import Answer, answers
from haybale.service.api import MAX_NAME, Body, api_router
from haybale.service.roles import JUDGE, READ, needs
from haybale.service.security import judge_of
from haybale.service.workspace import Workspace


class NewAudit(Body):
    """An audit to begin."""

    target: float = Field(0.8, gt=0, le=1, description="The share of the relevant documents to find.")
    confidence: float = Field(0.95, ge=0.5, lt=1, description="The probability with which no bound is too high.")
    seed: int | None = Field(None, ge=0, lt=2**53, description="Of the draws. Default: a random number.")
    judge: str = Field("", max_length=MAX_NAME, description="Who begins it.")


class StatementAnswer(Answer):
    """What an audit certifies, and all that is needed to compute it anew."""

    format: int
    haybale: str
    statement: str = Field(description="What is certified, in a sentence.")
    topic: str
    text: str
    collection: str
    n_documents: int
    documents: str = Field(description="A SHA-256 digest of the ids and texts of all documents.")
    target: float
    confidence: float
    seed: int
    begun: str
    begun_by: str
    earlier_audits: list[str] = Field(description="When earlier audits of the topic were begun.")
    fractions: list[float] = Field(description="The shares that are bet on, relative to the one that is tested.")
    weights: list[float]
    switched: float
    judgements: list[AuditedDocument]
    looks: list[Look] = Field(description="The bound after each draw that counts.")
    bound: Look
    gap: str = Field(description="Why later draws, or all, do not count; empty if all judged draws count.")


def audit_api(workspace: Workspace) -> APIRouter:
    """Return the routes of audits."""
    router = api_router()

    @router.post("/topics/{topic:number}/audit", **answers(StatementAnswer, 201))
    @needs(JUDGE)
    def begin_audit(request: Request, topic: int, audit: NewAudit) -> dict[str, Any]:
        """Begin an audit of a topic: documents are drawn at random, and the recall is bounded at every look."""
        name = judge_of(request, audit.judge)
        workspace.audit(topic).begin(audit.target, audit.confidence, seed=audit.seed, judge=name)
        return workspace.audit(topic).statement().to_dict()

    @router.get("/topics/{topic:number}/audit", **answers(StatementAnswer))
    @needs(READ)
    def audit(topic: int) -> dict[str, Any]:
        """Return what the audit certifies now, with all judgements and draws, to compute it anew."""
        return workspace.audit(topic).statement().to_dict()

    return router
