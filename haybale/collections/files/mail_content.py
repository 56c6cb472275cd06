"""Find the text and the attachments of a message in its MIME parts, in their order.

Of alternatives, those are kept whose words no other alternative has: the plain text, if the page has the same words.
"""

from __future__ import annotations

import binascii
import email.message
import quopri
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haybale.collections.files.attachments import Attachment, Items, read_attachments
from haybale.collections.files.encodings import decode_declared
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import Unreadable, paragraphs_of, reader_of
from haybale.collections.files.html import read_page
from haybale.collections.files.mail_headers import header_text, headers_of, metadata_of
from haybale.collections.files.signed_container import signed_content
from haybale.collections.unread import UnreadPart

_MAX_DEPTH = 60  # levels of parts in parts
_MIN_SHARED_WORDS = 0.95  # of an alternative, in the one that replaces it
_MESSAGES = ("message/rfc822", "message/global", "message/news", "message/partial")
_SIGNATURES = ("application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-signature")
_CONTAINERS = ("application/pkcs7-mime", "application/x-pkcs7-mime")
_ENCRYPTED_BLOCK = re.compile(r"-----BEGIN PGP MESSAGE-----.*?(?:-----END PGP MESSAGE-----|\Z)", re.S)
_UUENCODED = re.compile(r"^begin [0-7]{3} ([^\n]+)\n((?:[!-`][ -`]*\n)+)[ `]?\n?end[ \t]*$", re.M)
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W぀-ヿ㐀-鿿가-힯]+")  # each sign of languages that write no spaces
_CALENDAR_TEXTS = ("SUMMARY", "LOCATION", "DESCRIPTION", "COMMENT", "DTSTART", "DTEND")
Message = email.message.Message
Item = Part | Attachment | UnreadPart


@dataclass
class MailContent:
    """A message: its title, its metadata, its paragraphs, its attachments, and what was not read."""

    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    unread: list[UnreadPart] = field(default_factory=list)

    def add(self, items: Iterable[Item]) -> None:
        """Append paragraphs, attachments and what was not read."""
        for item in items:
            if isinstance(item, Part):
                self.parts.append(item)
            elif isinstance(item, Attachment):
                self.attachments.append(item)
            else:
                self.unread.append(item)

    def documents(self, options: Mapping[str, str]) -> Items:
        """Yield the message as a document without a key, its attachments, and what was not read."""
        yield from self.unread
        if self.parts or self.title or not self.attachments:
            yield FileDocument(self.parts or [Part(self.title)], self.title, self.metadata)
        yield from read_attachments(self.attachments, options)

    def as_attachment(self, name: str, options: Mapping[str, str]) -> Attachment:
        """Return a message that is attached to another one; its subject is its name if it has none."""
        texts = repr((self.title, self.metadata, self.parts, self.attachments)).encode("utf-8", "surrogatepass")
        return Attachment(name or f"{self.title[:80] or 'message'}.eml", texts, items=lambda: self.documents(options))


def content_of(message: Message, options: Mapping[str, str], depth: int = 0) -> MailContent:
    """Return the content of a message that was parsed with the policy ``compat32``, which keeps headers as they are."""
    headers = headers_of(message.raw_items())
    content = MailContent(header_text(headers.get("subject", "")), metadata_of(headers))
    content.add(_items(message, options, depth))
    return content


def _items(part: Message, options: Mapping[str, str], depth: int) -> Iterator[Item]:
    """Yield what is in a part of a message."""
    content_type, name = part.get_content_type(), _name(part)
    kind, _, subtype = content_type.partition("/")
    if depth > _MAX_DEPTH:
        yield UnreadPart(part="body", reason=f"its parts are nested more than {_MAX_DEPTH} deep; save them as files")
    elif content_type in _MESSAGES:
        yield from _message_items(part, name, options, depth)
    elif content_type == "text/rfc822-headers" and not name:
        headers = content_of(email.message_from_bytes(_payload(part)), options, depth + 1)
        headers.add(text_items(_payload(part), "text/plain", _parameter(part, "charset")))
        yield headers.as_attachment("", options)
    elif kind == "message":
        yield from _report_items(part, content_type, name)
    elif subtype == "encrypted" and kind == "multipart":
        yield UnreadPart(part="body", reason=f"encrypted ({_parameter(part, 'protocol') or content_type}); decrypt it")
    elif kind == "multipart" and part.is_multipart():
        yield from _multipart_items(part, subtype, options, depth)
    elif kind == "multipart" or _is_body(part, content_type, name):
        yield from text_items(_payload(part), content_type, _parameter(part, "charset"), _is_flowed(part))
    elif content_type in _CONTAINERS:
        yield from container_items(_payload(part), name or "smime.p7m", options, depth)
    elif content_type not in _SIGNATURES:
        if any("Base64" in type(defect).__name__ for defect in part.defects):
            yield UnreadPart(part=f"attachment {name or content_type}", reason="damaged (base64); its rest is read")
        yield Attachment(name, _payload(part), content_type)


