"""Read the text of a web page with lxml: all that is seen, in blocks as a browser shows them, except menus.

A browser decides what is a block by the names of elements, so that a page needs no paragraphs: a line in a ``div``, an
item or a cell is one. Elements that are not known are part of a line. If a page marks its main element, the rest of it
is left out and counted.
"""

from __future__ import annotations

import re
from typing import Any

from haybale.collections.files.blocks import TextBlock, row_of
from haybale.collections.files.file_reader import EXTRA, Unreadable, paragraphs_of
from haybale.extras import import_optional

# The elements that HTML's style sheet for browsers makes blocks (html.spec.whatwg.org, section 15.3).
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frameset", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hgroup", "hr", "html", "iframe", "legend", "li", "listing", "main", "menu", "nav", "noframes", "ol", "p",
    "plaintext", "pre", "search", "section", "summary", "table", "tbody", "td", "textarea", "tfoot", "th", "thead",
    "tr", "ul", "xmp",
))  # fmt: skip
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_PREFORMATTED = ("pre", "listing", "plaintext", "textarea", "xmp")
# Elements whose text a browser does not show, and menus.
_UNSEEN = frozenset((
    "script", "style", "template", "noscript", "head", "title", "metadata", "desc", "datalist", "rp", "annotation",
    "annotation-xml", "audio", "video", "canvas", "nav", "search",
))  # fmt: skip
# Elements within a line that a browser sets apart, so that words before and after them are two.
_BOXES = frozenset(("button", "select", "meter", "progress", "output", "img", "svg", "text", "mtd"))
_CHANGES = ("del", "ins", "s", "strike")
_MENU_ROLES = ("navigation", "menu", "menubar", "search")
_TYPES_WITH_VALUE = (
    "", "text", "email", "number", "date", "datetime-local", "month", "week", "time", "tel", "url", "button",
    "submit", "reset",
)  # fmt: skip
_SHOWS_AS_BLOCK = re.compile(r"display\s*:\s*(block|flex|grid|list-item|table)", re.I)
_SETS_APART = re.compile(r"display\s*:\s*inline-|position\s*:\s*(absolute|fixed)", re.I)
_ENDS_SENTENCE = re.compile(r"[.!?:;…]['\"’”»)\]]*$")
# How an item of an enumeration begins: § 5, (a), 1., 12), - or a bullet.
_BEGINS_ITEM = re.compile(r"(§+\s*\d|\(?\w{1,4}[.)]\s|\[\d+\]|[-–—•*·]\s)")
_NUMBER_ALONE = re.compile(r"[(\[]?(§+\s*)?\d{1,4}[a-z]?[.)\]]*")  # the number of a paragraph in the margin


class PageText:
    """The text of a page.

    Attributes
    ----------
    title : str
        The page's title.
    blocks : list of TextBlock
    outside : str
        The text outside of the main element, if the page has one.
    is_cut_off : bool
        Whether elements are nested so deeply that the rest of the page was left out.

    Raises
    ------
    Unreadable
        If the page is empty.
    """

    def __init__(self, page: str) -> None:
        self.root, self.is_cut_off = root, _ = _parsed(page)
        title = next((element for element in root.iter("title") if not _is_in(element, "svg")), None)
        self.title = "" if title is None else " ".join(title.text_content().split())
        self.blocks: list[TextBlock] = []
        self._targets = [self.blocks]  # the list that blocks are added to: the page's, or that of the open cell
        self._rows: list[list[list[TextBlock]]] = []  # the cells of the open rows
        self._pieces: list[str] = []  # of the present line; "\n" is a line break
        self._terms: list[str] = []  # of a list, which stand before their description
        self._beside: list[TextBlock] = []  # readings of characters
        self._outside: list[str] = []
        self._n_preformatted = self._n_open_mains = self._n_open_headings = 0
        self._open_terms: list[bool] = []  # for each open dt or dd, whether it is a dt
        self._has_main = any(True for element in root.iter() if _is_main(element))
        self._walk()
        self.outside = " ".join("".join(self._outside).split())
        self.blocks = _with_numbers(self.blocks)

    def _walk(self) -> None:
        walker = import_optional("lxml.etree", EXTRA).iterwalk(self.root, events=("start", "end", "comment", "pi"))
        for event, element in walker:
            if event == "start":
                if _is_unseen(element):
                    walker.skip_subtree()
                else:
                    self._start(element, element.tag)
                    self._add(element.text)
                continue
            if event == "end" and not _is_unseen(element):
                self._end(element, element.tag)
            self._add(element.tail)
        self._end_line()
        self._end_terms()

    def _add(self, text: str | None) -> None:
        """Add characters to the present line."""
        if not text:
            return
        if self._has_main and not self._n_open_mains:
            self._outside.append(text)
        else:
            self._pieces.append(text if self._n_preformatted else re.sub(r"[ \t\r\n\f]+", " ", text))

    def _start(self, element: Any, name: str) -> None:
        if _is_block(element):
            self._end_line()
            self._outside.append(" ")
        self._n_open_mains += _is_main(element)
        self._n_open_headings += _is_heading(element)
        self._n_preformatted += name in _PREFORMATTED
        if name in ("dt", "dd"):
            self._open_terms.append(name == "dt")
        if _is_box(element) or _replaces(element):
            self._add(" ")
        if name == "iframe" and (srcdoc := element.get("srcdoc") or "").strip():
            self._targets[-1] += PageText(srcdoc).blocks
        if name == "br":
            self._pieces.append("\n")
        elif name in ("option", "optgroup"):
            self._add(f" {element.get('label') or ''} ")
        elif name == "input" and (element.get("type") or "").lower() in _TYPES_WITH_VALUE:
            self._add(f" {element.get('value') or ''} ")
        elif name == "rt":
            self._pieces.append("\x00")  # the reading of the characters before begins
        elif name == "tr":
            self._rows.append([])
        elif name in ("td", "th"):
            self._targets.append([])

    def _end(self, element: Any, name: str) -> None:
        if name == "rt":
            self._end_reading()
        if _is_block(element):
            self._end_line()
        elif _is_box(element):
            self._add(" ")
        if name in ("dt", "dd"):
            self._open_terms.pop()
        elif name == "dl":
            self._end_terms()
        elif name in ("td", "th") and len(self._targets) > 1:
            cell = self._targets.pop()
            if self._rows:
                self._rows[-1].append(cell)
            else:
                self._targets[-1].extend(cell)
        elif name == "tr" and self._rows:
            self._targets[-1].extend(row_of(self._rows.pop()))
        self._n_preformatted -= name in _PREFORMATTED
        self._n_open_mains -= _is_main(element)
        self._n_open_headings -= _is_heading(element)

    def _end_reading(self) -> None:
        """Put the reading of characters after the paragraph, so that it does not divide a word."""
        start = max((n for n, piece in enumerate(self._pieces) if piece == "\x00"), default=len(self._pieces))
        self._beside.append(TextBlock("".join(self._pieces[start + 1 :]), "aside"))
        del self._pieces[start:]

    def _end_line(self) -> None:
        """End the present line as blocks: as many as it has paragraphs."""
        text, beside = "".join(self._pieces).replace("\x00", " "), self._beside
        self._pieces, self._beside = [], []
        if text.strip():
            self._add_line(text)
        self._targets[-1] += beside

    def _add_line(self, text: str) -> None:
        paragraphs = paragraphs_of(text) if self._n_preformatted else _paragraphs_of_lines(text)
        if self._open_terms and self._open_terms[-1]:
            self._terms += paragraphs
        elif self._n_open_headings:
            self._targets[-1].append(TextBlock(" ".join(paragraphs), "heading"))
        else:
            first, *others = paragraphs
            self._targets[-1] += [TextBlock("\n".join([*self._terms, first])), *map(TextBlock, others)]
            self._terms = []

    def _end_terms(self) -> None:
        self._targets[-1] += map(TextBlock, self._terms)
        self._terms = []


