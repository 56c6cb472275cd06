"""Read Word documents as they look when all changes are accepted: paragraphs, tables, boxes, notes, page headers.

The XML is walked by the names of its elements without namespaces, so that both kinds of Office Open XML, transitional
and strict, are read. Elements that are not known are walked, too: text is left out only where it is known not to be
seen, and what is left out although the file has it is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal

from haybale.collections.files.blocks import BlockStyle, OpenParagraph, TextBlock, row_of
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader, Unreadable, no_reader, read_documents, reader_of
from haybale.collections.files.office_document import read_office_document
from haybale.collections.files.packed_xml import Element, PackedXML, Relation, child_of, elements, name_of, value_of
from haybale.collections.files.symbol_font import seen_symbols, symbols_of
from haybale.collections.files.word_numbering import WordNumbering
from haybale.collections.unread import UnreadPart

# Elements whose text is not in the final view, and properties, which have none.
_UNSEEN = frozenset((
    "del", "moveFrom", "delText", "instrText", "delInstrText",
    "rPr", "pPr", "tblPr", "tblPrEx", "tblGrid", "trPr", "tcPr", "sectPr", "sdtPr", "sdtEndPr", "ctrlPr",
))  # fmt: skip
_CHARACTERS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_OF_PARAGRAPHS = ("p", "r", "t", "oMath", "oMathPara")  # outside a paragraph, the others are paragraphs themselves
_METADATA_NAMES = {
    "title": "title",
    "creator": "author",
    "created": "date",
    "subject": "subject",
    "keywords": "keywords",
}


class Word(FileReader):
    """Reader of Word documents and templates."""

    name = "docx"
    suffixes = (".docx", ".docm", ".dotx", ".dotm")
    packages = ("lxml",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from read_office_document(_WordDocument(PackedXML(data)))


class _WordDocument:
    """A document: its main text with the notes in it, page headers and footers, and what was left out."""

    def __init__(self, package: PackedXML) -> None:
        self.package = package
        self._of_package = package.relations("")
        main = next((link.target for link in self._of_package.values() if link.kind == "officeDocument"), None)
        root = None if main is None else package.root(main)
        if main is None or root is None:
            raise Unreadable("expected a Word document, found none in the file")
        self._root, self._links = root, package.relations(main)
        self.styles = _WordStyles(self._root_of("styles"))
        self.numbering = WordNumbering(self._root_of("numbering"))
        self.notes = {
            (kind, value_of(note, "id")): _WordStory(self, note, package.relations(link.target))
            for kind in ("footnote", "endnote")
            for link in self._links.values()
            if link.kind == f"{kind}s" and (notes := package.root(link.target)) is not None
            for note in elements(notes)
        }
        self.left_out: list[UnreadPart] = []
        self.n_hidden_characters = 0

    @property
    def n_pictures(self) -> int:
        return sum(1 for _ in self._root.iter("{*}blip", "{*}imagedata"))

    def _root_of(self, kind: str) -> Element | None:
        """Return the root of the first file that the main one refers to for something."""
        return next((self.package.root(link.target) for link in self._links.values() if link.kind == kind), None)

    def blocks(self) -> Iterator[TextBlock]:
        """Yield the main text, with its notes, in reading order."""
        return _WordStory(self, self._root, self._links).blocks()

    def page_texts(self) -> list[str]:
        """Return the paragraphs of the headers and footers of pages, each once."""
        texts: dict[str, None] = {}
        references = self._root.iter("{*}headerReference", "{*}footerReference")
        for target in dict.fromkeys(
            self._links[id].target for ref in references if (id := value_of(ref, "id")) in self._links
        ):
            root = self.package.root(target)
            blocks = () if root is None else _WordStory(self, root, self.package.relations(target)).blocks()
            texts.update(dict.fromkeys(text for block in blocks if (text := block.text.strip())))
        return list(texts)

    def metadata(self) -> dict[str, Any]:
        """Return title, author, date, subject and keywords, as far as the file has them."""
        properties = next((link.target for link in self._of_package.values() if link.kind == "core-properties"), "")
        root, metadata = self.package.root(properties), dict[str, Any]()
        for element in () if root is None else elements(root):
            name, text = _METADATA_NAMES.get(name_of(element)), (element.text or "").strip()
            if name == "date":
                with suppress(ValueError):
                    metadata[name] = datetime.fromisoformat(text)
            elif name and text:
                metadata[name] = text
        return metadata

    def unread(self) -> Iterator[UnreadPart]:
        """Yield what was left out although the file has it."""
        yield from self.left_out
        comments = self._root_of("comments")
        if n_comments := 0 if comments is None else len(list(elements(comments))):
            yield UnreadPart(part="comments", reason=f"{n_comments:,} comments, which are no part of the final view")
        if n := self.n_hidden_characters:
            yield UnreadPart(part="hidden text", reason=f"{n:,} characters, which are no part of the final view")


class _WordStory:
    """A continuous text, such as the main one, a note or a page header, and the references of its file."""

    def __init__(self, document: _WordDocument, root: Element, links: Mapping[str, Relation]) -> None:
        self._document, self._root, self._links = document, root, links
        self._fields: list[Literal["code", "result"]] = []  # the fields that are open here
        self._follows_fields = _has_closed_fields(root)
        self._style: str | None = None  # of the paragraph that is walked
        self._was_read = False

    def blocks(self) -> Iterator[TextBlock]:
        """Yield the blocks in reading order."""
        return self._blocks(elements(self._root))

    def blocks_once(self) -> Iterator[TextBlock]:
        """Yield the blocks at the first call only."""
        was_read, self._was_read = self._was_read, True
        return iter(()) if was_read else self.blocks()

    def _blocks(self, siblings: Iterable[Element]) -> Iterator[TextBlock]:
        line = OpenParagraph()  # a paragraph whose mark was deleted is continued by the next one
        for element in siblings:
            name = name_of(element)
            if name in _OF_PARAGRAPHS:
                style = self._walk_paragraph(element, line)
                if not _has_deleted_end(element):
                    yield from line.blocks(style)
                    line = OpenParagraph()
            elif name == "tbl":
                for row in _within(element, "tr"):
                    if child_of(row, "trPr", "del") is None:
                        cells = (cell for cell in _within(row, "tc") if child_of(cell, "tcPr", "cellDel") is None)
                        yield from row_of([list(self._blocks(elements(cell))) for cell in cells])
            elif name == "AlternateContent":
                branches = (list(self._blocks(elements(branch))) for branch in elements(element))
                yield from next((blocks for blocks in branches if any(block.text.strip() for block in blocks)), ())
            elif name == "altChunk":
                yield from self._chunk(element)
            elif name == "subDoc":
                self._leave_out(element, "subdocument", "it is in a file of its own; read that file")
            elif name not in _UNSEEN:  # controls, insertions, and what is not known
                yield from self._blocks(elements(element))
        yield from line.blocks()

    def _walk_paragraph(self, element: Element, line: OpenParagraph) -> BlockStyle:
        """Add the text of a paragraph, and return its style."""
        outer = self._style
        properties = child_of(element, "pPr")
        self._style = _value(child_of(properties, "pStyle"))
        start = len(line.pieces)
        self._walk([element] if name_of(element) != "p" else elements(element), line)
        if not _has_deleted_end(element):
            of_styles = self._document.styles.properties(self._style)
            label = self._document.numbering.label([properties, *of_styles], self._style)
            if label and "".join(line.pieces[start:]).strip():
                line.pieces.insert(start, f"{label} ")
        style = self._document.styles.block_style(self._style, child_of(properties, "outlineLvl"))
        self._style = outer
        return style

    def _walk(self, siblings: Iterable[Element], line: OpenParagraph) -> None:
        """Add the text of elements in a paragraph."""
        for element in siblings:
            name = name_of(element)
            if name in _UNSEEN:
                continue
            if name in ("t", "sym", *_CHARACTERS):
                if "code" not in self._fields:
                    line.pieces.append(_CHARACTERS.get(name) or _text_of(element))
            elif name == "fldChar":
                self._follow_field(element, line)
            elif name in ("footnoteReference", "endnoteReference"):
                note = self._document.notes.get((name.removesuffix("Reference"), value_of(element, "id")))
                line.following += [] if note is None else note.blocks_once()
            elif name in ("p", "tbl", "txbxContent"):
                line.following += self._blocks(elements(element) if name == "txbxContent" else [element])
            elif name == "AlternateContent":
                self._walk_first_branch(element, line)
            elif name in ("rt", "chart", "relIds", "textpath", "OLEObject"):
                self._walk_beside(element, name, line)
            elif name == "r" and self._document.styles.is_hidden(element, self._style):
                hidden = OpenParagraph()
                self._walk(elements(element), hidden)
                self._document.n_hidden_characters += sum(len(block.text.strip()) for block in hidden.blocks())
            else:
                self._walk(elements(element), line)

    def _walk_first_branch(self, alternatives: Element, line: OpenParagraph) -> None:
        """Add the first of several ways to write the same that has text."""
        for branch in elements(alternatives):
            written = OpenParagraph()
            self._walk(elements(branch), written)
            if written.pieces or written.following:
                line.pieces += written.pieces
                line.following += written.following
                return

    def _walk_beside(self, element: Element, name: str, line: OpenParagraph) -> None:
        """Add what is beside the text of a paragraph: readings of characters, charts, diagrams, drawn words."""
        if name == "rt":
            reading = OpenParagraph()
            self._walk(elements(element), reading)
            line.following += reading.blocks()
        elif name == "textpath":
            line.following.append(TextBlock(element.get("string", "")))
        elif name == "OLEObject":
            program = element.get("ProgID", "another program")
            self._leave_out(element, "embedded object", f"it belongs to {program}; save it as a file of its own")
        else:
            link = self._links.get(value_of(element, "dm" if name == "relIds" else "id") or "")
            root = None if link is None else self._document.package.root(link.target)
            if root is not None:
                texts = [block.text.strip() for block in _WordStory(self._document, root, {}).blocks()]
                texts += _names_in_chart(root)
                line.following.append(TextBlock(" | ".join(filter(None, texts))))

    def _follow_field(self, element: Element, line: OpenParagraph) -> None:
        """Follow a field, whose code is not seen: it has a code, a result, and an end."""
        kind = value_of(element, "fldCharType")
        if not self._follows_fields:
            return
        if kind == "begin":
            choices = child_of(element, "ffData", "ddList")
            if choices is not None and "code" not in self._fields:
                line.pieces.append(_chosen(choices))
            self._fields.append("code")
        elif kind == "separate":
            self._fields[-1] = "result"
        else:
            self._fields.pop()

    def _chunk(self, element: Element) -> Iterator[TextBlock]:
        """Yield the text of a document of another format that is part of this one."""
        link = self._links.get(value_of(element, "id") or "")
        reader = None if link is None or link.is_external else reader_of(link.target)
        if link is None or reader is None or link.target not in self._document.package.names:
            self._leave_out(element, "inserted document", no_reader("" if link is None else link.target))
            return
        documents, unread = read_documents(reader, self._document.package.read(link.target), {})
        for part in (part for document in documents for part in document.parts):
            yield TextBlock(part.text) if part.text else TextBlock(part.heading or "", "heading")
        location = f"inserted document {PurePosixPath(link.target).name}"
        self._document.left_out += (part.within(location) for part in unread)

    def _leave_out(self, element: Element, what: str, reason: str) -> None:
        link = self._links.get(value_of(element, "id") or "")
        name = "" if link is None else f" {PurePosixPath(link.target).name}"
        self._document.left_out.append(UnreadPart(part=what + name, reason=reason))


class _WordStyles:
    """The styles of a document: which of them are headings, and which hide their text."""

    def __init__(self, root: Element | None) -> None:
        styles = [] if root is None else [style for style in elements(root) if name_of(style) == "style"]
        self._styles = {value_of(style, "styleId"): style for style in styles}

    def _chain(self, style: str | None) -> Iterator[Element]:
        """Yield a style and those that it is based on."""
        visited = set()
        while style in self._styles and style not in visited:
            visited.add(style)
            yield self._styles[style]
            style = _value(child_of(self._styles[style], "basedOn"))

    def properties(self, style: str | None) -> list[Element | None]:
        """Return the properties of paragraphs in a style and those that it is based on."""
        return [child_of(element, "pPr") for element in self._chain(style)]

    def block_style(self, style: str | None, level: Element | None) -> BlockStyle:
        """Return what a paragraph is by its style and its own outline level: levels 0 to 8 are headings."""
        for element in self._chain(style):
            name = (_value(child_of(element, "name")) or "").casefold()
            if name == "title":
                return "title"
            level = child_of(element, "pPr", "outlineLvl") if level is None else level
            if level is None and name.startswith("heading "):
                return "heading"
        return "heading" if (_value(level) or "9") in "012345678" else "body"

    def is_hidden(self, run: Element, paragraph_style: str | None) -> bool:
        """Return whether the text of a run is hidden, by its own properties or by styles."""
        properties = child_of(run, "rPr")
        styles = (*self._chain(_value(child_of(properties, "rStyle"))), *self._chain(paragraph_style))
        marks = (child_of(properties, "vanish"), *(child_of(style, "rPr", "vanish") for style in styles))
        mark = next((mark for mark in marks if mark is not None), None)
        return mark is not None and (_value(mark) or "1") not in ("0", "false", "off")


def _has_deleted_end(paragraph: Element) -> bool:
    """Return whether the next paragraph continues this one."""
    mark = child_of(paragraph, "pPr", "rPr")
    return child_of(mark, "del") is not None or child_of(mark, "moveFrom") is not None


def _value(element: Element | None) -> str | None:
    return None if element is None else value_of(element, "val")


def _text_of(element: Element) -> str:
    """Return the text of a ``t``, or the character of a ``sym``."""
    if name_of(element) == "t":
        return "".join(element.itertext())
    with suppress(ValueError, OverflowError):
        code, font = int(value_of(element, "char") or "", 16), value_of(element, "font") or ""
        in_symbol = code < 256 and font.casefold() == "symbol"
        return seen_symbols(symbols_of(bytes([code])) if in_symbol else chr(code), font)
    return ""


def _within(parent: Element, name: str) -> Iterator[Element]:
    """Yield the rows of a table, or the cells of a row: children, or in controls and insertions around them."""
    for element in elements(parent):
        if name_of(element) == name:
            yield element
        elif name_of(element) == "AlternateContent":
            branches = (list(_within(branch, name)) for branch in elements(element))
            yield from next(filter(None, branches), ())
        elif name_of(element) not in _UNSEEN:
            yield from _within(element, name)


def _has_closed_fields(root: Element) -> bool:
    """Return whether each field in the final view has an end: otherwise nothing is known to be the code of one."""
    depth = 0
    for element in root.iter("{*}fldChar"):
        if any(name_of(parent) in _UNSEEN for parent in element.iterancestors()):
            continue
        kind = value_of(element, "fldCharType")
        depth += {"begin": 1, "end": -1}.get(kind or "", 0)
        if depth < 0 or (depth == 0 and kind == "separate"):
            return False
    return depth == 0


def _chosen(choices: Element) -> str:
    """Return the entry that a list of a form shows."""
    entries = [_value(entry) or "" for entry in elements(choices) if name_of(entry) == "listEntry"]
    number = _value(child_of(choices, "result")) or _value(child_of(choices, "default")) or "0"
    return entries[int(number)] if number.isdecimal() and int(number) < len(entries) else ""


def _names_in_chart(root: Element) -> list[str]:
    """Return the names of categories and series in a chart; those of the same cells of its table once."""
    names: dict[tuple[str, str], None] = {}
    for reference in root.iter("{*}strRef"):
        cells = child_of(reference, "f")
        for value in reference.iter("{*}v"):
            names[("" if cells is None else cells.text or "", value.text or "")] = None
    return [name for _, name in names]
