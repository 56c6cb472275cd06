"""The routes of the REST interface for the log of a matter, which are for administrators."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from haybale.service.acting_user import acting_user
from haybale.service.answers import Answer, HitAnswer, answers, files
from haybale.service.api import MAX_NAME, Body, api_router
from haybale.service.log_chain import LogHead
from haybale.service.matter_log import MAX_DAYS, LogEntry, MatterLog
from haybale.service.repeated_search import RepeatedSearch, repeat
from haybale.service.roles import ADMINISTER, needs
from haybale.service.workspace import Workspace
from haybale.spreadsheets import as_cell

LINES_TYPE = "application/jsonl"
_COLUMNS = ("number", "time", "user", "action", "details", "before")

User = Annotated[str | None, Query(max_length=MAX_NAME, description="Only lines of this user. Default: of all.")]
Action = Annotated[str | None, Query(max_length=MAX_NAME, description="Only lines of this action. Default: of all.")]


class LogChanges(Body):
    """What to change about the log; what is left out stays."""

    is_on: bool | None = None
    keep_days: int | None = Field(None, ge=0, le=MAX_DAYS, description="Older lines are cut; 0 keeps all lines.")


class KeptHead(Body):
    """The number of a line, and the SHA-256 that it had."""

    number: int = Field(ge=0, lt=2**53)
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class KeptHeads(Body):
    """Heads that the log had earlier, to check it with."""

    heads: list[KeptHead] = Field([], max_length=10_000)


class LogLineAnswer(Answer):
    """A line of the log."""

    number: int
    time: str
    user: str
    action: str
    details: dict[str, Any]


class LogHeadAnswer(Answer):
    """The number and the SHA-256 of a line; keep it where those who can write the log cannot."""

    number: int
    digest: str


class LogAnswer(Answer):
    """Lines of the log, the last one first, and the number of all that were asked for."""

    is_on: bool
    keep_days: int | None
    head: LogHeadAnswer
    lines: list[LogLineAnswer]
    n_lines: int


class LogCheckAnswer(Answer):
    """Whether the lines of the log, and the heads, fit."""

    is_whole: bool
    problem: str
    n_lines: int
    first: int
    last: int
    head: LogHeadAnswer
    n_heads: int
    n_heads_cut: int = Field(description="Heads of lines that were cut at the beginning, which say nothing.")


class RepeatedSearchAnswer(Answer):
    """A search of the past among the documents of then, and what has changed."""

    line: LogLineAnswer
    hits: list[HitAnswer] | None = Field(description="None if it cannot be repeated.")
    problem: str
    n_added: int
    n_changed: int
    n_removed: int
    changed: list[str]
    removed: list[str]
    differences: list[str]
    lost: list[str]
    gained: list[str]
    is_same: bool


def log_api(workspace: Workspace) -> APIRouter:
    """Return the routes of the log."""
    router, log = api_router(), workspace.log

    def shown(lines: list[LogEntry], n_lines: int) -> dict[str, Any]:
        settings = log.settings
        return {**vars(settings), "head": log.head._asdict(), "lines": list(map(_line, lines)), "n_lines": n_lines}

    @router.get("/log", **answers(LogAnswer))
    @needs(ADMINISTER)
    def log_lines(
        offset: Annotated[int, Query(ge=0, lt=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        user: User = None,
        action: Action = None,
    ) -> dict[str, Any]:
        """Return lines of the log, the last one first."""
        return shown(log.entries(offset, limit, user, action), log.n_entries(user, action))

    @router.patch("/log", **answers(LogAnswer))
    @needs(ADMINISTER)
    def change_log(changes: LogChanges) -> dict[str, Any]:
        """Turn the log on or off, or say for how many days lines are kept; the log says who did it."""
        log.change(is_on=changes.is_on, keep_days=changes.keep_days)
        return shown(log.entries(0, 1), log.n_entries())

    @router.get("/log/export", **files(LINES_TYPE, "text/csv"))
    @needs(ADMINISTER, is_large=True)
    def export_log(format: Literal["jsonl", "csv"] = "jsonl") -> Response:
        """Return all lines as JSON lines, which can be checked, or as a table in CSV."""
        return exported_log(log, format)

    @router.post("/log/check", **answers(LogCheckAnswer))
    @needs(ADMINISTER, is_large=True)
    def check_log(kept: KeptHeads) -> dict[str, Any]:
        """Check that no line was changed or removed, as far as the heads that were kept apart say."""
        check = log.check(LogHead(head.number, head.digest) for head in kept.heads)
        return {**vars(check), "is_whole": check.is_whole, "head": check.head._asdict()}

    @router.get("/log/{number:number}/repeat", **answers(RepeatedSearchAnswer))
    @needs(ADMINISTER)
    def repeat_search(number: int) -> dict[str, Any]:
        """Repeat a search of the log among the documents of then, and say what has changed."""
        return _repeated(repeated_of(workspace, number))

    return router


def repeated_of(workspace: Workspace, number: int) -> RepeatedSearch:
    """Repeat a search of the log on the documents of then (:func:`~haybale.service.repeated_search.repeat`)."""
    return repeat(workspace.log.entry(number), workspace.matter, workspace.ranker, workspace.logged.digest_of)


def exported_log(log: MatterLog, format: Literal["jsonl", "csv"]) -> Response:
    """Return all lines of a log as a file, which is written while it is read, and log the export."""
    log.record("export", {"of": "log", "format": format}, acting_user())
    headers = {"Content-Disposition": f'attachment; filename="log.{format}"'}
    if format == "csv":
        return StreamingResponse(_table(log.lines()), media_type="text/csv", headers=headers)
    return StreamingResponse((f"{line}\n" for line in log.lines()), media_type=LINES_TYPE, headers=headers)


def _table(lines: Iterator[str]) -> Iterator[str]:
    """Yield the rows of a table of lines, in which a spreadsheet finds no formula."""
    yield ",".join(_COLUMNS) + "\r\n"
    for line in lines:
        values = json.loads(line)
        first = {name: values.pop(name) for name in _COLUMNS if name != "details"}
        details = json.dumps(values, ensure_ascii=False)
        row = [details if name == "details" else first[name] for name in _COLUMNS]
        buffer = io.StringIO(newline="")
        csv.writer(buffer).writerow(map(as_cell, row))
        yield buffer.getvalue()


def _line(entry: LogEntry) -> dict[str, Any]:
    return {name: value for name, value in vars(entry).items() if name != "line"}


def _repeated(repeated: RepeatedSearch) -> dict[str, Any]:
    hits = None if repeated.results is None else [hit.to_dict() for hit in repeated.results]
    values = {name: value for name, value in vars(repeated).items() if name not in ("entry", "results")}
    return {"line": _line(repeated.entry), "hits": hits, **values}