def _parsed(page: str) -> tuple[Any, bool]:
    """Return the root of a page, and whether the parser ended early."""
    html = import_optional("lxml.html", EXTRA)
    # A declared encoding is no longer that of a text, and lxml refuses it.
    page = re.sub(r"^\s*<\?xml[^>]*\?>", "", page.replace("\x00", ""))
    if not page.strip():
        raise Unreadable("expected a page with text, found none")
    # Without huge_tree, the rest of a deeply nested page would be left out without a word.
    parser = html.HTMLParser(huge_tree=True)
    root = html.document_fromstring(page, parser=parser)
    for sibling in list(root.itersiblings("*")):  # what stands after the end of the page, such as a second one
        root.append(sibling)
    return root, any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log)


def _is_main(element: Any) -> bool:
    return isinstance(element.tag, str) and (element.tag == "main" or element.get("role") == "main")


def _is_heading(element: Any) -> bool:
    return element.tag in _HEADINGS or element.get("role") == "heading"


def _is_box(element: Any) -> bool:
    """Return whether an element within a line is set apart; a hyphen is in the names of elements that pages define."""
    name = element.tag
    is_placed = name == "tspan" and any(element.get(side) is not None for side in ("x", "y", "dy"))
    return name in _BOXES or "-" in name or is_placed or _SETS_APART.search(element.get("style") or "") is not None


def _replaces(element: Any) -> bool:
    """Return whether an element is a change that stands right behind another one: the word in place of another."""
    before = element.getprevious() if element.tag in _CHANGES else None
    return before is not None and not before.tail and before.tag in _CHANGES and before.tag != element.tag


def _is_unseen(element: Any) -> bool:
    if element.tag == "template" and element.get("shadowrootmode") is not None:
        return False  # the content of the element around it
    return element.tag in _UNSEEN or (element.get("role") or "").lower() in _MENU_ROLES


def _is_block(element: Any) -> bool:
    return element.tag in _BLOCKS or _SHOWS_AS_BLOCK.search(element.get("style") or "") is not None


def _is_in(element: Any, name: str) -> bool:
    return next(element.iterancestors(name), None) is not None


def _paragraphs_of_lines(text: str) -> list[str]:
    """Split a text with line breaks into paragraphs: at empty lines, after sentences, and before items.

    >>> _paragraphs_of_lines("The tenant\\nshall pay.\\nThe lessor shall\\n\\nkeep it")
    ['The tenant\\nshall pay.', 'The lessor shall', 'keep it']
    """
    paragraphs: list[list[str]] = [[]]
    for line in (" ".join(line.split()) for line in text.split("\n")):
        current = paragraphs[-1]
        if current and (not line or _ENDS_SENTENCE.search(current[-1]) or _BEGINS_ITEM.match(line)):
            paragraphs.append([])
        if line:
            paragraphs[-1].append(line)
    return ["\n".join(lines) for lines in paragraphs if lines]


def _with_numbers(blocks: list[TextBlock]) -> list[TextBlock]:
    """Join numbers that stand alone, as those of the paragraphs of a decision, with the paragraph after them."""
    joined: list[TextBlock] = []
    for block in blocks:
        before = joined[-1] if joined else None
        if (
            block.style == "body"
            and before is not None
            and before.style == "body"
            and _NUMBER_ALONE.fullmatch(before.text)
        ):
            joined[-1] = TextBlock(f"{before.text} {block.text}")
        else:
            joined.append(block)
    return joined
