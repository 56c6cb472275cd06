"""Read OpenDocument texts with odfpy: paragraphs with their headings."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Part
from haybale.extras import import_optional

_METADATA_NAMES = {"title": "title", "creator": "author", "date": "date", "subject": "subject"}


class OpenDocument(FileReader):
    """Reader of ``.odt`` files."""

    name = "odt"
    suffixes = (".odt",)
    packages = ("odf",)

    def read(self, data: bytes, columns: Mapping[str, str]) -> Iterator[FileDocument]:
        opened = import_optional("odf.opendocument", EXTRA)
        as_text = import_optional("odf.teletype", EXTRA).extractText
        document = opened.load(io.BytesIO(data))
        heading, parts = None, []
        pending = list(reversed(document.text.childNodes))
        while pending:
            node = pending.pop()
            kind = getattr(node, "qname", (None, None))[1]
            if kind in ("h", "p"):
                text = as_text(node).strip()
                if text and kind == "h":
                    heading = text
                elif text:
                    parts.append(Part(text, heading=heading))
            else:  # lists, tables, sections
                pending += reversed(getattr(node, "childNodes", []))
        metadata = {}
        for node in document.meta.childNodes:
            name, text = _METADATA_NAMES.get(node.qname[1]), as_text(node).strip()
            if name and text:
                metadata[name] = text
        yield FileDocument(parts, metadata.pop("title", ""), metadata)
