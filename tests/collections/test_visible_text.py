"""Each text run that is seen in a generated document is read once; what is not seen is not read."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.office_files import open_document_file, word_file

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader, read_documents
from haybale.collections.files.html import HTML
from haybale.collections.files.open_document import OpenDocument
from haybale.collections.files.rich_text import RichText
from haybale.collections.files.word import Word
from haybale.collections.unread import UnreadPart

Draw = Callable[[Any], Any]
_DEPTH = 3


@dataclass
class Written:
    """The words of a generated document: those that are seen, those that are not, and those that are hidden."""

    draw: Draw
    seen: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)
    n: int = 0

    def word(self, kind: str = "seen") -> str:
        """Return a new word."""
        self.n += 1
        word = f"word{self.n}x"
        getattr(self, kind).append(word)
        return word

    def one_of(self, *makers: Callable[[], str]) -> str:
        return self.draw(st.sampled_from(makers))()

    def some(self, maker: Callable[[], str], most: int = 3) -> str:
        return "".join(maker() for _ in range(self.draw(st.integers(0, most))))


def read(reader: FileReader, data: bytes) -> tuple[list[FileDocument], list[UnreadPart]]:
    return read_documents(reader, data, {})


def words_of(documents: list[FileDocument]) -> Counter[str]:
    return Counter(
        word for document in documents for part in document.parts
        for word in re.findall(r"word\d+x", part.text or part.heading or "")
    )  # fmt: skip


def check(reader: FileReader, data: bytes, written: Written) -> None:
    documents, unread = read(reader, data)
    counts = words_of(documents)
    assert counts == Counter(written.seen)
    assert any(part.part == "hidden text" for part in unread) == bool(written.hidden)
    if not written.seen:
        assert any(part.reason == "no text" for part in unread)
    for document in documents:  # words of different runs are not glued, and a word is not divided
        text = " ".join(part.text or part.heading or "" for part in document.parts)
        assert not set(re.findall(r"\w+", text)) & set(written.unseen + written.hidden)


# ------------------------------------------------------------------------------------------------------------- Word


class WordText:
    """Writes the body of a Word document."""

    def __init__(self, written: Written) -> None:
        self.w, self.endnotes = written, dict[int, str]()

    def run(self, properties: str = "", kind: str = "seen", tag: str = "t") -> str:
        return f"<w:r>{properties}<w:{tag}> {self.w.word(kind)} </w:{tag}></w:r>"

    def inline(self, depth: int = _DEPTH) -> str:
        def wrapped(start: str, end: str) -> Callable[[], str]:
            return lambda: start + self.w.some(lambda: self.inline(depth - 1)) + end

        def deleted(name: str) -> Callable[[], str]:
            return lambda: f"<w:{name}>{self.run(kind='unseen', tag='delText')}{self.run(kind='unseen')}</w:{name}>"

        makers: list[Callable[[], str]] = [
            self.run,
            lambda: self.run("<w:rPr><w:vanish/></w:rPr>", "hidden"),
            lambda: self.run('<w:rPr><w:rStyle w:val="Gone"/></w:rPr>', "hidden"),
            lambda: self.run('<w:rPr><w:rStyle w:val="Gone"/><w:vanish w:val="0"/></w:rPr>'),
            deleted("del"),
            deleted("moveFrom"),
        ]
        if depth:
            makers += [
                wrapped(f"<{name}>", f"</{name}>")
                for name in ("w:ins", "w:moveTo", "w:hyperlink", "w:smartTag", "w:customXml", "w:bdo", "x:new")
            ]
            makers += [
                wrapped("<w:sdt><w:sdtPr/><w:sdtContent>", "</w:sdtContent></w:sdt>"),
                wrapped('<w:fldSimple w:instr="DATE">', "</w:fldSimple>"),
                lambda: self.field(depth),
                lambda: self.box(depth),
                lambda: f"<m:oMath><m:r><m:t> {self.w.word()} </m:t></m:r></m:oMath>",
                lambda: self.note("footnote", depth),
                lambda: self.note("endnote", depth),
            ]
        return self.w.one_of(*makers)

    def field(self, depth: int) -> str:
        char = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'.format
        code = f"<w:r><w:instrText>{self.w.word('unseen')}</w:instrText></w:r>{self.run(kind='unseen')}"
        result = self.w.some(lambda: self.inline(depth - 1))
        separate = char("separate") + result if result else ""
        return char("begin") + code + separate + char("end")

    def box(self, depth: int) -> str:
        content = f"<w:txbxContent>{self.blocks(depth - 1)}</w:txbxContent>"
        new = f"<w:drawing><wps:wsp><wps:txbx>{content}</wps:txbx></wps:wsp></w:drawing>"
        old = f"<w:pict><v:shape><v:textbox>{content}</v:textbox></v:shape></w:pict>"
        both = (
            f"<mc:AlternateContent><mc:Choice>{new}</mc:Choice><mc:Fallback>{old}</mc:Fallback></mc:AlternateContent>"
        )
        return f"<w:r>{self.w.draw(st.sampled_from([new, old, both]))}</w:r>"

    def note(self, kind: str, depth: int) -> str:
        notes = self.w.notes if kind == "footnote" else self.endnotes
        number = len(self.w.notes) + len(self.endnotes) + 1
        notes[number] = ""
        notes[number] = f'<w:{kind} w:id="{number}">{self.blocks(0)}</w:{kind}>'
        return f'<w:r><w:{kind}Reference w:id="{number}"/></w:r>'

    def paragraph(self, depth: int) -> str:
        style = self.w.draw(st.sampled_from(["", "H", "Own", "T"]))
        mark = self.w.draw(st.sampled_from(["", "<w:rPr><w:del/></w:rPr>", "<w:rPr><w:ins/></w:rPr>"]))
        return f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{mark}</w:pPr>{self.w.some(lambda: self.inline(depth))}</w:p>'

    def table(self, depth: int) -> str:
        def cell() -> str:
            return f"<w:tc><w:tcPr/>{self.blocks(depth - 1)}</w:tc>"

        def row() -> str:
            return f"<w:tr>{self.w.some(cell)}</w:tr>"

        deleted = f"<w:tr><w:trPr><w:del/></w:trPr><w:tc><w:p>{self.run(kind='unseen')}</w:p></w:tc></w:tr>"
        control = f"<w:sdt><w:sdtContent>{row()}</w:sdtContent></w:sdt>"
        return f"<w:tbl><w:tblPr/>{self.w.some(row)}{deleted}{control}</w:tbl>"

    def blocks(self, depth: int = _DEPTH) -> str:
        def block() -> str:
            makers: list[Callable[[], str]] = [lambda: self.paragraph(depth)]
            if depth > 0:
                makers += [lambda: self.table(depth)]
                makers += [
                    lambda start=start, end=end: start + self.blocks(depth - 1) + end
                    for start, end in (
                        ("<w:sdt><w:sdtPr/><w:sdtContent>", "</w:sdtContent></w:sdt>"),
                        ("<w:customXml>", "</w:customXml>"),
                        ("<x:new>", "</x:new>"),
                    )
                ]
            return self.w.one_of(*makers)

        return self.w.some(block)


@given(st.data())
def test_each_run_of_a_word_file_is_read_once(data: st.DataObject) -> None:
    written = Written(data.draw)
    text = WordText(written)
    body = text.blocks()
    header = f"<w:p>{text.run()}</w:p>"
    comment = "<w:comment><w:p><w:r><w:t>a remark</w:t></w:r></w:p></w:comment>" * data.draw(st.integers(0, 2))
    content = word_file(
        body,
        footnotes="".join(written.notes.values()),
        endnotes="".join(text.endnotes.values()),
        headers=(header, header),
        comments=comment,
    )
    check(Word(), content, written)
    assert any(part.part == "comments" for part in read(Word(), content)[1]) == bool(comment)


# ----------------------------------------------------------------------------------------------------- OpenDocument


class OpenDocumentText:
    """Writes the body of an OpenDocument text."""

    STYLES = (
        '<style:style style:name="Gone"><style:text-properties text:display="none"/></style:style>'
        '<style:style style:name="Lower" style:parent-style-name="Gone"/>'
    )

    def __init__(self, written: Written) -> None:
        self.w = written

    def words(self, kind: str = "seen") -> str:
        return f" {self.w.word(kind)} "

    def inline(self, depth: int = _DEPTH) -> str:
        def wrapped(name: str, kind: str = "") -> Callable[[], str]:
            return lambda: f"<{name}>{self.w.some(lambda: self.inline(depth - 1))}</{name.partition(' ')[0]}>"

        def bare(name: str, kind: str) -> Callable[[], str]:
            return lambda: f"<{name}>{self.words(kind)}</{name.partition(' ')[0]}>"

        makers: list[Callable[[], str]] = [
            self.words,
            bare('text:hidden-text text:is-hidden="true"', "hidden"),
            bare('text:span text:style-name="Gone"', "hidden"),
            bare('text:span text:style-name="Lower"', "hidden"),
            bare("text:title", "seen"),
            bare("text:script", "unseen"),
            lambda: f"<office:annotation><text:p>{self.words('unseen')}</text:p></office:annotation>",
            lambda: f"<draw:frame><svg:title>{self.words('unseen')}</svg:title></draw:frame>",
            lambda: "<!-- a remark --><text:s text:c='2'/><text:tab/><text:line-break/>",
        ]
        if depth:
            makers += [wrapped(name) for name in ("text:span", "text:a", "text:date", "text:meta", "x:new")]
            makers += [
                lambda: (
                    f"<text:note><text:note-citation>{self.words('unseen')}</text:note-citation>"
                    f"<text:note-body>{self.blocks(depth - 1)}</text:note-body></text:note>"
                ),
                lambda: f"<draw:frame><draw:text-box>{self.blocks(depth - 1)}</draw:text-box></draw:frame>",
                lambda: f"<draw:custom-shape>{self.blocks(depth - 1)}</draw:custom-shape>",
                lambda: (
                    f"<text:ruby><text:ruby-base>{self.words()}</text:ruby-base>"
                    f"<text:ruby-text>{self.words()}</text:ruby-text></text:ruby>"
                ),
            ]
        return self.w.one_of(*makers)

    def blocks(self, depth: int = _DEPTH) -> str:
        def wrapped(start: str, end: str) -> Callable[[], str]:
            return lambda: start + self.blocks(depth - 1) + end

        def block() -> str:
            makers: list[Callable[[], str]] = [
                lambda: f"<text:p>{self.w.some(lambda: self.inline(max(depth, 0)))}</text:p>",
                lambda: f"<text:h>{self.w.some(lambda: self.inline(max(depth, 0)))}</text:h>",
            ]
            if depth > 0:
                makers += [
                    wrapped("<text:list><text:list-item>", "</text:list-item></text:list>"),
                    wrapped("<text:section>", "</text:section>"),
                    wrapped("<x:new>", "</x:new>"),
                    wrapped("<text:table-of-content><text:index-body>", "</text:index-body></text:table-of-content>"),
                    lambda: self.table(depth),
                    lambda: f'<text:section text:display="none"><text:p>{self.words("hidden")}</text:p></text:section>',
                ]
            return self.w.one_of(*makers)

        return self.w.some(block)

    def table(self, depth: int) -> str:
        def cell() -> str:
            return f"<table:table-cell>{self.blocks(depth - 1)}</table:table-cell>"

        def row() -> str:
            return f"<table:table-row>{self.w.some(cell)}</table:table-row>"

        head = f"<table:table-header-rows>{row()}</table:table-header-rows>"
        return f"<table:table>{head}{self.w.some(row)}</table:table>"


@given(st.data())
def test_each_run_of_an_open_document_is_read_once(data: st.DataObject) -> None:
    written = Written(data.draw)
    text = OpenDocumentText(written)
    changes = (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>"
        f"{text.words('unseen')}</text:p></text:deletion></text:changed-region></text:tracked-changes>"
    )
    header = f"<text:p>{text.words()}</text:p>"
    pages = f"<style:header>{header}</style:header><style:header-left>{header}</style:header-left>"
    body = changes + text.blocks()
    check(OpenDocument(), open_document_file(body, styles=text.STYLES, pages=pages), written)


# -------------------------------------------------------------------------------------------------------------- RTF


class RichTextBody:
    """Writes the body of a file in Rich Text Format."""

    HEAD = (
        r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Arial;}{\f1\fcharset204 Arial Cyr;}{\f2\fcharset128 Mincho;}"
        r"{\f3\fcharset2 Symbol;}}{\colortbl;\red0;}{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 heading 1;}}"
        r"{\info{\title Lease}{\operator Ann}}{\*\generator Made;}"
    )

    def __init__(self, written: Written) -> None:
        self.w = written

    def words(self, kind: str = "seen") -> str:
        return f" {self.w.word(kind)} "

    def inline(self, depth: int = _DEPTH) -> str:
        def group(start: str, kind: str = "seen") -> Callable[[], str]:
            return lambda: f"{{{start}{self.words(kind)}}}"

        def wrapped(start: str, end: str = "") -> Callable[[], str]:
            return lambda: f"{{{start} {self.w.some(lambda: self.inline(depth - 1))}{end}}}"

        makers: list[Callable[[], str]] = [
            self.words,
            group(r"\b"),
            group(r"\f1\'c4\'ee "),
            group(r"\uc1\u8364?\u-10179?\u-9139? "),
            group(r"\revised"),
            group(r"\deleted", "unseen"),
            group(r"\v", "hidden"),
            group(r"\*\unknown", "unseen"),
            group(r"\pict", "unseen"),
            group(r"\xe", "unseen"),
            lambda: rf"\deleted {self.words('unseen')}\par\deleted0 {self.words()}",
            lambda: rf"\plain\v {self.words('hidden')}\plain {self.words()}",
            lambda: r"\tab\line\~\_\{\}\\ \emdash ",
        ]
        if depth:
            makers += [
                wrapped(""),
                wrapped(r"\newword"),
                wrapped(r"\field{\*\fldinst HYPERLINK}{\fldrslt ", "}"),
                wrapped(r"\upr{\b lost}{\*\ud ", "}"),
                lambda: rf"{{\footnote \chftn {self.paragraphs(depth - 1)}}}",
                lambda: rf"{{\*\footnote \ftnalt {self.paragraphs(depth - 1)}}}",
                lambda: self.box(depth),
            ]
        return self.w.one_of(*makers)

    def box(self, depth: int) -> str:
        content = f"x {self.words()} {self.paragraphs(depth - 1)}"
        new = rf"{{\*\shpinst{{\sp{{\sn fLine}}{{\sv 0}}}}{{\shptxt {content}}}}}"
        return rf"{{\shp{new}{{\shprslt{{\*\do{{\dptxbxtext {content}}}}}}}}}"

    def paragraphs(self, depth: int = _DEPTH) -> str:
        def paragraph() -> str:
            start = self.w.draw(st.sampled_from([r"\pard ", r"\pard\s1 ", r"\pard\outlinelevel1 ", r"\pard\plain "]))
            return start + self.w.some(lambda: self.inline(depth)) + self.w.draw(st.sampled_from([r"\par ", "\\\n"]))

        def table() -> str:
            def cell() -> str:
                return self.w.some(lambda: self.inline(depth)) + r"\cell "

            def nested() -> str:
                row = r"{\*\nesttableprops\trowd\nestrow}{\nonesttables\par}"
                return rf"\pard\intbl\itap2 {self.words()}\nestcell{row}"

            within = self.w.one_of(str, nested) + r"\pard\intbl "
            return rf"\trowd\cellx1 {within}{self.w.some(cell)}\row "

        return self.w.some(lambda: self.w.one_of(paragraph, table))


@given(st.data())
def test_each_run_of_a_rich_text_is_read_once(data: st.DataObject) -> None:
    written = Written(data.draw)
    text = RichTextBody(written)
    header = text.words()
    pages = rf"{{\header {header}\par}}{{\headerl {header}\par}}"
    end = data.draw(st.sampled_from(["}", " last"]))  # the file may be cut off
    content = (text.HEAD + pages + text.paragraphs() + end).encode("ascii")
    check(RichText(), content, written)
    assert any(part.part == "end" for part in read(RichText(), content)[1]) == (end != "}")


# ------------------------------------------------------------------------------------------------------------- HTML

_ELEMENTS = (
    "div", "p", "span", "b", "a", "section", "article", "address", "center", "time", "output", "figure", "figcaption",
    "ul", "li", "dl", "dt", "dd", "blockquote", "pre", "h1", "h4", "sup", "label", "button", "fieldset", "legend",
    "details", "summary", "aside", "footer", "header", "ruby", "rt", "font", "main-part", "ins", "del", "em", "td",
)  # fmt: skip


def page(written: Written, depth: int = 5) -> str:
    def element() -> str:
        name = written.draw(st.sampled_from(_ELEMENTS))
        named = written.draw(st.sampled_from(["", ' class="menu footer"', ' id="nav"', ' style="display: block"']))
        return f"<{name}{named}>{written.some(lambda: page(written, depth - 1))}</{name}>"

    def table() -> str:
        def row() -> str:
            cells = written.some(lambda: f"<td>{page(written, depth - 1)}</td>")
            return f"<tr>{cells}</tr>"

        return f"<table>{written.some(row)}</table>"

    makers: list[Callable[[], str]] = [
        lambda: f" {written.word()} ",
        lambda: f"<br>{written.word()}<!-- a remark --> {written.word()} <hr> {written.word()} ",
        lambda: f"<input value='{written.word()}'><input type=hidden value='{written.word('unseen')}'>",
    ]
    makers += [
        lambda: f'<iframe srcdoc="{html.escape(written.some(lambda: page(written, 0)))}"></iframe>',
        lambda: f"<template shadowrootmode=open>{written.some(lambda: page(written, 0))}</template>",
        # What is set apart on the page, or replaces another word, is a word of its own.
        lambda: "<x-a>{}</x-a>{}<i style='display: inline-block'>{}</i>{}<del>{}</del><ins>{}</ins> ".format(
            *(written.word() for _ in range(6))
        ),
        lambda: "<svg><text>{}</text><text>{}<tspan y=9>{}</tspan></text></svg><button>{}</button>{} ".format(
            *(written.word() for _ in range(5))
        ),
    ]
    makers += [
        lambda start=start: f"<{start}>{written.word('unseen')}</{start.partition(' ')[0]}>"
        for start in ("script", "style", "template", "nav", "div role=navigation", "noscript")
    ]
    return written.one_of(*makers, *([element, table] if depth else []))


@pytest.mark.parametrize("is_in_main", [False, True])
@given(st.data())
def test_each_run_of_a_page_is_read_once(is_in_main: bool, data: st.DataObject) -> None:
    written = Written(data.draw)
    body = written.some(lambda: page(written), 6)
    if is_in_main:
        outside = written.word("unseen")
        body = f"<div>{outside}</div><div><main>{body}</main></div>"
    content = f"<!doctype html><html><head><title>Lease</title></head><body>{body}</body></html>"
    if not is_in_main:
        content += written.draw(st.sampled_from(["", "\n<html><head><title>Annex</title></head><body>"]))
        content += written.some(lambda: page(written), 2)
    content = content.encode()
    check(HTML(), content, written)
    if is_in_main:
        assert any(outside in part.reason for part in read(HTML(), content)[1])
