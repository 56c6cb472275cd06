"""The shapes of the answers of the REST interface, for its description.

Dataclasses whose fields are sent as they are stand for themselves. Answers are not converted by these models, so that
long ones cost nothing; tests compare real answers with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

from haybale.collections.unread import UnreadPart
from haybale.review import Advice, Progress
from haybale.service.topic_summary import TopicSummary
from haybale.service.training_readiness import TrainingReadiness
from haybale.service.trainings import ModelTraining


class Answer(BaseModel):
    """A JSON object with these values and no others."""

    model_config = ConfigDict(extra="forbid")


class ProblemAnswer(BaseModel):
    """What went wrong, and what to do (RFC 9457)."""

    type: str = Field(description="about:blank: the title says what kind of problem it is.")
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = Field(None, description="Where values were wrong (at), and why.")


class SnippetAnswer(Answer):
    """A passage with its place in the document."""

    passage_id: str
    page: int | None
    heading: str | None
    text: str
    highlights: list[tuple[int, int]] = Field(description="Start and end of what carried the score, in characters.")


class SourceShareAnswer(Answer):
    """What one ranker adds to a score."""

    source: str
    share: float


class HitAnswer(Answer):
    """A document that a search has found."""

    rank: int = Field(ge=1)
    doc_id: str
    score: float
    title: str
    citation: str = Field(description="How it is cited, as far as its metadata says; else its title.")
    court: str = Field(description="From the metadata, as date and docket; empty if it has none.")
    date: str
    docket: str
    link: str = Field(description="The address of its page in the service.")
    metadata: dict[str, Any]
    snippets: list[SnippetAnswer]
    shares: list[SourceShareAnswer]


class HitGroupAnswer(Answer):
    """Documents that are shown together."""

    value: str
    ranks: list[int]
    doc_ids: list[str]


class SearchAnswer(Answer):
    """The documents that a search has found, the best first."""

    query: str
    hits: list[HitAnswer]
    groups: list[HitGroupAnswer] | None = None


class ShareAnswer(Answer):
    """A part of a score, which may have parts of its own."""

    what: str
    share: float
    text: str | None = None
    of: NestedExplanationAnswer | None = None


class NestedExplanationAnswer(Answer):
    """The score that a ranker gives a document, in shares that sum to it."""

    ranker: str
    query_id: str
    doc_id: str
    score: float | None = Field(description="None if the ranker does not find the document.")
    rank: int | None
    shares: list[ShareAnswer]
    notes: list[str]


class ExplanationAnswer(NestedExplanationAnswer):
    """Why a document has its score, with its best passages."""

    snippets: list[SnippetAnswer]


class LinkedDocumentAnswer(Answer):
    """A document that cites another one, or is cited by it."""

    doc_id: str
    title: str


class DocumentAnswer(Answer):
    """A document with some of its passages."""

    doc_id: str
    title: str
    metadata: dict[str, Any]
    n_passages: int
    offset: int = Field(description="The number of the first passage that is here, from 0.")
    passages: list[SnippetAnswer]
    matching: list[SnippetAnswer] = Field(description="The best passages for the query, the best first.")
    cites: list[LinkedDocumentAnswer]
    cited_by: list[LinkedDocumentAnswer]
    judged: dict[str, dict[str, int]] = Field(description="By topic, the latest grade of each judge that may be seen.")
    resolved: dict[str, int] = Field(description="By topic, the grade of the resolution of a conflict.")
    contradictory: list[str] = Field(description="Topics for which judges contradict each other, unresolved.")


class ListedDocumentAnswer(Answer):
    """A document of a list, with its first passage if it has one."""

    doc_id: str
    title: str
    metadata: dict[str, Any]
    n_passages: int
    snippets: list[SnippetAnswer]


class DocumentsAnswer(Answer):
    """Some documents, and the number of all that fulfil the condition."""

    documents: list[ListedDocumentAnswer]
    n_documents: int


class FacetValueAnswer(Answer):
    """A value of a column, and how many documents have it."""

    value: Any
    documents: int


class FacetAnswer(Answer):
    """A column of the metadata."""

    name: str
    kind: Literal["value", "range"]
    values: list[FacetValueAnswer]
    n_values: int
    least: Any
    most: Any


class FacetsAnswer(Answer):
    """The columns of the metadata."""

    facets: list[FacetAnswer]
    n_matching: int = Field(description="The number of documents that match the text and the filters.")
    n_documents: int = Field(description="The number of all documents.")


class UnreadAnswer(Answer):
    """Files and parts of files that could not be read."""

    parts: list[UnreadPart]
    n_parts: int


class RankerAnswer(Answer):
    """A ranker of the service."""

    name: str
    ranker: str


class RankersAnswer(Answer):
    """The rankers of the service, the default first."""

    rankers: list[RankerAnswer]


class TopicsAnswer(Answer):
    """Some topics, and the number of all."""

    topics: list[TopicSummary]
    n_topics: int


class ProposedAnswer(Answer):
    """A document to judge."""

    doc_id: str
    title: str
    metadata: dict[str, Any]
    snippets: list[SnippetAnswer]
    probability: float | None = Field(description="None if another judge has judged the document.")
    rank: int | None
    model: str
    near_duplicates: list[str]
    duplicates: dict[str, str] = Field(description="The sources of the other documents of its group, by their ids.")


class NextAnswer(Answer):
    """Documents to judge, and how many other judges have got lately."""

    documents: list[ProposedAnswer]
    n_held: int


class JudgementAnswer(Answer):
    """A judgement that counts."""

    doc_id: str
    grade: int
    judge: str
    kind: str
    time: str
    seconds: float | None
    note: str | None
    passage_id: str | None
    rank: int | None
    model: str | None
    is_resolution: bool = Field(description="Whether it resolves a conflict between judges.")
    status: str
    reasons: list[str] = Field(description="Reasons for exclusion, the main one first.")


class JudgementsAnswer(Answer):
    """Some judgements that count, and the number of all."""

    judgements: list[JudgementAnswer]
    n_judgements: int


class AddedJudgementAnswer(Answer):
    """A judgement that was added."""

    doc_id: str
    grade: int
    judge: str
    note: str | None
    seconds: float | None
    reasons: list[str]


class JudgedAnswer(AddedJudgementAnswer):
    """A judgement that was added, and what it contradicts."""

    contradicts: dict[str, int] = Field(description="Grades of other judges who said the opposite.")


_HINTS = get_type_hints(Progress, localns={"Advice": Advice})
_FIELDS: dict[str, Any] = {name: (hint, ...) for name, hint in _HINTS.items()}
ProgressAnswer: Any = create_model("ProgressAnswer", __base__=Answer, **_FIELDS)


class DocIdAnswer(Answer):
    """The document that a request was about."""

    doc_id: str


class ImportedAnswer(Answer):
    """How many judgements were added."""

    n_added: int


class TrainingsAnswer(Answer):
    """The trainings, the last one first."""

    trainings: list[ModelTraining]
    readiness: TrainingReadiness | None = Field(description="None until reviews are ready, after a start.")


class ChosenRankerAnswer(Answer):
    """The name of the default ranker."""

    ranker: str


class ProcessesAnswer(Answer):
    """The processes that search."""

    wanted: int
    ready: int


class HealthAnswer(Answer):
    """That the service answers."""

    status: Literal["ok"]
    version: str
    documents: int
    reviews: Literal["ready", "being prepared"]
    search_processes: ProcessesAnswer | None = None


class ReadyAnswer(Answer):
    """That reviews and the processes that search are ready."""

    status: Literal["ready"]


def answers(model: Any, status: int = 200, *media_types: str) -> dict[str, Any]:
    """Return what the decorator of a route gets so that its answer is described by a model, and not converted by it.

    ``media_types`` are those of files that it may answer with instead.
    """
    described: dict[str, Any] = {"model": model}
    if media_types:
        described["content"] = _of_files(media_types)
    return {"status_code": status, "response_model": None, "responses": {status: described}}


def _of_files(media_types: Iterable[str]) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in media_types}


def files(*media_types: str) -> dict[str, Any]:
    """Return what the decorator of a route gets that answers with a file of one of some media types."""
    return {"response_class": Response, "responses": {200: {"content": _of_files(media_types)}}}


def name_of(route: APIRoute) -> str:
    """Return the name of an operation, after which generated clients name their functions."""
    return route.name
