"""Write texts as a Word file: WordprocessingML (ISO/IEC 29500) in a zip file, with what reports need of it.

Headings are real headings, links are links, and marks are highlighted. Nothing in the file leads elsewhere but its
links, and there are no fields, macros or embedded files.
"""

from __future__ import annotations

import io
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

from haybale.drawing import clean

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml"
MEDIA_TYPE = f"{_MAIN}.document"
MAX_LINK_CHARACTERS = 2000  # of an address; Word refuses files with longer ones

Run = tuple[str, bool]  # a text, and whether it is highlighted

_CONTENT_TYPES = (
    f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_MAIN}.document.main+xml"/>'
    f'<Override PartName="/word/styles.xml" ContentType="{_MAIN}.styles+xml"/>'
    '<Override PartName="/docProps/core.xml" '
    'ContentType="application/vnd.openxmlformats-package.core-properties+xml"/></Types>'
)
_ROOT_RELATIONS = (
    f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="document" Type="{_RELATIONS}/officeDocument" Target="word/document.xml"/>'
    f'<Relationship Id="core" Type="{_PACKAGE}/relationships/metadata/core-properties" Target="docProps/core.xml"/>'
    "</Relationships>"
)


def _style(style_id: str, name: str, more: str, based_on: str = "Normal") -> str:
    return (
        f'<w:style w:type="paragraph" w:styleId="{style_id}"><w:name w:val="{name}"/><w:basedOn w:val="{based_on}"/>'
        f'<w:next w:val="Normal"/><w:qFormat/>{more}</w:style>'
    )


def _heading_style(level: int, half_points: int) -> str:
    return _style(
        f"Heading{level}",
        f"heading {level}",
        f'<w:pPr><w:keepNext/><w:spacing w:before="240" w:after="80"/><w:outlineLvl w:val="{level - 1}"/></w:pPr>'
        f'<w:rPr><w:b/><w:sz w:val="{half_points}"/></w:rPr>',
    )


_STYLES = (
    f'{_HEAD}<w:styles xmlns:w="{_W}"><w:docDefaults><w:rPrDefault><w:rPr>'
    '<w:rFonts w:ascii="Calibri" w:hAnsi="Calibri" w:cs="Calibri"/><w:sz w:val="22"/></w:rPr></w:rPrDefault>'
    '<w:pPrDefault><w:pPr><w:spacing w:after="120"/></w:pPr></w:pPrDefault></w:docDefaults>'
    '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/><w:qFormat/></w:style>'
    '<w:style w:type="character" w:styleId="Hyperlink"><w:name w:val="Hyperlink"/>'
    '<w:rPr><w:color w:val="0563C1"/><w:u w:val="single"/></w:rPr></w:style>'
    + _style("Title", "Title", '<w:rPr><w:b/><w:sz w:val="40"/></w:rPr>')
    + _heading_style(1, 32)
    + _heading_style(2, 26)
    + _style("Quote", "Quote", '<w:pPr><w:ind w:left="360" w:right="360"/></w:pPr>')
    + "</w:styles>"
)


