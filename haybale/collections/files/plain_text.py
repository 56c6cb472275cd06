"""Read text files: a paragraph ends at a blank line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FileReader, paragraphs_of
from haybale.collections.unread import UnreadPart


class PlainText(FileReader):
    """Reader of text files."""

    name = "text"
    suffixes = (".txt", ".text")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        decoded = decode_text(data)
        yield from decoded.unread
        yield FileDocument([Part(text) for text in paragraphs_of(decoded.text)])
