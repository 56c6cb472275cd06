"""Read Markdown: headings, paragraphs, and the metadata in YAML front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FileReader, paragraphs_of
from haybale.collections.files.front_matter import read_front_matter
from haybale.collections.files.markdown_marks import FENCED_CODE, without_marks
from haybale.collections.unread import UnreadPart

_HEADING = re.compile(r"^(?:#{1,6}[ \t]+(?P<marked>.+?)[ \t#]*|(?P<underlined>[^\n]+)\n(?:=+|-{2,})[ \t]*)$", re.M)


class Markdown(FileReader):
    """Reader of Markdown."""

    name = "markdown"
    suffixes = (".md", ".markdown")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        decoded = decode_text(data)
        yield from decoded.unread
        text = decoded.text
        front_matter = read_front_matter(text)
        body = text[front_matter.end :]
        code = [match.span() for match in FENCED_CODE.finditer(body)]  # a line that begins with # there is no heading
        headings = [m for m in _HEADING.finditer(body) if not any(a <= m.start() < b for a, b in code)]
        ends = [0, *(match.end() for match in headings)]
        begins = [*(match.start() for match in headings), len(body)]
        names = [None, *(without_marks((match["marked"] or match["underlined"]).strip()) for match in headings)]
        parts = [Part(paragraph) for paragraph in paragraphs_of(front_matter.text)]
        for name, end, begin in zip(names, ends, begins, strict=True):
            parts += [Part("", heading=name)] if name else []
            parts += [Part(paragraph, heading=name) for paragraph in paragraphs_of(without_marks(body[end:begin]))]
        metadata = front_matter.entries
        title = metadata.pop("title") if isinstance(metadata.get("title"), str) else next(filter(None, names), "")
        yield FileDocument(parts, title, metadata)
        if front_matter.unread is not None:
            yield front_matter.unread
