"""The pages of topics: the list, a new one, and one topic with its judgements, import and export."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request, UploadFile
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError, InputError, UnknownNameError
from haybale.service.acting_user import JUDGE_COOKIE
from haybale.service.exports_api import EXPORT_FORMATS, exported_content, folder_response
from haybale.service.file_worker import MAX_TEXT
from haybale.service.imported_decisions import import_file
from haybale.service.own_addresses import own_path
from haybale.service.pages.opening import opening_page
from haybale.service.pages.rendering import (
    Renderer,
    address,
    document_address,
    download_headers,
    judge_of,
)
from haybale.service.pages.review_page import progress_values
from haybale.service.request_work import MAX_UPLOAD
from haybale.service.roles import ADMINISTER, JUDGE, READ, needs
from haybale.service.security import reader_of
from haybale.service.workspace import Workspace

_JUDGEMENTS_PER_PAGE = 50
_COUNT_RULES = {  # by the topic's rule, how a document counts if judges contradict each other
    "any": "Such a document counts as relevant.",
    "latest": "The last judgement counts.",
    "majority": "The majority counts, and a tie counts as relevant.",
    "maximum": "The highest grade counts.",
}
_GRADES = {"": None, "relevant": 1, "irrelevant": 0}  # of records that say none, by the values of the form
_MAX_SHOWN = 100  # records of an import that did not match


def add_routes(router: APIRouter, workspace: Workspace, renderer: Renderer) -> None:
    """Add the routes of topics."""

    def listed(request: Request, status: int = 200, error: str = "", **entered: str) -> HTMLResponse:
        summaries = sorted(workspace.topics(), key=lambda summary: summary.last or summary.time, reverse=True)
        shown = {"text": "", "name": "", "known": "", "percent": "0"} | entered
        values = {"topics": summaries, "error": error, "entered": shown, "max_text": MAX_TEXT}
        values["deleted"] = workspace.desk.deleted()
        return renderer.page(request, "topics.html", status, here="/topics", **values)

    def one(request: Request, topic: int, offset: int = 0, **more: Any) -> HTMLResponse:
        rows, root = workspace.judgements(topic, judge_of(request)), request.scope.get("root_path", "")
        shown = rows.iloc[::-1].iloc[offset : offset + _JUDGEMENTS_PER_PAGE]
        titles = workspace.titles(shown["doc_id"].tolist())
        progress = progress_values(workspace, topic)
        differing = progress["progress"].contradictory
        records = [
            {
                **row,
                "is_contradictory": row["doc_id"] in differing,
                "title": titles.get(row["doc_id"], row["doc_id"]),
                "note": row["note"] if isinstance(row["note"], str) else "",
            }
            for row in shown.to_dict("records")
        ]
        return renderer.page(
            request,
            "topic.html",
            422 if more.get("error") else 200,
            here="/topics",
            topic=workspace.topic(topic),
            judgements=records,
            n_judgements=len(rows),
            offset=offset,
            size=_JUDGEMENTS_PER_PAGE,
            part_link=lambda start: address(f"{root}/topics/{topic}", offset=start or None) + "#judgements",
            document_link=lambda doc_id: root + document_address(doc_id, {"topic": topic}),
            n_contradictory=len(differing),
            count_rule=_COUNT_RULES[workspace.topic(topic).combine],
            has_files=workspace.files.has_files,
            **{"error": "", "message": "", "imported": None} | more,
            **progress,
        )

    @router.get("/topics")
    @needs(READ)
    def topics(request: Request) -> HTMLResponse:
        return listed(request)

    @router.post("/topics")
    @needs(JUDGE)
    def create(
        request: Request,
        text: Annotated[str, Form(max_length=MAX_TEXT)] = "",
        name: Annotated[str, Form(max_length=500)] = "",
        known: Annotated[str, Form(max_length=MAX_TEXT)] = "",
        percent: Annotated[float, Form(ge=0, le=100)] = 0.0,
    ) -> Response:
        ids = [line.strip() for line in known.splitlines() if line.strip()]
        try:
            if name.strip() and any(summary.name == name.strip() for summary in workspace.topics()):
                raise InputError(f"the name of a topic must be new, found {name.strip()!r}, which is there already")
            relevant, judge = dict.fromkeys(ids, 1), judge_of(request)
            made = workspace.create_topic(text.strip(), name.strip() or None, relevant, percent / 100, judge)
        except HaybaleError as error:
            return listed(request, 422, str(error), text=text, name=name, known=known, percent=f"{percent:g}")
        return RedirectResponse(f"{request.scope.get('root_path', '')}/topics/{made.id}/review", 303)

    @router.get("/topics/{topic}")
    @needs(READ)
    def shown(request: Request, topic: int, offset: int = 0) -> HTMLResponse:
        return opening_page(workspace, renderer, request, topic) or one(request, topic, max(0, offset))

    @router.post("/topics/{topic}/import")
    @needs(ADMINISTER, is_large=True, max_body=MAX_UPLOAD)
    def add_judgements(
        request: Request,
        topic: int,
        file: UploadFile,
        query: Annotated[str, Form(max_length=MAX_TEXT)] = "",
        otherwise: Annotated[Literal["", "relevant", "irrelevant"], Form()] = "",
    ) -> HTMLResponse:
        workspace.topic(topic)  # raises for an unknown one
        name, data = file.filename or "file", file.file.read()
        try:
            done = import_file(workspace, topic, name, data, query.strip() or None, _GRADES[otherwise])
        except HaybaleError as error:
            return one(request, topic, error=str(error))
        n = done.n_added
        said = f"{n:,} judgement{'' if n == 1 else 's'} added." if n else "Nothing new was in the file."
        return one(request, topic, message=said, imported=done, max_shown=_MAX_SHOWN)

    @router.get("/topics/{topic}/export")
    @needs(READ)
    def export(
        request: Request,
        topic: int,
        format: str = "csv",
        documents: Annotated[str, Query(pattern="^(judged|all)$")] = "judged",
        hidden: bool = False,
    ) -> Response:
        if format not in EXPORT_FORMATS:
            raise UnknownNameError("format", format, EXPORT_FORMATS)
        reader, kind = reader_of(request, judge_of(request), hidden), EXPORT_FORMATS[format]
        content = exported_content(workspace, request, topic, format, documents, reader)
        return Response(content, media_type=kind.media_type, headers=download_headers(_name(topic), kind.suffix))

    @router.get("/topics/{topic}/folder")
    @needs(READ, is_large=True)
    def folder(request: Request, topic: int, originals: bool = False, hidden: bool = False) -> Response:
        reader, headers = reader_of(request, judge_of(request), hidden), download_headers(_name(topic), "zip")
        return folder_response(workspace, request, topic, reader, originals, headers)

    def _name(topic: int) -> str:
        return workspace.topic(topic).name[:80] or f"topic-{topic}"

    @router.post("/judge")
    @needs(JUDGE)
    def judge(
        request: Request, name: Annotated[str, Form(max_length=100)] = "", back: Annotated[str, Form()] = ""
    ) -> Response:
        answer = RedirectResponse(own_path(back) or request.scope.get("root_path", "") + "/topics", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            JUDGE_COOKIE, quote(name.strip()), max_age=10**8, httponly=True, samesite="strict", secure=secure
        )
        return answer
