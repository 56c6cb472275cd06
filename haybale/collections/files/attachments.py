"""Read files that are in other files, as documents of their own."""

from __future__ import annotations

import hashlib
import io
import mimetypes
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import NamedTuple

from haybale.collections.files.file_document import FileContent, FileDocument
from haybale.collections.files.file_reader import FILE_READERS, FileReader, no_reader, read_documents, reader_of
from haybale.collections.unread import UnreadPart

Items = Iterator[FileDocument | UnreadPart]
_MAX_UNPACKED_BYTES = 2**30  # of all files in a zip file
_MAX_ZIP_DEPTH = 3  # levels of zip files in zip files
_asks_for_contents: ContextVar[bool] = ContextVar("whether documents get the contents of their files", default=False)
_ANY_TYPE = ("application/octet-stream", "application/x-download", "application/force-download", "")
_TYPES = mimetypes.MimeTypes(filenames=())
_OFFICE = "application/vnd.openxmlformats-officedocument."
_SUFFIXES = {  # of the types that Python does not know, or has several names for
    "text/rtf": ".rtf", "application/rtf": ".rtf", "application/x-rtf": ".rtf",
    f"{_OFFICE}wordprocessingml.document": ".docx", f"{_OFFICE}spreadsheetml.sheet": ".xlsx",
    "application/vnd.oasis.opendocument.text": ".odt", "text/markdown": ".md", "application/x-pdf": ".pdf",
    "application/x-research-info-systems": ".ris", "application/vnd.ms-outlook": ".msg", "application/mbox": ".mbox",
    "application/xhtml+xml": ".xhtml", "application/csv": ".csv", "image/jpg": ".jpg",
    "application/jsonl": ".jsonl", "application/x-ndjson": ".jsonl", "application/vnd.apache.parquet": ".parquet",
}  # fmt: skip


class Attachment(NamedTuple):
    """A file in another file.

    Parameters
    ----------
    name : str
        May be empty; the type of the content replaces it then.
    content : bytes
    content_type : str, default ""
        Such as ``"text/csv"``; it counts if no reader reads files of that name.
    items : callable, optional
        Yields the documents in it, the first without a key, if no reader of files does.
    """

    name: str
    content: bytes
    content_type: str = ""
    items: Callable[[], Items] | None = None


def read_attachments(
    files: Iterable[Attachment | tuple[str, bytes]], options: Mapping[str, str], noun: str = "attachment"
) -> Items:
    """Yield the documents of files in a file, and what was not read of them.

    The key of such a document begins with the name of its file; names that several contents have get a digest of the
    content. The same content under the same name is one document.

    Parameters
    ----------
    files : iterable of Attachment or (str, bytes)
        The name and the content of each file.
    options : mapping
        As for :meth:`FileReader.read <haybale.collections.files.file_reader.FileReader.read>`.
    noun : str, default "attachment"
        What such a file is called in the list of what was not read.
    """
    by_name: dict[str, dict[bytes, Attachment]] = {}
    for file in files:
        attachment = Attachment(*file)
        name = " ".join(attachment.name.replace("/", " ").split()) or f"unnamed{_suffix(attachment.content_type)}"
        by_name.setdefault(name, {}).setdefault(attachment.content, attachment)
    for name, attachments in by_name.items():
        for content, attachment in attachments.items():
            key = name if len(attachments) == 1 else f"{name}~{hashlib.sha256(content).hexdigest()[:8]}"
            for item in _items(name, attachment, options):
                yield within(item, key, f"{noun} {key}", name)


def within(item: FileDocument | UnreadPart, key: str, location: str, title: str = "") -> FileDocument | UnreadPart:
    """Return a document, or an unread part, of a file as one of an outer file, in which this file has a key."""
    if isinstance(item, UnreadPart):
        return item.within(location)
    item.attached_to = "" if item.attached_to is None else _joined(key, item.attached_to)
    item.key = _joined(key, item.key)
    item.location = ", ".join(filter(None, [location, item.location]))
    item.title = item.title or title
    return item


def _joined(key: str, inner: str | None) -> str:
    return f"{key}/{inner}" if inner else key


def _items(name: str, attachment: Attachment, options: Mapping[str, str], depth: int = 0) -> Items:
    """Yield what is in an attachment."""
    if attachment.items is not None:
        yield from attachment.items()
        return
    reader = _reader(name, attachment.content_type)
    if reader is not None:
        documents, unread = read_documents(reader, attachment.content, options)
        if _asks_for_contents.get():
            named = name if reader_of(name) is reader else f"{name}{reader.suffixes[0]}"
            for document in documents:
                document.content = document.content or FileContent(named, attachment.content)
        yield from documents
        yield from unread
    elif name.lower().endswith(".zip") or attachment.content_type in (
        "application/zip",
        "application/x-zip-compressed",
    ):
        yield from _unpacked(attachment.content, options, depth + 1)
    else:
        yield UnreadPart(reason=no_reader(name))


def _reader(name: str, content_type: str) -> FileReader | None:
    """Return the reader for the end of a name, else for a type; any text without a reader is plain text."""
    reader = reader_of(name)
    if reader is None and content_type not in _ANY_TYPE:
        reader = reader_of(f"x{_suffix(content_type)}")
    if reader is None and content_type.startswith("text/"):
        reader = next(reader for format_name, reader in FILE_READERS.items() if format_name == "text")
    return reader


def _suffix(content_type: str) -> str:
    """Return how the names of files of a type end, which does not depend on the machine; "" for an unknown type."""
    return _SUFFIXES.get(content_type) or _TYPES.guess_extension(content_type) or ""


def _unpacked(content: bytes, options: Mapping[str, str], depth: int) -> Items:
    """Yield what is in the files of a zip file."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        yield UnreadPart(reason=f"cannot be unpacked: {error}")
        return
    if depth > _MAX_ZIP_DEPTH or sum(entry.file_size for entry in entries) > _MAX_UNPACKED_BYTES:
        limits = f"{_MAX_ZIP_DEPTH} levels and {_MAX_UNPACKED_BYTES:,} bytes"
        yield UnreadPart(reason=f"unpacks to more than {limits}; save it as a file, and unpack it")
        return
    for entry in sorted(entries, key=lambda entry: entry.filename):
        name = entry.filename
        try:
            attachment = Attachment(name, archive.read(entry))
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError, ValueError) as error:
            yield UnreadPart(part=name, reason=f"cannot be unpacked: {error}")
            continue
        for item in _items(name, attachment, options, depth):
            yield within(item, name, name, name)


def attached_content(file: FileContent, key: str) -> FileContent | None:
    """Return the file that a document was attached as to another file; None if it was not attached as a file.

    Parameters
    ----------
    file : FileContent
        The file that it was attached to, such as a mail.
    key : str
        The :attr:`~FileDocument.key` of the document.
    """
    reader = reader_of(file.name)
    token = _asks_for_contents.set(True)
    try:
        documents = [] if reader is None else read_documents(reader, file.data, {})[0]
    finally:
        _asks_for_contents.reset(token)
    return next((document.content for document in documents if document.key == key), None)
