"""The part of the REST interface to which files are sent: records for the engine, decisions for a topic."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Header, UploadFile
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from haybale.review.decision_import import DecisionImport
from haybale.service.added_records import AddedFile
from haybale.service.answers import Answer, answers
from haybale.service.api import api_router
from haybale.service.imported_decisions import import_file
from haybale.service.request_work import MAX_UPLOAD, PROGRAM_HEADER
from haybale.service.roles import ADMINISTER, READ, needs
from haybale.service.workspace import Workspace

FromProgram = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias=PROGRAM_HEADER,
        max_length=200,
        description="Any text. A request without a token needs it: no page of another site can send it.",
    ),
]


class AddedFilesAnswer(Answer):
    """Files of records that were added, the last one first."""

    files: list[AddedFile]


def files_api(workspace: Workspace) -> APIRouter:
    """Return the routes to which files are sent."""
    router = api_router()

    @router.get("/records", **answers(AddedFilesAnswer))
    @needs(READ)
    def added_records() -> dict[str, Any]:
        """Return the files of records that were added since the service has begun, the last one first."""
        return {"files": [file.to_dict() for file in workspace.added_records.files()]}

    @router.post("/records", **answers(AddedFile, 202))
    @needs(ADMINISTER, is_large=True, max_body=MAX_UPLOAD)
    def add_records(
        file: UploadFile, replace: Annotated[bool, Form()] = False, program: FromProgram = None
    ) -> dict[str, Any]:
        """Read a file of records, such as RIS or CSV, and begin to add them to the engine.

        With ``replace``, records whose ids the engine has are replaced; otherwise nothing is added if there is one.
        """
        return workspace.added_records.add(file.filename or "file", file.file.read(), replace).to_dict()

    @router.post("/topics/{topic:number}/decisions", **answers(DecisionImport))
    @needs(ADMINISTER, is_large=True, max_body=MAX_UPLOAD)
    def import_decisions(
        topic: int,
        file: UploadFile,
        otherwise: Annotated[
            Annotated[int, Field(ge=0, lt=2**31)] | SkipJsonSchema[None],  # a form has no null
            Form(description="The grade of records that say none."),
        ] = None,
        program: FromProgram = None,
    ) -> dict[str, Any]:
        """Add decisions of another program or engine: a table, references such as RIS, or an ASReview project.

        Documents are found by DOI, PubMed id, or title and year. ``unmatched``, ``several`` and ``conflicting`` list
        the records that match no document, several ones, and those that contradict each other.
        """
        workspace.topic(topic)  # raises for an unknown one
        return import_file(workspace, topic, file.filename or "file", file.file.read(), None, otherwise).to_dict()

    return router
