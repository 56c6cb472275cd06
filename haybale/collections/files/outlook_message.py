"""Read messages that Outlook saved as ``.msg`` files, with olefile (MS-OXMSG, MS-OXRTFCP)."""

from __future__ import annotations

import email
import io
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from haybale.collections.files.attachments import Attachment
from haybale.collections.files.encodings import codec_of, decode_declared
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import EXTRA, FileReader, Unreadable, read_documents, reader_of
from haybale.collections.files.mail_content import (
    Item,
    MailContent,
    container_items,
    kept_alternatives,
    page_items,
    text_items,
)
from haybale.collections.files.mail_headers import headers_of, metadata_of
from haybale.collections.unread import UnreadPart
from haybale.extras import import_optional

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_UNICODE, _STRING, _BINARY, _INTEGER, _TIME, _OBJECT = 0x1F, 0x1E, 0x102, 0x03, 0x40, 0x0D  # types of properties
_CLASS, _SUBJECT, _BODY, _HTML, _RTF, _HEADERS = 0x1A, 0x37, 0x1000, 0x1013, 0x1009, 0x7D
_SENDER_NAME, _SENDER_ADDRESS, _SENDER_SMTP = 0xC1A, 0xC1F, 0x5D01
_TO, _CC, _MESSAGE_ID, _REFERENCES, _IN_REPLY_TO = 0xE04, 0xE03, 0x1035, 0x1039, 0x1042
_SENT, _RECEIVED = 0x39, 0xE06
_LONG_NAME, _SHORT_NAME, _DATA, _TYPE, _METHOD, _LONG_PATH = 0x3707, 0x3704, 0x3701, 0x370E, 0x3705, 0x370D
_CODE_PAGES = (0x3FDE, 0x3FFD)  # of the page, of the message
_EMBEDDED_MESSAGE, _OLE_OBJECT = 5, 6  # how a file is attached
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 30  # levels of messages in messages
_MAX_RTF_BYTES = 2**28
_RTF_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript "
    b"\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n"
    b"\\par \\pard\\plain\\f0\\fs20\\b\\i\\u"
    b"\\tab\\tx"
)


