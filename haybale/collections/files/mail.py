"""Read mail: the text of a message, its headers as metadata, and its attachments as further documents.

Attachments with one name and different contents have a digest of their content in their keys.
"""

from __future__ import annotations

import email
import email.policy
import hashlib
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import (
    FileDocument,
    FileReader,
    Part,
    Unreadable,
    no_reader,
    paragraphs_of,
    read_documents,
    reader_of,
)
from haybale.collections.files.html import read_page
from haybale.collections.unread import UnreadPart


class Mail(FileReader):
    """Reader of ``.eml`` files. An attachment in a known format becomes a document of its own."""

    name = "eml"
    suffixes = (".eml",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        message = email.message_from_bytes(data, policy=email.policy.default)
        if not message.keys():
            raise Unreadable("expected a mail message, found no header")
        body = message.get_body(("plain", "html"))
        content = "" if body is None else str(body.get_content())
        plain = body is None or body.get_content_type() == "text/plain"
        parts = [Part(text) for text in paragraphs_of(content)] if plain else []
        for item in () if plain else read_page(content):
            if isinstance(item, UnreadPart):
                yield item
            else:
                parts += item.parts
        metadata = {name: str(message[name]) for name in ("from", "to", "cc") if message[name]}
        date = getattr(message["date"], "datetime", None)
        title = str(message["subject"] or "")
        yield FileDocument(parts or [Part(title)], title, metadata | ({"date": date} if date else {}))
        attachments = [
            (part.get_filename() or "", part.get_payload(decode=True)) for part in message.iter_attachments()
        ]
        payloads: dict[str, list[bytes]] = {}  # by name; the same content twice is one document
        for name, payload in attachments:
            if isinstance(payload, bytes) and payload not in payloads.setdefault(name, []):
                payloads[name].append(payload)
        for name, contents in payloads.items():
            reader = reader_of(name)
            for payload in contents:
                key = name if len(contents) == 1 else f"{name}~{hashlib.sha256(payload).hexdigest()[:8]}"
                if reader is None:
                    yield UnreadPart(part=f"attachment {key}", reason=no_reader(name))
                else:
                    yield from _attached(reader, name, key, payload, options)


def _attached(
    reader: FileReader, name: str, key: str, payload: bytes, options: Mapping[str, str]
) -> Iterator[FileDocument | UnreadPart]:
    """Yield what is in an attachment: documents, whose keys begin with the attachment's key, and unread parts."""
    location = f"attachment {key}"
    documents, unread = read_documents(reader, payload, options)
    for document in documents:
        document.key = "/".join(filter(None, [key, document.key]))
        document.location = ", ".join(filter(None, [location, document.location]))
        document.title = document.title or name
        yield document
    yield from (part.within(location) for part in unread)
