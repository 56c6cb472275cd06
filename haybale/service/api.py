"""The REST interface under ``/api``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import Response

from haybale.service.answers import (
    Answer,
    ChosenRankerAnswer,
    DocIdAnswer,
    DocumentAnswer,
    DocumentsAnswer,
    ExplanationAnswer,
    FacetsAnswer,
    ImportedAnswer,
    JudgedAnswer,
    JudgementsAnswer,
    NextAnswer,
    ProgressAnswer,
    RankersAnswer,
    SearchAnswer,
    TopicsAnswer,
    TrainingsAnswer,
    UnreadAnswer,
    answers,
    files,
    name_of,
)
from haybale.service.file_worker import MAX_TEXT
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.own_addresses import original_address, picture_address
from haybale.service.roles import ADMINISTER, JUDGE, READ, needs
from haybale.service.security import judge_of
from haybale.service.taken_along import HIT_MEDIA_TYPES, hits_response, with_links
from haybale.service.topic_summary import TopicSummary
from haybale.service.trainings import ModelTraining
from haybale.service.workspace import MAX_RESULTS, Workspace

if TYPE_CHECKING:
    import pandas as pd

MAX_IN_ADDRESS = 4_000  # characters of a text in an address, which has at most 12 bytes for each of them
MAX_NAME = 500  # characters of names and ids

_HIT_FILES = [media_type.partition(";")[0] for name, media_type in HIT_MEDIA_TYPES.items() if name != "json"]
_ANY_FILE = "application/octet-stream"
# Nothing of a file runs here: what is not PDF is saved, and would have no origin if a browser showed it.
_CSP_OF_FILE = "sandbox; default-src 'none'; frame-ancestors 'none'"
_CSP_OF_PDF = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("text= must say what to search for, found an empty text; give a few words")
    return text


NotBlank = AfterValidator(_not_blank)
# A character that str.strip() leaves. In the regular expressions of JSON Schema, \s lacks five of those that it takes
# away, and has the byte order mark besides.
NOT_BLANK_PATTERN = r"[^\s\u001c-\u001f\u0085]|\ufeff"
NOT_BLANK: dict[str, Any] = {"minLength": 1, "pattern": NOT_BLANK_PATTERN}


def _plain_numbers(value: Any) -> Any:
    """Return values of JSON in which numbers without decimals are integers: 3.0 is 3, but "3" and true stay."""
    if isinstance(value, dict):
        return {name: _plain_numbers(member) for name, member in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


_PlainNumbers = BeforeValidator(_plain_numbers)
Grade = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Text = Annotated[
    str,
    NotBlank,
    Query(
        max_length=MAX_IN_ADDRESS,
        description="The text to search for; POST a longer one.",
        json_schema_extra=NOT_BLANK,
    ),
]
LongText = Annotated[
    str,
    NotBlank,
    Field(
        max_length=MAX_TEXT,
        description="The text; blank lines separate its paragraphs.",
        json_schema_extra=NOT_BLANK,
    ),
]
Where = Annotated[str | None, Query(max_length=2000, description="An SQL condition on the metadata.")]
RankerName = Annotated[str | None, Query(max_length=MAX_NAME, description="The name of a ranker. Default: the first.")]


DocId = Annotated[str, Query(max_length=MAX_NAME, description="The id of a document.")]
Together = Annotated[
    str | None,
    Query(
        max_length=MAX_NAME,
        description="Return documents that belong together as one: copies, or those with one value of this column.",
    ),
]
PassageId = Annotated[str | None, Query(max_length=2 * MAX_NAME, description="The id of a passage. Default: none.")]
PageNumber = Annotated[
    int | None, Query(ge=1, le=10**6, description="The page, from 1. Default: that of the passage, or the first.")
]


JudgeName = Annotated[str, Query(max_length=MAX_NAME, description="Who asks, where there are no users.")]


HitFormat = Annotated[
    Literal["json", "csv", "docx"],
    Field(description="csv: a table with a row for each hit, for spreadsheets. docx: a Word file."),
]


class Body(BaseModel):
    """The body of a request, with these values and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _with_plain_numbers(cls, values: Any) -> Any:
        return _plain_numbers(values)


