"""Read Rich Text Format as it looks when all changes are accepted: paragraphs, tables, boxes, notes, page headers.

Groups whose control word is not known are read if a program that does not know it would show them: those that do not
begin with ``\\*``.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from haybale.collections.files.blocks import BlockStyle, OpenParagraph, TextBlock, parts_of, row_of
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FileReader, Unreadable
from haybale.collections.files.rtf_tokens import Token, tokens_of
from haybale.collections.files.symbol_font import seen_symbols, symbols_of
from haybale.collections.unread import UnreadPart

# Groups without visible text, although a program that does not know them would show it.
_UNSEEN = frozenset((
    "colortbl", "filetbl", "listtable", "listoverridetable", "revtbl", "pict", "objdata", "fldinst", "nonshppict",
    "xe", "tc", "tcn", "rxe", "txe", "template", "nonesttables", "atnid", "atnauthor", "atrfstart", "atrfend",
    "ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn", "bkmkstart", "bkmkend", "datafield", "generator",
))  # fmt: skip
_SEEN = ("shpinst", "shpgrp", "do", "nesttableprops", "ud", "moMath", "moMathPara")  # although they begin with \*
_NOTES = ("footnote", "shptxt", "dptxbxtext")
_PAGE_TEXTS = (
    "header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf",
)  # fmt: skip
_INFO = {"title": "title", "author": "author", "subject": "subject", "keywords": "keywords"}
_CHARACTERS = {
    "tab": "\t", "line": "\n", "lbr": "\n", "emdash": "—", "endash": "–", "emspace": "\u2003", "enspace": "\u2002",
    "qmspace": "\u2005", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”",
    "~": "\u00a0", "_": "\u2011", "{": "{", "}": "}", "\\": "\\",
}  # fmt: skip
_PARAGRAPH_ENDS = ("par", "sect", "page", "column")
_CODE_PAGES = {  # by the numbers of character sets
    0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gbk", 136: "cp950", 161: "cp1253",
    162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250", 254: "cp437", 255: "cp850",
}  # fmt: skip
_SYMBOL_CHARSET = 2


class RichText(FileReader):
    """Reader of Rich Text Format."""

    name = "rtf"
    suffixes = (".rtf",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        if not data.lstrip().startswith(b"{\\rtf"):
            raise Unreadable("expected Rich Text Format, found other data")
        document = _RichTextDocument()
        document.read(tokens_of(data.lstrip()))
        parts, title = parts_of(document.story.blocks)
        parts += [Part(text) for text in document.page_texts]
        metadata = {name: value for name, text in document.info.items() if (value := text.strip())}
        yield FileDocument(parts, metadata.pop("title", "") or title, metadata)
        yield from document.unread()


@dataclass
class _RichTextFont:
    name: str = ""
    charset: int | None = None
    code_page: int | None = None


@dataclass
class _RichTextStyle:
    name: str = ""
    level: int | None = None  # of an outline


@dataclass
class _RichTextStory:
    """A continuous text, such as the main one, a note or a page header: what is finished of it, and its last line.

    ``cells`` has the finished cells of the rows that are open, and ``cell`` the paragraphs of the cells that are open,
    by the level of the table: that of a table in a cell is 2.
    """

    kind: Literal["text", "note", "page"] = "text"
    blocks: list[TextBlock] = field(default_factory=list)
    line: OpenParagraph = field(default_factory=OpenParagraph)
    cells: dict[int, list[list[TextBlock]]] = field(default_factory=dict)
    cell: dict[int, list[TextBlock]] = field(default_factory=dict)

    def end_paragraph(self, style: BlockStyle, level: int) -> None:
        """End the last line as a paragraph, in a cell if the level of its table is not 0."""
        # A character beyond U+FFFF was written as two.
        text = "".join(self.line.pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        blocks = OpenParagraph([text], self.line.following).blocks(style)
        self.line = OpenParagraph()
        if level:
            self.cell.setdefault(level, []).extend(blocks)
        elif any(block.text.strip() for block in blocks):
            self.end_tables()
            self.blocks += blocks

    def end_cell(self, level: int) -> None:
        self.cells.setdefault(level, []).append(self.cell.pop(level, []))

    def end_row(self, level: int) -> None:
        if self.cell.get(level):
            self.end_cell(level)
        row = list(row_of(self.cells.pop(level, [])))
        if level > 1:
            self.cell.setdefault(level - 1, []).extend(row)
        else:
            self.blocks += row

    def end_tables(self) -> None:
        """End the rows that are open, of the innermost table first."""
        for level in sorted(self.cells.keys() | self.cell.keys(), reverse=True):
            self.end_row(level)


@dataclass
class _GroupState:
    """What holds until the end of a group."""

    story: _RichTextStory
    group: str = ""  # the group that decides what is done with texts: "" for visible ones
    font: int | None = None
    charset: int | None = None  # instead of the font's
    n_substitutes: int = 1  # for programs without Unicode
    is_hidden: bool = False
    is_deleted: bool = False
    style: int = 0
    level: int | None = None  # of an outline
    table_level: int = 0
    shape: dict[str, bool] = field(default_factory=dict)  # of the drawing around it: whether it had text
    value: dict[str, str] = field(default_factory=dict)  # the name and the value of one of its properties


class _RichTextDocument:
    """A document that is being read: its stories, and its tables of fonts and styles."""

    def __init__(self) -> None:
        self.story = _RichTextStory()
        self.page_texts: dict[str, None] = {}
        self.info: dict[str, str] = {}
        self._fonts: dict[int, _RichTextFont] = {}
        self._styles: dict[int, _RichTextStyle] = {}
        self._code_page, self._default_font = "cp1252", 0
        self._state = _GroupState(self.story)
        self._outer: list[_GroupState] = []
        self._bytes = bytearray()  # of a text that is not decoded yet
        self._n_ignored = 0  # substitutes that are to come
        self._begins_group = self._has_star = self._is_cut_off = False
        self._n_comments = self._n_hidden_characters = self._n_undecoded = self._n_objects = 0

    def read(self, tokens: Iterator[Token]) -> None:
        """Read all tokens."""
        for token in tokens:
            if not token.word:
                self._bytes += token.text[self._n_ignored :]
                self._n_ignored = max(self._n_ignored - len(token.text), 0)
                self._begins_group = self._has_star = False
                continue
            self._decode()
            if token.word == "{":
                self._outer.append(self._state)
                self._state = replace(self._state)
                self._begins_group, self._has_star, self._n_ignored = True, False, 0
            elif token.word == "}":
                self._n_ignored = 0
                self._end_group()
                if not self._outer:
                    return
            elif token.word == "*" and self._begins_group:
                self._has_star = True
            elif self._n_ignored:
                self._n_ignored -= 1
            else:
                begins_group, self._begins_group = self._begins_group, False
                if not (begins_group and self._begin_group(token.word, self._has_star)):
                    self._follow(token.word, token.number)
        self._decode()
        self._is_cut_off = True
        while self._outer:
            self._end_group()

    def unread(self) -> Iterator[UnreadPart]:
        """Yield what was left out although the file has it."""
        for n in range(self._n_objects):
            reason = "it belongs to another program; save it as a file of its own"
            yield UnreadPart(part=f"embedded object {n + 1}", reason=reason)
        if n := self._n_comments:
            yield UnreadPart(part="comments", reason=f"{n:,} comments, which are no part of the final view")
        if n := self._n_hidden_characters:
            yield UnreadPart(part="hidden text", reason=f"{n:,} characters, which are no part of the final view")
        if n := self._n_undecoded:
            yield UnreadPart(part="characters", reason=f"{n:,} characters that their character set does not have")
        if self._is_cut_off:
            yield UnreadPart(part="end", reason="expected a closing brace, found the end; the file may be cut off")

    # texts ------------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        """Take the bytes of a text that has ended."""
        if not self._bytes:
            return
        data, self._bytes = bytes(self._bytes), bytearray()
        charset, code_page = self._encoding()
        if charset == _SYMBOL_CHARSET and not self._state.group:
            self._take(symbols_of(data))
            return
        text = data.decode(code_page, errors="replace")
        self._n_undecoded += 0 if self._state.group else text.count("\ufffd")
        self._take(text)

    @property
    def _font(self) -> _RichTextFont:
        number = self._default_font if self._state.font is None else self._state.font
        return self._fonts.get(number, _RichTextFont())

    def _encoding(self) -> tuple[int | None, str]:
        """Return the character set and the code page of the present font."""
        font, charset = self._font, self._state.charset
        if charset is None:
            charset = font.charset
            if font.code_page:
                return charset, _codec(font.code_page, self._code_page)
        return charset, _CODE_PAGES.get(-1 if charset is None else charset, self._code_page)

    def _take(self, text: str) -> None:
        """Add a text where its group belongs."""
        state = self._state
        if state.group == "fonttbl":
            self._fonts.setdefault(state.font or 0, _RichTextFont()).name += text.rstrip(";")
        elif state.group == "stylesheet":
            self._styles.setdefault(state.style, _RichTextStyle()).name += text.rstrip(";")
        elif state.group in _INFO:
            self.info[state.group] = self.info.get(state.group, "") + text
        elif state.group in ("sn", "sv"):
            state.value[state.group] = state.value.get(state.group, "") + text
        elif state.group or state.is_deleted:
            return
        elif state.is_hidden:
            self._n_hidden_characters += len(text.strip())
        else:
            is_symbols = self._encoding()[0] == _SYMBOL_CHARSET
            state.story.line.pieces.append(seen_symbols(text, self._font.name) if is_symbols else text)

    # groups -----------------------------------------------------------------------------------------------------

    def _begin_group(self, word: str, has_star: bool) -> bool:
        """Begin the group that a word names; return False if it names none."""
        state = self._state
        if word == "ud" and state.group == "upr":
            state.group = ""
        elif state.group == "info" and word in _INFO:
            state.group = word
        elif state.group:
            if not has_star and word not in ("panose", "falt"):
                return False
            state.group = "unseen"
        elif word in _NOTES or word in _PAGE_TEXTS:
            state.story = _RichTextStory("note" if word in _NOTES else "page")
            state.table_level, state.style, state.level, state.is_deleted = 0, 0, None, False
        elif word in ("fonttbl", "stylesheet", "info", "upr", "sn", "sv"):
            state.group = word
        elif word in ("annotation", "objdata"):
            self._n_comments += word == "annotation"
            self._n_objects += word == "objdata"
            state.group = "unseen"
        elif word in ("shp", "sp"):
            state.shape = {} if word == "shp" else state.shape
            state.value = {}
        elif word in _UNSEEN or (has_star and word not in _SEEN) or (word == "shprslt" and state.shape.get("has_text")):
            state.group = "unseen"
        else:
            return word in _SEEN
        return True

    def _end_group(self) -> None:
        ended, outer = self._state, self._outer.pop()
        if ended.story is not outer.story or not self._outer:
            self._end_paragraph()
            ended.story.end_tables()
        if ended.group == "sv" != outer.group and ended.value.get("sn") == "gtextUNICODE":
            outer.story.line.following.append(TextBlock(ended.value.get("sv", "")))
        elif ended.story is not outer.story and ended.story.kind == "page":
            self.page_texts.update(dict.fromkeys(text for block in ended.story.blocks if (text := block.text.strip())))
        elif ended.story is not outer.story:
            outer.story.line.following += ended.story.blocks
            ended.shape["has_text"] = bool(ended.story.blocks)
        self._state = outer

    # control words ----------------------------------------------------------------------------------------------

    def _follow(self, word: str, number: int | None) -> None:
        """Do what a control word says."""
        state = self._state
        if word in _CHARACTERS:
            self._take(_CHARACTERS[word])
        elif word == "u":
            code = number or 0
            self._take(chr(code % 2**16 if code < 2**16 else min(code, 0x10FFFF)))
            self._n_ignored = state.n_substitutes
        elif word == "uc":
            state.n_substitutes = max(number or 0, 0)
        elif word in ("deleted", "mvf"):
            state.is_deleted = number != 0
        elif word == "v":
            state.is_hidden = number != 0
        elif word == "plain":
            state.font, state.charset, state.is_hidden, state.is_deleted = None, None, False, False
        elif word in ("ansicpg", "mac", "pc", "pca", "deff", "f", "fcharset", "cpg", "cchs"):
            self._set_font(word, number or 0)
        elif word == "s":
            state.style = number or 0
        elif word == "outlinelevel" and state.group == "stylesheet":
            self._styles.setdefault(state.style, _RichTextStyle()).level = number or 0
        elif not state.group:
            self._follow_paragraph(word, number)

    def _set_font(self, word: str, number: int) -> None:
        state = self._state
        if word == "f":
            state.font, state.charset = number, None
            if state.group == "fonttbl":
                self._fonts[number] = _RichTextFont()
        elif word in ("fcharset", "cpg"):
            font = self._fonts.setdefault(state.font or 0, _RichTextFont())
            setattr(font, "charset" if word == "fcharset" else "code_page", number)
        elif word == "cchs":
            state.charset = number
        elif word == "deff":
            self._default_font = number
        else:
            fixed = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
            self._code_page = fixed.get(word) or _codec(number, self._code_page)

    def _follow_paragraph(self, word: str, number: int | None) -> None:
        """Do what a control word says about paragraphs and tables."""
        state = self._state
        if word == "pard":
            state.style, state.level, state.table_level = 0, None, 0
        elif word == "outlinelevel":
            state.level = number or 0
        elif word == "intbl":
            state.table_level = max(state.table_level, 1)
        elif word == "itap":
            state.table_level = max(number or 0, 0)
        elif word in _PARAGRAPH_ENDS and not state.is_deleted:  # a deleted end joins two paragraphs
            self._end_paragraph()
        elif word in ("cell", "nestcell"):
            level = 1 if word == "cell" else max(state.table_level, 2)
            self._end_paragraph(level)
            state.story.end_cell(level)
        elif word in ("row", "nestrow"):
            level = 1 if word == "row" else max(state.table_level, 2)
            if state.story.line != OpenParagraph():
                self._end_paragraph(level)
            state.story.end_row(level)

    def _end_paragraph(self, table_level: int | None = None) -> None:
        state = self._state
        style = self._styles.get(state.style, _RichTextStyle())
        name, level = style.name.strip().casefold(), style.level if state.level is None else state.level
        is_heading = name.startswith("heading ") if level is None else 0 <= level <= 8
        block_style: BlockStyle = "heading" if is_heading else "body"
        state.story.end_paragraph(
            "title" if name == "title" else block_style, state.table_level if table_level is None else table_level
        )


def _codec(code_page: int, default: str) -> str:
    """Return the name of Python's codec for a code page, or the default for an unknown one."""
    name = {65001: "utf-8", 10000: "mac_roman", 54936: "gb18030", 1361: "johab"}.get(code_page, f"cp{code_page}")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return default
