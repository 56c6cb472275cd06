"""Read text files: a paragraph ends at a blank line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import FileDocument, FileReader, Part, decoded, paragraphs_of


class PlainText(FileReader):
    """Reader of text files."""

    name = "text"
    suffixes = (".txt", ".text")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        yield FileDocument([Part(text) for text in paragraphs_of(decoded(data))])
