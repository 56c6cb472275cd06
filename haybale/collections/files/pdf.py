"""Read PDF files with pypdf: paragraphs with their pages."""

from __future__ import annotations

import io
import logging
import re
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Part, Unreadable
from haybale.extras import import_optional

_HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010]\n(?=[a-zà-öø-ÿ])")
_SHORT_LINE_SHARE = 0.8  # a line below this share of the usual length may end a paragraph


class PDF(FileReader):
    """Reader of PDF files. A scan without text is not readable; recognise its text first (OCR)."""

    name = "pdf"
    suffixes = (".pdf",)
    packages = ("pypdf",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        pypdf = import_optional("pypdf", EXTRA)
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it reports what it repairs
        pdf = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if pdf.is_encrypted and not pdf.decrypt(""):
            raise Unreadable("encrypted; save it without a password")
        pages = [page.extract_text() or "" for page in pdf.pages]
        about = pdf.metadata
        parts = [Part(text, page=number) for number, page in enumerate(pages, 1) for text in page_paragraphs(page)]
        if not parts:
            raise Unreadable(f"no text on {len(pages)} pages, probably a scan; recognise its text first (OCR)")
        yield FileDocument(parts, str((about and about.title) or ""), _metadata(about) | {"pages": len(pages)})


def page_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a page, each on one line, with words joined that were hyphenated at a line break.

    A paragraph ends at a blank line, or at a line that ends with a full stop and is shorter than most.

    >>> page_paragraphs("The lessee shall return the pre-\\nmises.\\n\\nThe second paragraph has\\ntwo lines.")
    ['The lessee shall return the premises.', 'The second paragraph has two lines.']
    """
    paragraphs: list[str] = []
    for block in re.split(r"\n[ \t]*\n", _HYPHENATED.sub("", text)):
        lines = [line.strip() for line in block.split("\n") if line.strip()]
        usual = statistics.quantiles(map(len, lines), n=4)[2] if len(lines) > 1 else 0.0
        current: list[str] = []
        for line in lines:
            current.append(line)
            if line.endswith((".", "!", "?", ":", "”", '"')) and len(line) < _SHORT_LINE_SHARE * usual:
                paragraphs.append(" ".join(current))
                current = []
        if current:
            paragraphs.append(" ".join(current))
    return paragraphs


def _metadata(about: Any) -> dict[str, Any]:
    """Return author, subject, keywords and dates, as far as the file has them."""
    metadata: dict[str, Any] = {}
    for name in ("author", "subject", "keywords", "creation_date"):
        try:
            value = getattr(about, name, None)
        except ValueError:  # a date that is none
            continue
        if value:
            metadata["date" if name == "creation_date" else name] = value if name == "creation_date" else str(value)
    return metadata
