"""What is taken along of a topic over HTTP: its judgements in one file, or all of it in a zip file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from haybale.review import ReviewProtocol
from haybale.service.answers import Answer, answers, files
from haybale.service.api import JudgeName, api_router
from haybale.service.own_addresses import document_address
from haybale.service.roles import READ, needs
from haybale.service.security import reader_of
from haybale.service.taken_along import own_base
from haybale.service.topic_desk_api import ProtocolVersion
from haybale.service.workspace import Workspace
from haybale.word_document import MEDIA_TYPE as WORD

_ZIP = "application/zip"


class ExportFormat(NamedTuple):
    """How the file of an export ends, and its media type."""

    suffix: str
    media_type: str


EXPORT_FORMATS = {
    "qrels": ExportFormat("txt", "text/plain"),
    "csv": ExportFormat("csv", "text/csv"),
    "xlsx": ExportFormat("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "docx": ExportFormat("docx", WORD),
    "json": ExportFormat("json", "application/json"),
    "beir": ExportFormat("tsv", "text/tab-separated-values"),
    "ris": ExportFormat("ris", "application/x-research-info-systems"),
    "bibtex": ExportFormat("bib", "application/x-bibtex"),
    "nbib": ExportFormat("nbib", "application/nbib"),
}


class ReportedDocument(Answer):
    """A document of a topic, with its judgements."""

    doc_id: str
    title: str
    citation: str
    court: str
    date: str
    docket: str
    link: str
    page: int | None
    heading: str | None
    passage_id: str | None
    snippet: str
    grade: int | None
    contradictory: bool
    reasons: list[str]
    judgements: list[dict[str, Any]]
    rank: int | None
    probability: float | None
    draw: int | None
    status: str
    duplicate_of: str
    metadata: dict[str, Any]


class TopicReportAnswer(Answer):
    """A topic with its protocol and its documents."""

    topic: str
    text: str
    begun: str
    made: str
    haybale: str
    collection: str
    n_documents: int
    n_judged: int
    n_relevant: int
    protocol: ReviewProtocol
    protocol_changes: list[ProtocolVersion]
    documents: list[ReportedDocument]


def exported_content(
    workspace: Workspace, request: Request, topic: int, format: str, documents: str, reader: str | None
) -> bytes:
    """Return the file of an export, with links to the documents in this service where the format has links."""
    if format == "xlsx":
        return workspace.export_workbook(topic, documents, reader)
    if format in ("docx", "json"):
        report = workspace.report(topic, documents, reader).linked(links_of(request, topic))
        return report.to_word() if format == "docx" else report.to_json().encode()
    return workspace.export(topic, format, reader, documents).encode()


def folder_response(
    workspace: Workspace, request: Request, topic: int, reader: str | None, originals: bool, headers: dict[str, str]
) -> Response:
    """Return all of a topic as a zip file, which is written to disk first and removed when it was sent."""
    with tempfile.NamedTemporaryFile(prefix="haybale-", suffix=".zip", delete=False) as file:
        path = Path(file.name)
    try:
        workspace.write_topic(topic, path, reader, originals=originals, link_of=links_of(request, topic))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    remove = BackgroundTask(path.unlink, missing_ok=True)
    return FileResponse(path, media_type=_ZIP, headers=headers, background=remove)


def links_of(request: Request, topic: int) -> Callable[[str], str]:
    """Return what gives the address of the page of a document, with its topic."""
    base = own_base(request)
    return lambda doc_id: base + document_address(doc_id, {"topic": topic})


def exports_api(workspace: Workspace) -> APIRouter:
    """Return the routes of exports."""
    router = api_router()

    other_types = [format.media_type for name, format in EXPORT_FORMATS.items() if name != "json"]

    @router.get("/topics/{topic:number}/export", **answers(TopicReportAnswer, 200, *other_types))
    @needs(READ)
    def export(
        request: Request,
        topic: int,
        format: Literal["qrels", "csv", "xlsx", "docx", "json", "beir", "ris", "bibtex", "nbib"] = "qrels",
        documents: Literal["judged", "all"] = "judged",
        judge: JudgeName = "",
        hidden: bool = False,
    ) -> Response:
        """Return the judgements of a topic, combined over judges, as a file; with ``all``, also unread documents.

        Those of others about documents that wait for a second judge are left out, unless an administrator asks for what
        is ``hidden``.
        """
        reader = reader_of(request, judge, hidden)
        content, kind = exported_content(workspace, request, topic, format, documents, reader), EXPORT_FORMATS[format]
        headers = {"Content-Disposition": f'attachment; filename="topic-{topic}.{kind.suffix}"'}
        return Response(content, headers=headers, media_type=kind.media_type)

    @router.get("/topics/{topic:number}/folder", **files(_ZIP))
    @needs(READ, is_large=True)
    def folder(
        request: Request,
        topic: int,
        originals: Annotated[
            bool, Query(description="Whether the original files of relevant documents are in it.")
        ] = True,
        judge: JudgeName = "",
        hidden: bool = False,
    ) -> Response:
        """Return all of a topic as a zip file whose page opens without the service.

        It has the judgements with notes, the protocol, the PRISMA diagram, the statement of an audit, and the texts and
        original files of the relevant documents. What this judge must not see is left out, as in exports.
        """
        headers = {"Content-Disposition": f'attachment; filename="topic-{topic}.zip"'}
        return folder_response(workspace, request, topic, reader_of(request, judge, hidden), originals, headers)

    return router
