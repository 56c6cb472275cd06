"""Read Rich Text Format with striprtf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Part, Unreadable
from haybale.extras import import_optional

_ABOUT = re.compile(r"\{\\(title|author|subject|keywords)\s+([^{}]*)\}")


class RichText(FileReader):
    """Reader of ``.rtf`` files."""

    name = "rtf"
    suffixes = (".rtf",)
    packages = ("striprtf",)

    def read(self, data: bytes, columns: Mapping[str, str]) -> Iterator[FileDocument]:
        as_text = import_optional("striprtf.striprtf", EXTRA).rtf_to_text
        source = data.decode("latin-1")
        if not source.lstrip().startswith("{\\rtf"):
            raise Unreadable("expected Rich Text Format, found other data")
        text = as_text(source, errors="replace")
        about = {name: as_text("{\\rtf1 " + value + "}").strip() for name, value in _ABOUT.findall(source)}
        parts = [Part(line.strip()) for line in text.split("\n") if line.strip()]
        yield FileDocument(parts, about.pop("title", ""), {name: value for name, value in about.items() if value})
