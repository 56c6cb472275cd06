"""Read a document of an office program, in whatever format it is, from its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from haybale.collections.files.blocks import TextBlock, parts_of
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import Unreadable
from haybale.collections.unread import UnreadPart


class OfficeDocument(Protocol):
    """The content of a document."""

    @property
    def n_pictures(self) -> int:
        """Number of pictures in the document."""

    def blocks(self) -> Iterable[TextBlock]:
        """Return the main text with the notes in it."""

    def page_texts(self) -> Iterable[str]:
        """Return the texts of page headers and footers, each once."""

    def metadata(self) -> dict[str, Any]:
        """Return what the file says of the document."""

    def unread(self) -> Iterable[UnreadPart]:
        """Return what was left out of the blocks and of the texts of pages."""


def read_office_document(document: OfficeDocument) -> Iterator[FileDocument | UnreadPart]:
    """Yield what was left out, and the document; raise :class:`.Unreadable` for one that has pictures and no text."""
    parts, title = parts_of(document.blocks())
    parts += [Part(text) for text in document.page_texts()]
    metadata = document.metadata()
    yield from document.unread()
    if not parts and document.n_pictures:
        raise Unreadable(f"no text, but {document.n_pictures:,} pictures; recognise their text first (OCR)")
    yield FileDocument(parts, metadata.pop("title", "") or title, metadata)
