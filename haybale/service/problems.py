"""Errors as problem details, RFC 9457: one JSON object with a title and what to do, without a stack trace."""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from haybale.errors import HaybaleError, InputError, StoppedError, StoreError
from haybale.service.request_errors import NotAllowedError, NotFoundError

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of the system, when a file cannot grow
_LOGGER = logging.getLogger("haybale.service")


def problem(status: int, detail: str, **more: Any) -> JSONResponse:
    """Return a problem as a response of the type ``application/problem+json``.

    >>> problem(404, "unknown topic '7'").body
    b'{"type":"about:blank","title":"Not Found","status":404,"detail":"unknown topic \\'7\\'"}'
    """
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail} | more
    return JSONResponse(content, status, media_type="application/problem+json")


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error of haybale."""
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, NotAllowedError):
        return 403
    if isinstance(error, StoreError | StoppedError):
        return 503
    return 422 if isinstance(error, InputError) else 500


def answer(request: Request, status: int, detail: str, **more: Any) -> Response:
    """Return a problem; for a browser that asks for a page, as a page."""
    if request.scope["path"].startswith("/api") or "text/html" not in request.headers.get("accept", ""):
        return problem(status, detail, **more)
    page: Response = request.app.state.error_page(request, status, detail)
    return page


def add_handlers(application: FastAPI) -> None:
    """Let an application answer errors with problems."""

    @application.exception_handler(HaybaleError)
    async def of_haybale(request: Request, error: HaybaleError) -> Response:
        status = status_of(error)
        if status == 422 and request.scope["path"].startswith("/api/"):
            status = 409  # the request is as the description says, and does not fit what is there
        return answer(request, status, str(error))

    @application.exception_handler(OSError)
    async def of_disk(request: Request, error: OSError) -> Response:
        _LOGGER.error("%s %s", request.method, request.scope["path"], exc_info=error)
        if error.errno in _DISK_FULL_ERRORS:
            return answer(request, 507, "the disk of the service is full; nothing was kept; make room and try it again")
        return answer(request, 503, "a file of the service cannot be read or written; its log says which")

    @application.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        faults = [{"at": ".".join(map(str, fault["loc"])), "why": fault["msg"]} for fault in error.errors()]
        detail = "; ".join(f"{fault['at']}: {fault['why']}" for fault in faults)
        return answer(request, 422, f"expected other values: {detail}", errors=faults)

    @application.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        response = answer(request, error.status_code, str(error.detail))
        response.headers.update(error.headers or {})
        return response