class Search(Body):
    """A search whose text is too long for an address."""

    q: LongText
    k: int = Field(10, ge=1, le=MAX_RESULTS)
    where: str | None = Field(None, max_length=2000)
    ranker: str | None = Field(None, max_length=MAX_NAME)
    offset: int = Field(0, ge=0, le=MAX_RESULTS)
    together: str | None = Field(None, max_length=MAX_NAME)
    format: HitFormat = "json"


ChosenValue = str | int | float | bool | None


class Counted(Body):
    """A search whose documents are counted."""

    q: str = Field("", max_length=MAX_TEXT, description="The text; an empty one matches all documents.")
    where: str | None = Field(None, max_length=2000)
    chosen: dict[str, list[ChosenValue]] = Field(
        {},
        max_length=100,
        description="By column, the values of which a document must have one; of a range, its two ends, or null.",
    )


class Explained(Body):
    """A search, and a document that it found."""

    q: LongText
    doc_id: str = Field(max_length=MAX_NAME)
    where: str | None = Field(None, max_length=2000)
    ranker: str | None = Field(None, max_length=MAX_NAME)


class NewTopic(Body):
    """A topic to add: a text, or documents one of which is relevant, or both."""

    text: str = Field("", max_length=MAX_TEXT, description="What is looked for.")
    name: str | None = Field(None, max_length=MAX_NAME, description="Default: the text.")
    known: dict[str, Grade] = Field({}, max_length=10_000, description="Grades of documents that were judged before.")
    double_share: float = Field(0.0, ge=0, le=1, description="The share of the documents that two judges judge.")
    judge: str = Field("", max_length=MAX_NAME)


class NewJudgement(Body):
    """A judgement to add."""

    doc_id: str = Field(max_length=MAX_NAME)
    grade: Grade = Field(description="0 for irrelevant, 1 or more for relevant.")
    judge: str = Field("", max_length=MAX_NAME)
    note: str | None = Field(None, max_length=10_000)
    seconds: float | None = Field(None, ge=0, lt=1e9, description="How long the judge took.")
    reasons: list[str] = Field([], max_length=500, description="Reasons for exclusion, the main one first.")


class Choice(Body):
    """A document that a judge puts off, or whose resolution a judge takes back."""

    doc_id: str = Field(max_length=MAX_NAME)
    judge: str = Field("", max_length=MAX_NAME)


class PageBox(Answer):
    """A rectangle on a page, as shares of its width and height from the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float


class SeenPage(Answer):
    """A page of a document, and where a passage is on it."""

    doc_id: str
    passage_id: str | None
    page: int = Field(description="From 1.")
    pages: list[int] = Field(description="The pages that the passage is on.")
    n_pages: int = Field(description="The number of pages of the file.")
    width: int = Field(description="Of the picture, in pixels.")
    height: int
    boxes: list[PageBox] = Field(description="A box around each line of the passage.")
    note: str = Field(description="Why there is no box, or what the picture does not show; may be empty.")
    picture: str = Field(description="The address of the picture, with the boxes on it.")
    original: str = Field(description="The address of the file, at the page.")


class Judge(Body):
    """A judge by name."""

    judge: str = Field("", max_length=MAX_NAME)


class Nothing(Body):
    """An empty object."""


class NewTraining(Body):
    """A training to begin."""

    recipe: Literal["learned", "similar topics", "svr"] | None = None
    random_state: int = Field(0, ge=0, lt=2**31)


class _NumberInPath(Convertor[int]):
    """A number from 0 in a path; an address with something else, or with more digits, does not exist."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _NumberInPath())


def api_router() -> APIRouter:
    """Return a router for routes under ``/api``."""
    return APIRouter(prefix="/api", tags=["api"], route_class=GuardedRoute, generate_unique_id_function=name_of)


