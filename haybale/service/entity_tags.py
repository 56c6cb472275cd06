"""Entity tags (RFC 9110, 8.8.3): a client that has an answer already learns that it has not changed."""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Scope, Send

_KEPT_HEADERS = ("etag", "cache-control", "vary")  # of an answer without a body


def with_entity_tag(scope: Scope, send: Send) -> Send:
    """Return what sends an answer with an entity tag, or 304 and no body if the request names this tag.

    The tag is a digest of the body. Browsers keep no answers (``Cache-Control: no-store``); programs may.
    """
    start: Message | None = None
    wanted = Headers(scope=scope).get("if-none-match", "")

    async def tagged(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start" and message["status"] == 200:
            start = message
            return
        if start is None or message["type"] != "http.response.body":
            await send(message)
            return
        head, start = start, None
        if message.get("more_body", False):  # an answer in several parts has no tag
            await send(head)
            await send(message)
            return
        tag = f'"{hashlib.sha256(message.get("body", b"")).hexdigest()[:32]}"'
        headers = MutableHeaders(scope=head)
        headers["etag"] = tag
        if _names(wanted, tag):
            kept = {name: value for name, value in headers.items() if name in _KEPT_HEADERS}
            head = {**head, "status": 304, "headers": Headers(kept).raw}
            message = {**message, "body": b""}
        await send(head)
        await send(message)

    return tagged


def _names(wanted: str, tag: str) -> bool:
    """Return whether a header ``If-None-Match`` names a tag.

    >>> _names('W/"a", "b"', '"a"'), _names("*", '"a"'), _names('"b"', '"a"')
    (True, True, False)
    """
    tags = [name.strip().removeprefix("W/") for name in wanted.split(",")]
    return "*" in tags or tag in tags