class WordDocument:
    """A Word file that is written from top to bottom.

    Parameters
    ----------
    title : str
        The first line, and the title in the properties of the file.

    Examples
    --------
    >>> document = WordDocument("Two hits")
    >>> document.heading("1. Dogs", 2)
    >>> document.paragraph([("Dogs", True), (" bark.", False)], style="Quote")
    >>> document.to_bytes()[:2]
    b'PK'
    """

    def __init__(self, title: str) -> None:
        self.title = _plain(title)
        self._body: list[str] = []
        self._links: dict[str, str] = {}  # the id of each address
        self._add("Title", _runs([(title, False)]), title)

    def heading(self, text: str, level: int = 1) -> None:
        """Add a heading of the level 1 or 2."""
        self._add(f"Heading{level}", _runs([(" ".join(text.split()), False)]), text)

    def paragraph(self, text: str | Sequence[Run], style: str = "Normal") -> None:
        """Add a paragraph of a text, or of runs, in the style ``"Normal"`` or ``"Quote"``; line ends stay."""
        runs = [(text, False)] if isinstance(text, str) else list(text)
        self._add(style, _runs(runs), "".join(part for part, _ in runs))

    def snippet(self, location: str, runs: Sequence[Run]) -> None:
        """Add a passage, after its place in the document, which may be empty."""
        head = [(f"{location[:1].upper()}{location[1:]}: ", False)] if location else []
        self.paragraph([*head, *runs], style="Quote")

    def link(self, text: str, address: str) -> None:
        """Add a paragraph with a link; the text alone, if the address is none of the web or of mail, or too long."""
        if not address.lower().startswith(("http://", "https://", "mailto:")) or len(address) > MAX_LINK_CHARACTERS:
            self.paragraph(text)
            return
        link_id = self._links.setdefault(address, f"link{len(self._links) + 1}")
        run = _run(text, '<w:rStyle w:val="Hyperlink"/>')
        self._add("Normal", f'<w:hyperlink r:id="{link_id}">{run}</w:hyperlink>', text)

    def values(self, values: Iterable[tuple[str, str]]) -> None:
        """Add a paragraph with a line for each name and its value; empty values are left out."""
        lines = [_run(f"{name}: ", "<w:b/>") + _run(value) for name, value in values if value.strip()]
        if lines:
            self._add("Normal", "<w:r><w:br/></w:r>".join(lines), "")

    def _add(self, style: str, content: str, text: str) -> None:
        direction = "<w:bidi/>" if _is_right_to_left(text) else ""
        self._body.append(f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{direction}</w:pPr>{content}</w:p>')

    def to_bytes(self) -> bytes:
        """Return the file."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        core = (
            f'{_HEAD}<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
            'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/" '
            'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
            f"<dc:title>{escape(self.title)}</dc:title><dc:creator>haybale</dc:creator>"
            f'<dcterms:created xsi:type="dcterms:W3CDTF">{now}</dcterms:created></cp:coreProperties>'
        )
        document = (
            f'{_HEAD}<w:document xmlns:w="{_W}" xmlns:r="{_RELATIONS}"><w:body>{"".join(self._body)}'
            '<w:sectPr><w:pgSz w:w="11906" w:h="16838"/>'
            '<w:pgMar w:top="1134" w:right="1134" w:bottom="1134" w:left="1134" w:header="709" w:footer="709" '
            'w:gutter="0"/></w:sectPr></w:body></w:document>'
        )
        links = "".join(
            f'<Relationship Id="{link_id}" Type="{_RELATIONS}/hyperlink" Target={quoteattr(_plain(address))} '
            'TargetMode="External"/>'
            for address, link_id in self._links.items()
        )
        relations = (
            f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
            f'<Relationship Id="styles" Type="{_RELATIONS}/styles" Target="styles.xml"/>{links}</Relationships>'
        )
        parts = {
            "[Content_Types].xml": _CONTENT_TYPES,
            "_rels/.rels": _ROOT_RELATIONS,
            "docProps/core.xml": core,
            "word/document.xml": document,
            "word/_rels/document.xml.rels": relations,
            "word/styles.xml": _STYLES,
        }
        with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in parts.items():
                archive.writestr(name, part)
        return out.getvalue()


def _runs(runs: Iterable[Run]) -> str:
    return "".join(_run(text, '<w:highlight w:val="yellow"/>' if is_marked else "") for text, is_marked in runs)


def _run(text: str, properties: str = "") -> str:
    """Return a run with a text, whose line ends are line breaks."""
    direction = "<w:rtl/>" if _is_right_to_left(text) else ""
    properties = f"<w:rPr>{properties}{direction}</w:rPr>" if properties or direction else ""
    lines = _plain(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    content = "<w:br/>".join(f'<w:t xml:space="preserve">{escape(line)}</w:t>' for line in lines)
    return f"<w:r>{properties}{content}</w:r>"


def _plain(text: str) -> str:
    """Return a text without what XML cannot have, such as control characters and halves of surrogate pairs."""
    kept = clean(text).encode("utf-8", "replace").decode("utf-8")
    return "".join(sign for sign in kept if sign in "\t\n\r" or (ord(sign) >= 32 and sign not in "\ufffe\uffff"))


def _is_right_to_left(text: str) -> bool:
    """Return whether the first letter of a text is of a script that is written from right to left.

    >>> _is_right_to_left("(שלום)"), _is_right_to_left("1. Dogs")
    (True, False)
    """
    for sign in text:
        if (kind := unicodedata.bidirectional(sign)) in ("L", "R", "AL"):
            return kind != "L"
    return False
