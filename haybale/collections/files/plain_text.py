"""Read text files: a paragraph ends at a blank line; bibliographic records are read as what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FileReader, Unreadable, paragraphs_of
from haybale.collections.files.references import FORMATS, documents_of_references, format_of
from haybale.collections.unread import UnreadPart


class PlainText(FileReader):
    """Reader of text files, and of ``.txt`` files with RIS, PubMed's or other bibliographic records."""

    name = "text"
    suffixes = (".txt", ".text")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        decoded = decode_text(data)
        yield from decoded.unread
        name = format_of(decoded.text)
        if name is not None:
            with suppress(Unreadable):  # a text that only begins like records
                yield from list(documents_of_references(FORMATS[name].records(decoded.text), options))
                return
        yield FileDocument([Part(text) for text in paragraphs_of(decoded.text)])