def _multipart_items(part: Message, subtype: str, options: Mapping[str, str], depth: int) -> Iterator[Item]:
    members = [list(_items(member, options, depth + 1)) for member in _members(part)]
    yield from kept_alternatives(members) if subtype == "alternative" else (item for items in members for item in items)
    words = (part.epilogue or "").split()
    if words:
        reason = f"{len(words):,} words that programs do not show, such as {' '.join(words)[:60]!r}"
        yield UnreadPart(part="after the last part", reason=reason)


def _message_items(part: Message, name: str, options: Mapping[str, str], depth: int) -> Iterator[Item]:
    """Yield a message in a message, also an encoded one, which the rules forbid."""
    if part.get_content_type() == "message/partial":
        number, total = _parameter(part, "number"), _parameter(part, "total")
        yield UnreadPart(part="message", reason=f"part {number} of {total or 'several'}; put the parts together")
    encoding = str(part.get("content-transfer-encoding", "")).strip().lower()
    for inner in _members(part):
        message = inner
        if encoding in ("base64", "quoted-printable") and isinstance(inner.get_payload(), str):
            coded = email.message.Message()
            coded["Content-Transfer-Encoding"] = encoding
            coded.set_payload(inner.get_payload())
            data = _payload(coded) if encoding == "base64" else quopri.decodestring(inner.as_bytes())
            message = email.message_from_bytes(data)
        yield content_of(message, options, depth + 1).as_attachment(name, options)


def _report_items(part: Message, content_type: str, name: str) -> Iterator[Item]:
    """Yield the lines of a report about a delivery, or of a message of another kind, as paragraphs."""
    if content_type == "message/external-body":
        access = ", ".join(f"{key} {value}" for key, value in (part.get_params() or [])[1:])
        yield UnreadPart(part=f"attachment {name or content_type}", reason=f"its text is elsewhere ({access}); get it")
    for block in _members(part) or [part]:
        lines = [f"{key}: {header_text(str(value))}" for key, value in block.raw_items()] if block is not part else []
        yield from (Part(paragraph) for paragraph in paragraphs_of("\n".join(lines)))
        if not block.is_multipart():
            yield from text_items(_payload(block), "text/plain", _parameter(block, "charset"))


def _members(part: Message) -> list[Message]:
    payload: Any = part.get_payload()
    return payload if isinstance(payload, list) else []


def _name(part: Message) -> str:
    try:
        return header_text(part.get_filename() or "")
    except (TypeError, ValueError, LookupError):  # parameters that contradict each other
        return ""


def _parameter(part: Message, name: str) -> str | None:
    try:
        value: Any = part.get_param(name)
    except (TypeError, ValueError):
        return None
    return None if value is None else str(value[2] if isinstance(value, tuple) else value)


def _payload(part: Message) -> bytes:
    payload: Any = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _is_flowed(part: Message) -> str | None:
    """Return ``"yes"`` or ``"no"`` for a text of flowed lines, as its parameter delsp says; None for other texts."""
    return (_parameter(part, "delsp") or "no").lower() if _parameter(part, "format") == "flowed" else None


def _is_body(part: Message, content_type: str, name: str) -> bool:
    """Return whether a part is text that is shown with the message, and not as an attachment."""
    if not content_type.startswith("text/") or part.get_content_disposition() == "attachment":
        return False
    if name:
        return reader_of(name) is None and content_type in ("text/plain", "text/html")
    return content_type not in ("text/csv", "text/tab-separated-values", "text/markdown", "text/rtf")


