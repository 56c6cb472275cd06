"""Read OpenDocument texts as they look when all changes are accepted: paragraphs, tables, boxes, notes, page headers.

The XML is walked by the names of its elements. Elements that are not known are walked, too: text is left out only where
it is known not to be seen, and what is left out although the file has it is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from haybale.collections.files.blocks import BlockStyle, OpenParagraph, TextBlock, row_of
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader, Unreadable
from haybale.collections.files.office_document import read_office_document
from haybale.collections.files.packed_xml import Element, PackedXML, child_of, elements, name_of, parsed, value_of
from haybale.collections.unread import UnreadPart

# Elements whose text is not in the final view, templates of indexes, and descriptions of pictures.
_UNSEEN = frozenset((
    "tracked-changes", "annotation", "annotation-end", "note-citation", "script", "scripts", "desc",
    "table-of-content-source", "alphabetical-index-source", "illustration-index-source", "table-index-source",
    "object-index-source", "user-index-source", "bibliography-source", "covered-table-cell", "event-listeners",
))  # fmt: skip
_TITLES_OF_PICTURES = ("svg-compatible:1.0}title", "table:1.0}title")  # a title in a text is a field that is seen
_CHARACTERS = {"tab": "\t", "line-break": "\n"}
_HEADERS = ("header", "header-first", "header-left", "footer", "footer-first", "footer-left")
_METADATA_NAMES = {"title": "title", "creator": "author", "date": "date", "subject": "subject", "keyword": "keywords"}


class OpenDocument(FileReader):
    """Reader of OpenDocument texts and templates, packed or as one XML file."""

    name = "odt"
    suffixes = (".odt", ".ott", ".fodt")
    packages = ("lxml",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        yield from read_office_document(_OpenDocumentText(data))


class _OpenDocumentText:
    """A document: its text with the notes in it, page headers and footers, and what was left out."""

    def __init__(self, data: bytes) -> None:
        if data.lstrip().startswith(b"<"):
            self._package, root = None, parsed(data)
            self._content = self._style_file = self._meta = root
        else:
            self._package = PackedXML(data)
            manifest = self._package.root("META-INF/manifest.xml")
            if manifest is not None and next(manifest.iter("{*}encryption-data"), None) is not None:
                raise Unreadable("encrypted; save it without a password")
            self._content, self._style_file, self._meta = map(
                self._package.root, ("content.xml", "styles.xml", "meta.xml")
            )
        if child_of(self._content, "body") is None:
            raise Unreadable("expected an OpenDocument text, found none in the file")
        self._styles: dict[str | None, Element] = {}
        for root in (self._style_file, self._content):
            for style in () if root is None else root.iter("{*}style"):
                self._styles[value_of(style, "name")] = style
        self._n_comments = self._n_hidden_characters = 0
        self._left_out: list[UnreadPart] = []

    @property
    def n_pictures(self) -> int:
        return 0 if self._content is None else sum(1 for _ in self._content.iter("{*}image"))

    def blocks(self) -> Iterator[TextBlock]:
        """Yield the text, with its notes, in reading order."""
        return self._blocks(elements(child_of(self._content, "body")))

    def page_texts(self) -> list[str]:
        """Return the paragraphs of the headers and footers of pages, each once."""
        texts: dict[str, None] = {}
        master = child_of(self._style_file, "master-styles")
        for page in () if master is None else elements(master):
            for element in elements(page):
                if name_of(element) in _HEADERS and value_of(element, "display") != "false":
                    blocks = self._blocks(elements(element))
                    texts.update(dict.fromkeys(text for block in blocks if (text := block.text.strip())))
        return list(texts)

    def metadata(self) -> dict[str, str]:
        """Return title, author, date, subject and keywords, as far as the file has them."""
        about = child_of(self._meta, "meta")
        values: dict[str, list[str]] = {}
        for element in () if about is None else elements(about):
            name, text = _METADATA_NAMES.get(name_of(element)), "".join(element.itertext()).strip()
            if name and text:
                values.setdefault(name, []).append(text)
        return {name: ", ".join(texts) for name, texts in values.items()}

    def unread(self) -> Iterator[UnreadPart]:
        """Yield what was left out although the file has it."""
        yield from self._left_out
        if n := self._n_comments:
            yield UnreadPart(part="comments", reason=f"{n:,} comments, which are no part of the final view")
        if n := self._n_hidden_characters:
            yield UnreadPart(part="hidden text", reason=f"{n:,} characters, which are no part of the final view")

    def _blocks(self, siblings: Iterable[Element]) -> Iterator[TextBlock]:
        """Yield the blocks in elements outside of paragraphs, whose own characters are white space."""
        for element in siblings:
            name = name_of(element)
            if name in ("p", "h"):
                line = OpenParagraph()
                self._walk(element, line)
                yield from line.blocks(self._style_of(element))
            elif name == "table":
                for row in _within(element, "table-row"):
                    yield from row_of([list(self._blocks(elements(cell))) for cell in _within(row, "table-cell")])
            elif name == "forms":
                yield from _form_texts(element)
            elif name in ("object", "object-ole"):
                yield from self._object(element)
            elif name == "math":
                tokens = (token.text or "" for token in element.iter("{*}mi", "{*}mn", "{*}mo", "{*}mtext"))
                yield TextBlock(" ".join(filter(None, tokens)))
            elif self._is_hidden(element):
                self._hide(self._shown_blocks(element))
            else:
                yield from self._shown_blocks(element)

    def _shown_blocks(self, element: Element) -> Iterator[TextBlock]:
        name = name_of(element)
        self._n_comments += name == "annotation"
        return iter(()) if _is_unseen(element) else self._blocks(elements(element))

    def _walk(self, element: Element, line: OpenParagraph) -> None:
        """Add the text of an element in a paragraph."""
        line.pieces.append(_collapsed(element.text))
        for child in element:
            if isinstance(child.tag, str):
                self._walk_child(child, name_of(child), line)
            line.pieces.append(_collapsed(child.tail))

    def _walk_child(self, child: Element, name: str, line: OpenParagraph) -> None:
        if name == "s":
            count = value_of(child, "c") or "1"
            line.pieces.append(" " * min(int(count) if count.isdecimal() else 1, 100))
        elif name in _CHARACTERS:
            line.pieces.append(_CHARACTERS[name])
        elif name in ("note-body", "ruby-text"):
            line.following += self._note(child, name)
        elif name in ("p", "h", "table", "list", "object", "object-ole", "text-box"):
            line.following += self._blocks([child])
        elif _is_unseen(child):
            self._n_comments += name == "annotation"
        elif self._is_hidden(child):
            hidden = OpenParagraph()
            self._walk(child, hidden)
            self._hide(hidden.blocks())
        else:
            self._walk(child, line)

    def _note(self, element: Element, name: str) -> Iterable[TextBlock]:
        if name == "note-body":
            return self._blocks(elements(element))
        reading = OpenParagraph()
        self._walk(element, reading)
        return reading.blocks()

    def _object(self, element: Element) -> Iterator[TextBlock]:
        """Yield the text of an embedded document, such as a formula or a chart."""
        target = (value_of(element, "href") or "").removeprefix("./").rstrip("/")
        root = None if self._package is None or not target else self._package.root(f"{target}/content.xml")
        if root is not None:
            yield from self._blocks([root] if name_of(root) == "math" else elements(root))
        elif any(True for _ in elements(element)):  # the embedded document is in this one
            yield from self._blocks(elements(element))
        else:
            reason = "it belongs to another program; save it as a file of its own"
            self._left_out.append(UnreadPart(part=f"embedded object {target}".strip(), reason=reason))

    def _hide(self, blocks: Iterable[TextBlock]) -> None:
        self._n_hidden_characters += sum(len(block.text.strip()) for block in blocks)

    def _is_hidden(self, element: Element) -> bool:
        """Return whether the text of an element is hidden, by its own attributes or by its style."""
        if value_of(element, "is-hidden") == "true" or value_of(element, "display") == "none":
            return True
        for style in self._chain(element):
            display = (
                value_of(properties, "display")
                if (properties := child_of(style, "text-properties")) is not None
                else None
            )
            if display is not None:
                return display == "none"
        return False

    def _style_of(self, element: Element) -> BlockStyle:
        names = [value_of(element, "style-name"), *(value_of(s, "parent-style-name") for s in self._chain(element))]
        if "Title" in names:
            return "title"
        return "heading" if name_of(element) == "h" else "body"

    def _chain(self, element: Element) -> Iterator[Element]:
        """Yield the style of an element and those that it is based on."""
        name, visited = value_of(element, "style-name"), set[str | None]()
        while name in self._styles and name not in visited:
            visited.add(name)
            yield self._styles[name]
            name = value_of(self._styles[name], "parent-style-name")


def _collapsed(text: str | None) -> str:
    """Return characters of a paragraph, in which any white space is one space."""
    return re.sub(r"[ \t\r\n]+", " ", text or "")


def _is_unseen(element: Element) -> bool:
    return name_of(element) in _UNSEEN or str(element.tag).endswith(_TITLES_OF_PICTURES)


def _within(parent: Element, name: str) -> Iterator[Element]:
    """Yield the rows of a table, or the cells of a row: children, or in groups of them."""
    for element in elements(parent):
        if name_of(element) == name:
            yield element
        elif not _is_unseen(element):
            yield from _within(element, name)


def _form_texts(forms: Element) -> Iterator[TextBlock]:
    """Yield the labels and values of the controls of a form."""
    for control in elements(forms):
        value = (
            value_of(control, "current-value") or value_of(control, "value") if name_of(control) != "property" else ""
        )
        yield TextBlock(" ".join(filter(None, (value_of(control, "label"), value))))
        yield from _form_texts(control)
