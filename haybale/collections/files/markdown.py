"""Read Markdown: headings, paragraphs, and the metadata in YAML front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.file_reader import FileDocument, FileReader, Part, decoded, paragraphs_of

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)\n", re.S)
_HEADING = re.compile(r"^(?:#{1,6}[ \t]+(?P<marked>.+?)[ \t#]*|(?P<underlined>[^\n]+)\n(?:=+|-{2,})[ \t]*)$", re.M)
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)


class Markdown(FileReader):
    """Reader of Markdown."""

    name = "markdown"
    suffixes = (".md", ".markdown")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        text = decoded(data)
        metadata, start = _front_matter(text)
        body = text[start:]
        code = [match.span() for match in _CODE.finditer(body)]  # a line that begins with # there is no heading
        headings = [m for m in _HEADING.finditer(body) if not any(a <= m.start() < b for a, b in code)]
        ends = [0, *(match.end() for match in headings)]
        begins = [*(match.start() for match in headings), len(body)]
        names = [None, *((match["marked"] or match["underlined"]).strip() for match in headings)]
        parts = [
            Part(paragraph, heading=name)
            for name, end, begin in zip(names, ends, begins, strict=True)
            for paragraph in paragraphs_of(body[end:begin])
        ]
        title = str(metadata.pop("title", "") or next(filter(None, names), ""))
        yield FileDocument(parts, title, metadata)


def _front_matter(text: str) -> tuple[dict[str, Any], int]:
    """Return the entries of the front matter that are single values or lists of texts, and where the body begins."""
    match = _FRONT_MATTER.match(text)
    if match is None or "&" in match[1]:  # no YAML anchors, which could expand to any size
        return {}, 0 if match is None else match.end()
    import yaml

    try:
        entries = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError):
        return {}, 0
    return {str(name): value for name, value in entries.items()} if isinstance(entries, dict) else {}, match.end()
