"""Read HTML pages and web archives: all text that is seen, or the main text that trafilatura finds."""

from __future__ import annotations

import email
import email.policy
import plistlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.blocks import parts_of
from haybale.collections.files.encodings import DecodedText, decode_declared, decode_text
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import EXTRA, FileReader, Unreadable
from haybale.collections.files.page_text import PageText
from haybale.collections.unread import UnreadPart
from haybale.extras import import_optional

_METADATA_FIELDS = ("author", "date", "sitename", "description", "url")
_METADATA_NAMES = {  # by the names and properties of meta elements
    "author": "author", "dc.creator": "author", "article:author": "author",
    "date": "date", "dc.date": "date", "dcterms.created": "date", "article:published_time": "date",
    "og:site_name": "sitename", "description": "description", "og:description": "description", "og:url": "url",
}  # fmt: skip
_BYTES_WITH_CHARSET = 4096  # at the begin of a page, where its character set is declared
_CHARSET = re.compile(rb"""<meta[^>]*charset\s*=\s*["']?\s*([\w:.-]+)|<\?xml[^>]*encoding\s*=\s*["']([\w:.-]+)""", re.I)


class HTML(FileReader):
    """Reader of HTML pages, and of web archives (``.mhtml`` of Chromium, ``.webarchive`` of Safari).

    The option ``html="main-text"`` leaves out what trafilatura takes for menus, advertisements and the like.
    """

    name = "html"
    suffixes = (".html", ".htm", ".xhtml", ".mht", ".mhtml", ".webarchive")
    packages = ("lxml",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        page = _page_of(data)
        if options.get("html") == "main-text":
            yield _main_text_document(page)
        else:
            yield from read_page(page)


def read_page(page: bytes | str) -> Iterator[FileDocument | UnreadPart]:
    """Yield a page as a document, and what was left out of it."""
    if isinstance(page, bytes):
        decoded = _decoded_page(page)
        yield from decoded.unread
        page = decoded.text
    text = PageText(page)
    parts, _ = parts_of(text.blocks)
    yield FileDocument(parts, text.title, _metadata(text.root))
    if text.outside:
        reason = f"{len(text.outside.split()):,} words, such as {text.outside[:60]!r}"
        yield UnreadPart(part="outside of the main element", reason=reason)
    if text.is_cut_off:
        yield UnreadPart(part="end", reason="expected elements that are not nested that deeply; simplify the page")


def _decoded_page(data: bytes) -> DecodedText:
    r"""Return a page in the character set that it declares, or that :func:`decode_text` recognises.

    >>> _decoded_page('<meta charset="koi8-r">Договор'.encode("koi8-r")).text
    '<meta charset="koi8-r">Договор'
    """
    declared = _CHARSET.search(data[:_BYTES_WITH_CHARSET])
    if declared is None or data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:3] == b"\xef\xbb\xbf":
        return decode_text(data)
    name = (declared[1] or declared[2]).decode().lower()
    # A declaration that can be read is not in UTF-16.
    return decode_declared(data, "utf-8" if name.startswith("utf-16") else name)


def _metadata(root: Any) -> dict[str, Any]:
    """Return author, date, name of the site, description and address, as far as the page has them."""
    metadata: dict[str, Any] = {}
    for element in root.iter("meta"):
        name = _METADATA_NAMES.get((element.get("name") or element.get("property") or "").lower())
        content = (element.get("content") or "").strip()
        if name and content:
            metadata.setdefault(name, content)
    return {name: metadata[name] for name in _METADATA_FIELDS if name in metadata}


def _main_text_document(page: bytes | str) -> FileDocument:
    """Return the main text of a page, as trafilatura finds it, as a document."""
    trafilatura = import_optional("trafilatura", EXTRA)
    document = trafilatura.bare_extraction(
        page, with_metadata=True, include_comments=False, include_tables=True, include_formatting=True
    )
    parts = [] if document is None or document.body is None else _parts(document.body)
    if not parts:  # a short page without paragraphs
        text = trafilatura.html2txt(page).strip()
        parts = [Part(text)] if text else []
    metadata = {name: value for name in _METADATA_FIELDS if (value := getattr(document, name, None))}
    return FileDocument(parts, (document and document.title) or "", metadata)


def _parts(body: Any) -> list[Part]:
    """Return the paragraphs of a main text in trafilatura's XML, each with the heading before it."""
    parts: list[Part] = []
    heading = None
    for element in body:
        text = " ".join(" ".join(element.itertext()).split())
        if element.tag == "head" and text:
            heading = text
            parts.append(Part("", heading=heading))
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