def text_items(data: bytes, content_type: str, charset: str | None, delete_space: str | None = None) -> Iterator[Item]:
    """Yield the paragraphs of a text in a message, and what is uncertain about it.

    ``delete_space`` is the parameter delsp of a text with flowed lines (RFC 3676), None for other texts.
    """
    try:
        if content_type == "text/html" and charset is None:
            yield from page_items(data)
            return
        decoded = decode_declared(data, charset)
    except Unreadable as error:
        yield UnreadPart(part="body", reason=str(error))
        return
    yield from (part.within("body") for part in decoded.unread)
    text = decoded.text
    if content_type == "text/html":
        yield from page_items(text)
        return
    if content_type in ("text/enriched", "text/richtext"):
        text = re.sub(r"<(?!<)[^>]*>", "", re.sub(r"(?is)<param>.*?</param>", "", text)).replace("<<", "<")
    elif content_type == "text/calendar":
        text = _calendar_text(text)
    elif delete_space is not None:
        text = _unflowed(text, delete_space == "yes")
    if _ENCRYPTED_BLOCK.search(text):
        yield UnreadPart(part="body", reason="a block that is encrypted with PGP; decrypt it")
        text = _ENCRYPTED_BLOCK.sub("", text)
    text, attached = _without_uuencoded(text)
    yield from (Part(paragraph) for paragraph in paragraphs_of(text))
    yield from attached


def _without_uuencoded(text: str) -> tuple[str, list[Attachment]]:
    """Return a text without the files in it, as old programs attached them, and these files."""
    files: list[Attachment] = []

    def taken_out(block: re.Match[str]) -> str:
        try:
            content = b"".join(map(binascii.a2b_uu, block[2].splitlines()))
        except ValueError:  # it only looks like a file
            return block[0]
        files.append(Attachment(block[1].strip(), content))
        return ""

    return _UUENCODED.sub(taken_out, text), files


def page_items(page: bytes | str) -> Iterator[Item]:
    """Yield the paragraphs of a page in a message, and what was not read of it."""
    if not page.strip():
        return
    for item in read_page(page):
        if isinstance(item, UnreadPart):
            yield item.within("body")
        else:
            yield from item.parts


def _unflowed(text: str, delete_space: bool) -> str:
    """Return a text with flowed lines as paragraphs.

    >>> _unflowed("The first \\nparagraph\\nends.\\n-- \\nAnn", False)
    'The first paragraph\\nends.\\n-- \\nAnn'
    """
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        line = line.removeprefix(" ")
        if goes_on:
            lines[-1] = (lines[-1].removesuffix(" ") if delete_space else lines[-1]) + line.lstrip("> ")
        else:
            lines.append(line)
        goes_on = line.endswith(" ") and line != "-- "
    return "\n".join(lines)


def _calendar_text(text: str) -> str:
    """Return what a person sees of an invitation."""
    lines = re.sub(r"\n[ \t]", "", text).split("\n")
    fields = (re.split(r"[;:]", line, maxsplit=1)[0].upper() for line in lines)
    values = [line.partition(":")[2] for name, line in zip(fields, lines, strict=True) if name in _CALENDAR_TEXTS]
    return re.sub(r"\\([,;\\])", r"\1", "\n\n".join(values).replace("\\n", "\n").replace("\\N", "\n"))


def kept_alternatives(alternatives: Sequence[Sequence[Item]]) -> Iterator[Item]:
    """Yield the alternatives whose words no other one has, in their order, and the attachments in all of them."""
    words = [Counter(_words(items)) for items in alternatives]
    kept: list[int] = []
    for number, own_words in enumerate(words):
        if own_words and not any(_has_words(words[other], own_words) for other in kept):
            kept = [other for other in kept if not _has_words(own_words, words[other])] + [number]
    for number, items in enumerate(alternatives):
        yield from (item for item in items if number in kept or not isinstance(item, Part))


def _words(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Part):
            yield from _WORD.findall((item.text or item.heading or "").lower())


def _has_words(words: Counter[str], others: Counter[str]) -> bool:
    return sum((others - words).values()) <= (1 - _MIN_SHARED_WORDS) * sum(others.values())


def container_items(data: bytes, name: str, options: Mapping[str, str], depth: int = 0) -> Iterator[Item]:
    """Yield what is in a container of S/MIME that is only signed; an encrypted one is not read."""
    content = signed_content(data)
    if content is None:
        yield UnreadPart(part=f"attachment {name}", reason="encrypted or damaged (S/MIME); decrypt it")
    else:
        yield from _items(email.message_from_bytes(content), options, depth + 1)
