"""Decode the headers of mail, also those that break the rules, and take the metadata of a message from them."""

from __future__ import annotations

import base64
import binascii
import email.utils
import quopri
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from haybale.collections.files.encodings import decode_declared, decode_text
from haybale.collections.files.file_reader import Unreadable

_ENCODED_WORD = re.compile(r"=\?([^?\s*]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_WORDS = re.compile(r"(\?=)\s+(?==\?[^?\s]+\?[bBqQ]\?)")
_MESSAGE_ID = re.compile(r"<([^<>\s]+)>")
_ADDRESSES = ("from", "to", "cc", "bcc")


def header_text(raw: str) -> str:
    r"""Return a header as it is read: unfolded, with its encoded words and bytes beyond ASCII decoded.

    >>> header_text("=?utf-8?Q?K=C3=BCndigung?=\r\n =?iso-8859-1?B?IFdvaG51bmc=?= 5")
    'Kündigung Wohnung 5'
    >>> header_text("Geb\udcfchr")  # a byte that is not ASCII, as the package email represents it
    'Gebühr'
    """
    unfolded = re.sub(r"[\r\n]+(?=[ \t])", "", raw)
    if re.search("[\udc80-\udcff]", unfolded):
        unfolded = _text(unfolded.encode("utf-8", "surrogateescape"), None)
    # The bytes of words that follow each other are joined, since some programs split letters.
    words = list(_ENCODED_WORD.finditer(_BETWEEN_WORDS.sub(r"\1", unfolded)))
    text, end, pending, pending_charset = "", 0, b"", ""
    source = _BETWEEN_WORDS.sub(r"\1", unfolded)
    for word in words:
        charset, encoding, encoded = word.groups()
        if pending and (word.start() > end or charset.lower() != pending_charset.lower()):
            text, pending = text + _text(pending, pending_charset), b""
        text += source[end : word.start()]
        pending, pending_charset, end = pending + _decoded_word(encoding, encoded), charset, word.end()
    return " ".join((text + (_text(pending, pending_charset) if pending else "") + source[end:]).split())


def _text(data: bytes, charset: str | None) -> str:
    try:
        return (decode_text(data) if charset is None else decode_declared(data, charset)).text
    except Unreadable:
        return data.decode("latin-1")


def _decoded_word(encoding: str, encoded: str) -> bytes:
    data = encoded.encode("ascii", "replace")
    if encoding in "qQ":
        return quopri.decodestring(data, header=True)
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4))
    except (binascii.Error, ValueError):
        return data


def headers_of(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a message by their names in lower case; of several ones with a name, the first."""
    headers: dict[str, str] = {}
    for name, value in items:
        headers.setdefault(name.lower(), str(value))
    return headers


def metadata_of(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return addresses, date, id and thread of a message; the thread is the id of its first message.

    >>> metadata_of({"from": "a@x.org", "message-id": "<3@x>", "references": "<1@x> <2@x>"})
    {'from': 'a@x.org', 'message_id': '3@x', 'thread': '1@x'}
    """
    metadata: dict[str, Any] = {name: header_text(headers[name]) for name in _ADDRESSES if headers.get(name)}
    date = _date(headers.get("date", ""))
    if date is not None:
        metadata["date"] = date
    ids = {name: _MESSAGE_ID.findall(headers.get(name, "")) for name in ("message-id", "references", "in-reply-to")}
    if ids["message-id"]:
        metadata["message_id"] = ids["message-id"][0]
    thread = next(filter(None, (ids["references"], ids["in-reply-to"], ids["message-id"])), None)
    if thread:
        metadata["thread"] = thread[0]
    return metadata


def _date(value: str) -> datetime | None:
    try:
        return email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
