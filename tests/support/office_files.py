"""Write Word and OpenDocument files from the XML of their bodies."""

from __future__ import annotations

import io
import zipfile
from xml.sax.saxutils import escape

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
WORD_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{name}"'
    for prefix, name in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "r": _OFFICE,
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "o": "urn:schemas-microsoft-com:office:office",
        "x": "urn:unknown",
    }.items()
)
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns"
OPEN_DOCUMENT_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{_OPEN_DOCUMENT}:{name}:1.0"'
    for prefix, name in {
        "office": "office", "text": "text", "table": "table", "draw": "drawing", "style": "style", "meta": "meta",
        "svg": "svg-compatible", "form": "form", "script": "script",
    }.items()
) + ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:x="urn:unknown"'  # fmt: skip
_STYLES = (
    '<w:style w:styleId="H"><w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>'
    '<w:style w:styleId="Own"><w:name w:val="My heading"/><w:basedOn w:val="H"/></w:style>'
    '<w:style w:styleId="T"><w:name w:val="Title"/></w:style>'
    '<w:style w:styleId="Gone"><w:name w:val="Gone"/><w:rPr><w:vanish/></w:rPr></w:style>'
)


def packed(files: dict[str, str | bytes]) -> bytes:
    """Return a zip file."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def relations(**targets: str) -> str:
    """Return the references of a file: the kind of each target with its id, such as ``header_1="header1.xml"``."""
    entries = "".join(
        f'<Relationship Id="{id}" Type="{_OFFICE}/{id.partition("_")[0]}" Target="{target}"/>'
        for id, target in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{entries}</Relationships>'


def word_file(
    body: str,
    *,
    footnotes: str = "",
    endnotes: str = "",
    comments: str = "",
    headers: tuple[str, ...] = (),
    title: str = "",
    more: dict[str, str | bytes] | None = None,
    links: dict[str, str] | None = None,
) -> bytes:
    """Return a Word file; ``more`` are further files, and ``links`` the references to them from the main one."""
    targets = {"styles": "styles.xml", "footnotes": "footnotes.xml", "endnotes": "endnotes.xml"}
    targets |= {f"header_{n}": f"header{n}.xml" for n in range(len(headers))} | (links or {})
    targets |= {"comments": "comments.xml"} if comments else {}
    references = "".join(f'<w:headerReference w:type="default" r:id="header_{n}"/>' for n in range(len(headers)))
    files: dict[str, str | bytes] = {
        "_rels/.rels": relations(officeDocument="word/document.xml", **{"core-properties": "docProps/core.xml"}),
        "docProps/core.xml": f'<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></p>',
        "word/document.xml": _root("document", f"<w:body>{body}<w:sectPr>{references}</w:sectPr></w:body>"),
        "word/_rels/document.xml.rels": relations(**targets),
        "word/styles.xml": _root("styles", _STYLES),
        "word/footnotes.xml": _root("footnotes", footnotes),
        "word/endnotes.xml": _root("endnotes", endnotes),
        "word/comments.xml": _root("comments", comments),
    }
    files |= {f"word/header{n}.xml": _root("hdr", content) for n, content in enumerate(headers)}
    return packed(files | (more or {}))


def _root(name: str, content: str) -> str:
    return f"<w:{name} {WORD_NAMESPACES}>{content}</w:{name}>"


def open_document_file(
    body: str, *, styles: str = "", pages: str = "", meta: str = "", more: dict[str, str | bytes] | None = None
) -> bytes:
    """Return an OpenDocument text; ``pages`` is the content of a master page."""
    files: dict[str, str | bytes] = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": _office(
            "document-content",
            f"<office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:text>{body}</office:text></office:body>",
        ),
        "styles.xml": _office(
            "document-styles",
            f"<office:master-styles><style:master-page>{pages}</style:master-page></office:master-styles>",
        ),
        "meta.xml": _office("document-meta", f"<office:meta>{meta}</office:meta>"),
    }
    return packed(files | (more or {}))


def _office(name: str, content: str) -> str:
    return f"<office:{name} {OPEN_DOCUMENT_NAMESPACES}>{content}</office:{name}>"
