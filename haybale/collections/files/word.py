"""Read Word documents with python-docx: paragraphs and tables, with their headings."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Part
from haybale.extras import import_optional


class Word(FileReader):
    """Reader of ``.docx`` files."""

    name = "docx"
    suffixes = (".docx",)
    packages = ("docx",)

    def read(self, data: bytes, columns: Mapping[str, str]) -> Iterator[FileDocument]:
        docx = import_optional("docx", EXTRA)
        document = docx.Document(io.BytesIO(data))
        title, heading, parts = "", None, []
        for block in document.iter_inner_content():
            if hasattr(block, "rows"):
                rows = (" | ".join(cell.text.strip() for cell in row.cells) for row in block.rows)
                parts += [Part(text, heading=heading) for text in rows if text.strip(" |")]
                continue
            text, style = block.text.strip(), (block.style.name or "") if block.style is not None else ""
            if text and style == "Title":
                title = title or text
            elif text and style.startswith("Heading"):
                heading = text
            elif text:
                parts.append(Part(text, heading=heading))
        about = document.core_properties
        metadata = {"author": about.author, "date": about.created, "subject": about.subject, "keywords": about.keywords}
        yield FileDocument(parts, about.title or title, {name: value for name, value in metadata.items() if value})