class OutlookMessage(FileReader):
    """Reader of ``.msg`` files. Attachments and attached messages become documents of their own, as those of mail."""

    name = "msg"
    suffixes = (".msg",)
    packages = ("olefile",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        if not data.startswith(_COMPOUND_FILE):
            raise Unreadable("expected a message of Outlook, found other data")
        with import_optional("olefile", EXTRA).OleFileIO(io.BytesIO(data)) as file:
            content = _content(_Storage(file, ()), options)
        yield from content.documents(options)


class _Storage:
    """A message, or a file that is attached to it: its properties by their number."""

    def __init__(self, file: Any, path: tuple[str, ...]) -> None:
        self._file, self._path = file, path
        self._fixed = self._read_fixed()
        code_pages = (self.fixed(number, _INTEGER) for number in _CODE_PAGES)
        self.codecs = [codec_of(f"cp{page[0]}") if page is not None else None for page in code_pages]

    def _read_fixed(self) -> dict[tuple[int, int], bytes]:
        """Return the properties of fixed size, 16 bytes each, after a header whose size depends on the storage."""
        stream = self._stream("__properties_version1.0") or b""
        header = 32 if not self._path else 24 if self._path[-1].startswith("__substg") else 8
        entries = {}
        for start in range(header, len(stream) - 15, 16):
            kind, number = struct.unpack_from("<HH", stream, start)
            entries[number, kind] = stream[start + 8 : start + 16]
        return entries

    def _stream(self, name: str) -> bytes | None:
        path = [*self._path, name]
        return bytes(self._file.openstream(path).read()) if self._file.exists(path) else None

    def fixed(self, number: int, kind: int) -> tuple[int, ...] | None:
        """Return a number as the first member; None if the storage does not have it."""
        value = self._fixed.get((number, kind))
        return None if value is None else struct.unpack("<Q" if kind == _TIME else "<Ixxxx", value)

    def data(self, number: int) -> bytes | None:
        """Return a property of bytes."""
        return self._stream(f"__substg1.0_{number:04X}{_BINARY:04X}")

    def text(self, number: int) -> str:
        """Return a text; an empty one if the storage does not have it."""
        unicode = self._stream(f"__substg1.0_{number:04X}{_UNICODE:04X}")
        if unicode is not None:
            return unicode.decode("utf-16-le", errors="replace").rstrip("\0")
        octets = (self._stream(f"__substg1.0_{number:04X}{_STRING:04X}") or b"").rstrip(b"\0")
        try:
            return decode_declared(octets, self.codecs[1] or self.codecs[0]).text if octets else ""
        except Unreadable:
            return octets.decode("latin-1")

    def members(self, prefix: str) -> list[_Storage]:
        """Return the storages in this one whose names begin with a prefix."""
        n = len(self._path)
        paths = (tuple(path) for path in self._file.listdir(streams=False, storages=True))
        names = {path[n] for path in paths if len(path) > n and path[:n] == self._path and path[n].startswith(prefix)}
        return [_Storage(self._file, (*self._path, name)) for name in sorted(names)]


def _content(message: _Storage, options: Mapping[str, str], depth: int = 0) -> MailContent:
    headers = headers_of(email.message_from_string(message.text(_HEADERS)).raw_items())
    by_property = {
        "from": " ".join(filter(None, [message.text(_SENDER_NAME), _address(message)])),
        "to": message.text(_TO),
        "cc": message.text(_CC),
        "message-id": message.text(_MESSAGE_ID),
        "references": message.text(_REFERENCES),
        "in-reply-to": message.text(_IN_REPLY_TO),
    }
    metadata = metadata_of({name: value for name, value in by_property.items() if value} | headers)
    sent = message.fixed(_SENT, _TIME) or message.fixed(_RECEIVED, _TIME)
    if "date" not in metadata and sent is not None:
        metadata["date"] = _EPOCH + timedelta(microseconds=sent[0] // 10)
    content = MailContent(" ".join(message.text(_SUBJECT).split()), metadata)
    content.add(_body(message, options))
    for attachment in message.members("__attach_version1.0_"):
        content.add(_attached(attachment, message.text(_CLASS), options, depth))
    return content


def _address(message: _Storage) -> str:
    address = message.text(_SENDER_SMTP) or message.text(_SENDER_ADDRESS)
    return f"<{address}>" if "@" in address and address != message.text(_SENDER_NAME) else ""


def _body(message: _Storage, options: Mapping[str, str]) -> Iterator[Item]:
    """Yield the paragraphs of a message, which may be there as plain text, as a page and as RTF."""
    plain = list(text_items(message.text(_BODY).encode(), "text/plain", "utf-8"))
    html = message.data(_HTML)
    page = message.text(_HTML)
    pages = list(text_items(html, "text/html", message.codecs[0])) if html else list(page_items(page))
    items = list(kept_alternatives([plain, pages]))
    packed = message.data(_RTF)
    if packed and not items:
        reader = reader_of("body.rtf")
        assert reader is not None
        documents, unread = read_documents(reader, unpacked_rtf(packed), options)
        items = [part for document in documents for part in document.parts]
        items += [part.within("body") for part in unread]
    yield from items


def _attached(attachment: _Storage, message_class: str, options: Mapping[str, str], depth: int) -> Iterator[Item]:
    name = attachment.text(_LONG_NAME) or attachment.text(_SHORT_NAME)
    method = attachment.fixed(_METHOD, _INTEGER) or (0,)
    messages = attachment.members(f"__substg1.0_{_DATA:04X}{_OBJECT:04X}")
    data = attachment.data(_DATA)
    if method[0] == _EMBEDDED_MESSAGE and messages:
        if depth >= _MAX_DEPTH:
            yield UnreadPart(part=f"attachment {name}", reason=f"messages are nested more than {_MAX_DEPTH} deep")
        else:
            yield _content(messages[0], options, depth + 1).as_attachment(name, options)
    elif data is not None and message_class.upper().startswith("IPM.NOTE.SMIME"):
        if attachment.text(_TYPE).lower() == "multipart/signed":  # a whole message
            yield Attachment(name if name.lower().endswith(".eml") else "signed.eml", data)
        else:
            yield from container_items(data, name or "smime.p7m", options)
    elif data is not None:
        yield Attachment(name, data, attachment.text(_TYPE).lower())
    else:
        path = attachment.text(_LONG_PATH)
        reason = "an object of another program" if method[0] == _OLE_OBJECT else f"it is elsewhere ({path})"
        yield UnreadPart(part=f"attachment {name or 'without a name'}", reason=f"{reason}; save it as a file")


def unpacked_rtf(data: bytes) -> bytes:
    """Return the RTF in a property of compressed RTF (MS-OXRTFCP)."""
    if len(data) < 16:
        raise Unreadable("expected compressed RTF, found other data")
    packed_size, size = struct.unpack_from("<II", data)
    kind, content = data[8:12], data[16 : packed_size + 4]
    if kind == b"MELA":  # not compressed
        return content[:size]
    if kind != b"LZFu" or size > _MAX_RTF_BYTES:
        raise Unreadable("expected compressed RTF, found other data")
    output = bytearray(_RTF_DICTIONARY)
    position = 0
    while position < len(content):
        control, position = content[position], position + 1
        for bit in range(8):
            if not control >> bit & 1:
                output += content[position : position + 1]
                position += 1
                continue
            if position + 2 > len(content):
                return bytes(output[len(_RTF_DICTIONARY) :][:size])
            reference = int.from_bytes(content[position : position + 2], "big")
            position += 2
            # The offset is that in a ring of 4,096 bytes, in which the next byte is written at len(output).
            distance = (len(output) - (reference >> 4)) % 4096
            if distance == 0:  # the end
                return bytes(output[len(_RTF_DICTIONARY) :][:size])
            for _ in range((reference & 15) + 2):
                output.append(output[-distance])
    return bytes(output[len(_RTF_DICTIONARY) :][:size])
