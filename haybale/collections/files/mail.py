"""Read mail: single messages and mailboxes. Attachments, and messages in messages, become documents of their own."""

from __future__ import annotations

import codecs
import email
import email.message
import hashlib
import re
from collections.abc import Iterator, Mapping

from haybale.collections.files.attachments import within
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader, Unreadable
from haybale.collections.files.mail_content import content_of
from haybale.collections.unread import UnreadPart

# The line before each message of a mailbox; a line of a message that begins like it has no time and no year.
_SEPARATOR = re.compile(rb"^From [^\n]*\d:\d\d[^\n]*\d{4}[^\n]*\n(?=[!-9;-~]+:|>?From )", re.M)
_QUOTED_SEPARATOR = re.compile(rb"^>(>*From )", re.M)


class Mail(FileReader):
    """Reader of ``.eml`` files, and of the ``.emlx`` files of Apple Mail.

    The metadata of a message has ``from``, ``to``, ``cc``, ``bcc``, ``date``, ``message_id`` and ``thread``: the id of
    the first message that it refers to, which all messages of a thread share.
    """

    name = "eml"
    suffixes = (".eml", ".emlx")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        message = message_of(data)
        if not message.keys():
            yield UnreadPart(
                part="header", reason="expected lines such as 'Subject: …', found none; all is read as text"
            )
        yield from content_of(message, options).documents(options)


class Mailbox(FileReader):
    """Reader of ``.mbox`` files: each message is a document, and its id in the mail is its key."""

    name = "mbox"
    suffixes = (".mbox", ".mbx")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        digests_by_key: dict[str, set[bytes]] = {}  # one message may be in several folders of a mailbox
        number = 0
        for number, source in enumerate(messages_of(data), 1):
            message, digest = message_of(source), hashlib.sha256(source).digest()
            content = content_of(message, options)
            key = str(content.metadata.get("message_id") or digest.hex()[:16]).replace("/", " ")
            digests = digests_by_key.setdefault(key, set())
            if digest in digests:
                continue
            digests.add(digest)
            key = key if len(digests) == 1 else f"{key}~{digest.hex()[:8]}"
            for item in content.documents(options):
                is_message = isinstance(item, FileDocument) and item.key is None
                attached = within(item, key, f"message {number}")
                if isinstance(attached, FileDocument) and is_message:
                    attached.attached_to = None
                yield attached
        if not number:
            raise Unreadable("expected a mailbox of messages, found none")


def message_of(data: bytes) -> email.message.Message:
    """Parse a message, also one in UTF-16, or with its length before it, as Apple Mail writes it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", errors="replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    length = re.match(rb"(\d+)[ \t]*\r?\n", data)
    if length is not None:
        data = data[length.end() : length.end() + int(length[1])]
    return email.message_from_bytes(data)


def messages_of(mailbox: bytes) -> Iterator[bytes]:
    """Yield the messages of a mailbox; lines that were quoted because they begin with "From " are as they were."""
    starts = [*_SEPARATOR.finditer(mailbox)]
    ends = [*(start.start() for start in starts[1:]), len(mailbox)]
    for start, end in zip(starts, ends, strict=True):
        yield _QUOTED_SEPARATOR.sub(rb"\1", mailbox[start.end() : end])
