"""Read HTML pages and web archives with trafilatura: the main text with its headings, without menus."""

from __future__ import annotations

import email
import email.policy
import plistlib
from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Part, Unreadable
from haybale.extras import import_optional

_METADATA_FIELDS = ("author", "date", "sitename", "description", "url")


class HTML(FileReader):
    """Reader of HTML pages, and of web archives (``.mhtml`` of Chromium, ``.webarchive`` of Safari)."""

    name = "html"
    suffixes = (".html", ".htm", ".xhtml", ".mht", ".mhtml", ".webarchive")
    packages = ("trafilatura",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        yield html_document(_page_of(data))


def html_document(page: bytes | str) -> FileDocument:
    """Return the main text of a page as a document."""
    trafilatura = import_optional("trafilatura", EXTRA)
    document = trafilatura.bare_extraction(
        page, with_metadata=True, include_comments=False, include_tables=True, include_formatting=True
    )
    parts = [] if document is None or document.body is None else _parts(document.body)
    if not parts:  # a short page without paragraphs
        text = trafilatura.html2txt(page).strip()
        parts = [Part(text)] if text else []
    if not parts:
        raise Unreadable("expected a page with text, found none")
    metadata = {name: value for name in _METADATA_FIELDS if (value := getattr(document, name, None))}
    return FileDocument(parts, (document and document.title) or "", metadata)


def _parts(body: Any) -> list[Part]:
    """Return the paragraphs of a main text in trafilatura's XML, each with the heading before it."""
    parts, heading = [], None
    for element in body:
        text = " ".join(" ".join(element.itertext()).split())
        if element.tag == "head":
            heading = text or heading
        elif text:
            parts.append(Part(text, heading=heading))
    return parts


def _page_of(data: bytes) -> bytes | str:
    """Return the page in a web archive, or the data as they are."""
    if data[:6] == b"bplist" or b"<plist" in data[:400]:
        return bytes(plistlib.loads(data)["WebMainResource"]["WebResourceData"])
    if b"mime-version:" in data[:2000].lower():
        message = email.message_from_bytes(data, policy=email.policy.default)
        page = next((part for part in message.walk() if part.get_content_type() == "text/html"), None)
        if page is None:
            raise Unreadable("expected a page in the web archive, found none")
        return str(page.get_content())
    return data