def search_api(workspace: Workspace) -> APIRouter:
    """Return the routes that search and that show documents."""
    router = api_router()

    @router.get("/search", **answers(SearchAnswer, 200, *_HIT_FILES))
    @needs(READ)
    def search(
        request: Request,
        q: Text,
        k: Annotated[int, Query(ge=1, le=MAX_RESULTS)] = 10,
        where: Where = None,
        ranker: RankerName = None,
        offset: Annotated[int, Query(ge=0, le=MAX_RESULTS)] = 0,
        together: Together = None,
        format: HitFormat = "json",
    ) -> Response:
        """Return the best documents for a text, with their best passages and what each ranker adds to the score."""
        results = with_links(workspace.search(q, k, where, ranker, offset, together=together), request, ranker)
        if format != "json":
            workspace.logged.exported("hits of a search", len(results), format=format)
            return hits_response(results, format)
        return Response(results.to_json(), media_type="application/json")

    @router.post("/search", **answers(SearchAnswer, 200, *_HIT_FILES))
    @needs(READ)
    def search_long(request: Request, body: Search) -> Response:
        """Search for a long text, such as a whole document."""
        values = body.q, body.k, body.where, body.ranker, body.offset, body.together, body.format
        return search(request, *values)

    @router.get("/explain", **answers(ExplanationAnswer))
    @needs(READ)
    def explain(
        q: Text,
        doc_id: Annotated[str, Query(max_length=MAX_NAME)],
        where: Where = None,
        ranker: RankerName = None,
    ) -> dict[str, Any]:
        """Explain the score that a document has in a search, down to terms, passages and judged queries."""
        explanation, snippets = workspace.explain(q, doc_id, where, ranker)
        return explanation.to_dict() | {"snippets": [snippet.to_dict() for snippet in snippets]}

    @router.post("/explain", **answers(ExplanationAnswer))
    @needs(READ)
    def explain_long(body: Explained) -> dict[str, Any]:
        """Explain the score that a document has in the search for a long text."""
        return explain(body.q, body.doc_id, body.where, body.ranker)

    @router.get("/documents/{doc_id:path}", **answers(DocumentAnswer))
    @needs(READ)
    def document(
        request: Request,
        doc_id: str,
        q: Annotated[str, Query(max_length=MAX_IN_ADDRESS)] = "",
        where: Where = None,
        ranker: RankerName = None,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
        judge: JudgeName = "",
    ) -> dict[str, Any]:
        """Return a document with its passages, its links, its judgements, and what a query matches in it.

        Judgements of others about a document that waits for a second judge are left out.
        """
        reader = judge_of(request, judge)
        return workspace.document(doc_id, q, where, ranker, offset, limit, reader).to_dict()

    @router.get("/page")
    @needs(READ, is_large=True)
    def page(request: Request, doc_id: DocId, passage_id: PassageId = None, page: PageNumber = None) -> SeenPage:
        """Return where a passage is on a page of its file. Without a passage, say how large the page is."""
        view, root = workspace.files.view(doc_id, passage_id, page), request.scope.get("root_path", "")
        return SeenPage(
            **{name: value for name, value in vars(view).items() if name in SeenPage.model_fields and name != "picture"}
            | {"boxes": [PageBox(**box._asdict()) for box in view.boxes]},
            picture=root + picture_address(doc_id, passage_id, view.page),
            original=f"{root}{original_address(doc_id)}#page={view.page}",
        )

    @router.get("/page/picture", **files("image/png", "image/jpeg"))
    @needs(READ, is_large=True)
    def picture(doc_id: DocId, passage_id: PassageId = None, page: PageNumber = None, boxes: bool = True) -> Response:
        """Return a page of a file as a picture, with boxes around the lines of a passage."""
        view = workspace.files.view(doc_id, passage_id, page)
        content, media_type = workspace.files.picture(view, boxes)
        return Response(content, media_type=media_type)

    @router.get("/original", **files("application/pdf", _ANY_FILE))
    @needs(READ, is_large=True)
    def original(doc_id: DocId, download: bool = False) -> Response:
        """Return the file of a document: PDF files for browsers to show, others to save.

        Files that changed after they were indexed are not returned.
        """
        file = workspace.files.file(doc_id)
        is_shown, name = file.is_shown and not download, quote(file.name, safe="")
        headers = {
            "Content-Disposition": f"{'inline' if is_shown else 'attachment'}; filename*=UTF-8''{name}",
            "Content-Security-Policy": _CSP_OF_PDF if is_shown else _CSP_OF_FILE,
        }
        return Response(file.data, media_type="application/pdf" if is_shown else _ANY_FILE, headers=headers)

    @router.get("/documents", **answers(DocumentsAnswer))
    @needs(READ)
    def documents(
        where: Where = None,
        sort: Annotated[
            str | None,
            Query(max_length=MAX_NAME, description="A column, such as title. Default: the newest document is first."),
        ] = None,
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        """Return documents without a query, each with its first passage."""
        return workspace.documents(where, sort, descending, offset, limit).to_dict()

    @router.get("/facets", **answers(FacetsAnswer))
    @needs(READ)
    def facets(q: Annotated[str, Query(max_length=MAX_IN_ADDRESS)] = "", where: Where = None) -> dict[str, Any]:
        """Return the columns of the metadata: their values, counted among the documents that match, or their ranges.

        A document matches if it has a word of the text and all its phrases, and fulfils the condition.
        """
        return workspace.counts.count(q, where).to_dict()

    @router.post("/facets", **answers(FacetsAnswer))
    @needs(READ)
    def facets_of_chosen(body: Counted) -> dict[str, Any]:
        """Count under chosen values, too: each column among the documents that those of the other columns leave."""
        return workspace.counts.count(body.q, body.where, body.chosen).to_dict()

    @router.get("/unread", **answers(UnreadAnswer))
    @needs(READ)
    def unread(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000
    ) -> dict[str, Any]:
        """Return the files, and parts of files, that could not be read, with the reasons; ``part`` may be empty."""
        parts = workspace.engine.unread
        return {"parts": [asdict(part) for part in parts[offset : offset + limit]], "n_parts": len(parts)}

    @router.get("/rankers", **answers(RankersAnswer))
    @needs(READ)
    def rankers() -> dict[str, Any]:
        """Return the rankers by name, the default first."""
        return {"rankers": [{"name": name, "ranker": str(workspace.ranker(name))} for name in workspace.rankers]}

    return router


def topics_api(workspace: Workspace) -> APIRouter:
    """Return the routes of topics and their judgements."""
    router = api_router()

    @router.get("/topics", **answers(TopicsAnswer))
    @needs(READ)
    def topics(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> dict[str, Any]:
        """Return the topics, in the order in which they were added."""
        summaries = workspace.topics()
        shown = summaries[offset : offset + limit]
        return {"topics": [summary.to_dict() for summary in shown], "n_topics": len(summaries)}

    @router.post(
        "/topics",
        dependencies=[Depends(_refuse_repeated)],
        **answers(TopicSummary, 201),
    )
    @needs(JUDGE)
    def create_topic(request: Request, new_topic: NewTopic) -> dict[str, Any]:
        """Add a topic, or return the one of that name."""
        judge = judge_of(request, new_topic.judge)
        share = new_topic.double_share
        return workspace.create_topic(new_topic.text, new_topic.name, new_topic.known, share, judge).to_dict()

    @router.get("/topics/{topic:number}", **answers(TopicSummary))
    @needs(READ)
    def topic(topic: int) -> dict[str, Any]:
        """Return a topic with what was judged."""
        return workspace.topic(topic).to_dict()

    @router.get("/topics/{topic:number}/next", **answers(NextAnswer))
    @needs(JUDGE)
    def following(
        request: Request,
        topic: int,
        n: Annotated[int, Query(ge=1, le=100)] = 1,
        judge: JudgeName = "",
        independent: bool = False,
    ) -> dict[str, Any]:
        """Return the documents to judge next, the most likely relevant first; none if all were judged.

        In double screening, those come first that wait for a second judge, in the order in which they were first
        judged, and without a probability. ``independent`` proposes so in any topic: first what others have judged and
        this judge has not. ``n_held`` documents are left out because other judges got them within the last minutes; ask
        again later.
        """
        name = judge_of(request, judge)
        documents = [document.to_dict() for document in workspace.next(topic, n, name, independent)]
        return {"documents": documents, "n_held": 0 if independent else workspace.n_held(topic, name)}

    @router.get("/topics/{topic:number}/judgements", **answers(JudgementsAnswer))
    @needs(READ)
    def judgements(
        request: Request,
        topic: int,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        judge: JudgeName = "",
    ) -> dict[str, Any]:
        """Return the judgements that count: one for each document and judge, in the order in which they were given.

        Those of others about documents that wait for a second judge are left out.
        """
        frame = workspace.judgements(topic, judge_of(request, judge))
        return {"judgements": json_rows(frame.iloc[offset : offset + limit]), "n_judgements": len(frame)}

    @router.post("/topics/{topic:number}/judgements", **answers(JudgedAnswer, 201))
    @needs(JUDGE)
    def judge(request: Request, topic: int, new_judgement: NewJudgement) -> dict[str, Any]:
        """Judge a document. The judgement is on disk before the answer. One that repeats the last one adds nothing.

        ``contradicts`` has the grades of other judges who said the opposite; their judgements are kept.
        """
        name = judge_of(request, new_judgement.judge)
        doc_id, grade = new_judgement.doc_id, new_judgement.grade
        taken, reasons = new_judgement.seconds, new_judgement.reasons
        workspace.judge(topic, doc_id, grade, name, new_judgement.note, taken, reasons)
        contradicted = workspace.contradicted(topic, doc_id, name)
        return new_judgement.model_dump() | {"judge": name, "contradicts": contradicted}

    @router.post("/topics/{topic:number}/undo", **answers(DocIdAnswer))
    @needs(JUDGE)
    def undo(request: Request, topic: int, body: Judge) -> dict[str, Any]:
        """Take the last judgement or skip of a judge back."""
        return {"doc_id": workspace.undo(topic, judge_of(request, body.judge))}

    @router.post("/topics/{topic:number}/skip", **answers(DocIdAnswer))
    @needs(JUDGE)
    def skip(request: Request, topic: int, choice: Choice) -> dict[str, Any]:
        """Put a document off: it is proposed again after all others."""
        workspace.skip(topic, choice.doc_id, judge_of(request, choice.judge))
        return {"doc_id": choice.doc_id}

    @router.get("/topics/{topic:number}/progress", **answers(ProgressAnswer))
    @needs(READ)
    def progress(topic: int, rule: Annotated[list[str] | None, Query(max_length=10)] = None) -> dict[str, Any]:
        """Return how much was read and found, and what stopping rules say."""
        return workspace.progress(topic, rule).to_dict()

    @router.post("/topics/{topic:number}/import", dependencies=[Depends(_refuse_repeated)], **answers(ImportedAnswer))
    @needs(ADMINISTER)
    def import_judgements(topic: int, grades: Annotated[dict[str, Grade], _PlainNumbers]) -> dict[str, Any]:
        """Add old judgements, as grades by document, of documents that were not judged."""
        return {"n_added": workspace.import_judgements(topic, grades)}

    return router


def training_api(workspace: Workspace) -> APIRouter:
    """Return the routes of trainings."""
    router = api_router()

    @router.get("/train", **answers(TrainingsAnswer))
    @needs(READ)
    def trainings() -> dict[str, Any]:
        """Return the trainings, the last one first, and what can be trained now, with what is missing for the rest."""
        readiness = workspace.training_readiness().to_dict() if workspace.wait_for_reviews() else None
        return {"trainings": [training.to_dict() for training in workspace.trainings()], "readiness": readiness}

    @router.post("/train", **answers(ModelTraining, 202))
    @needs(ADMINISTER)
    def start_training(new_training: NewTraining) -> dict[str, Any]:
        """Begin to train a ranker on the judgements of all topics, in a process of its own.

        409 if the judgements are too few: ``readiness`` of ``GET`` says what is missing.
        """
        return workspace.start_training(new_training.recipe, new_training.random_state).to_dict()

    @router.get("/train/{number:number}", **answers(ModelTraining))
    @needs(READ)
    def training(number: int) -> dict[str, Any]:
        """Return a training with its progress or its result."""
        return workspace.training(number).to_dict()

    @router.post("/train/{number:number}/accept", **answers(ChosenRankerAnswer))
    @needs(ADMINISTER)
    def accept(number: int, nothing: Nothing | None = None) -> dict[str, Any]:
        """Make the ranker of a training the default ranker."""
        return {"ranker": workspace.accept(number)}

    @router.post("/train/revert", **answers(ChosenRankerAnswer))
    @needs(ADMINISTER)
    def revert(nothing: Nothing | None = None) -> dict[str, Any]:
        """Take the last acceptance back: the ranker of before is the default again."""
        return {"ranker": workspace.revert()}

    return router


async def _refuse_repeated(request: Request) -> None:
    """Refuse a body in JSON that gives one name two values, such as two grades to a document."""
    repeated: list[str] = []

    def with_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(reversed(pairs))
        repeated.extend(name for name, value in pairs if values[name] != value)
        return values

    with suppress(ValueError, RecursionError):  # FastAPI reports a body that is not JSON
        json.loads(await request.body(), object_pairs_hook=with_names)
    if repeated:
        detail = f"expected one value for {repeated[0]!r:.100}, found several; remove all but one"
        raise HTTPException(422, detail)


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as plain values, for JSON; missing values become None."""
    plain = frame.astype(object)
    return [
        {str(name): value for name, value in row.items()} for row in plain.where(plain.notna(), None).to_dict("records")
    ]
