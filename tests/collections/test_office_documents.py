"""Word, OpenDocument and RTF files: headings and titles, notes in their order, what is embedded, encodings, errors."""

from __future__ import annotations

import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.character_sets import characters_of
from support.office_files import open_document_file, packed, word_file

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import FileReader, read_documents
from haybale.collections.files.open_document import OpenDocument
from haybale.collections.files.rich_text import RichText
from haybale.collections.files.word import Word
from haybale.collections.unread import UnreadPart

COMPOUND_FILE = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512)


def read(reader: FileReader, data: bytes) -> tuple[FileDocument, list[UnreadPart]]:
    (document,), unread = read_documents(reader, data, {})
    return document, unread


def texts(document: FileDocument) -> list[str]:
    """Return the texts of the parts; headings are in brackets."""
    return [part.text or f"[{part.heading}]" for part in document.parts]


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def styled(text: str, style: str) -> str:
    return paragraph(text, f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>')


def test_headings_of_word_by_style_by_a_style_based_on_it_and_by_level() -> None:
    level = '<w:pPr><w:outlineLvl w:val="{}"/></w:pPr>'.format
    body = styled("Lease", "T") + styled("A", "H") + styled("B", "Own") + paragraph("one") + paragraph("C", level(2))
    body += paragraph("two", level(9)) + styled("D", "H")
    document, unread = read(Word(), word_file(body, title="The lease of 2015"))
    assert texts(document) == ["[Lease]", "[A]", "[B]", "one", "[C]", "two", "[D]"]
    assert [part.heading for part in document.parts if part.text] == ["B", "C"]
    assert (document.title, unread) == ("The lease of 2015", [])
    assert read(Word(), word_file(body))[0].title == "Lease"


def test_notes_and_boxes_follow_their_paragraph_and_page_headers_the_text() -> None:
    note = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    box = f"<w:r><w:pict><w:txbxContent>{paragraph('boxed')}{styled('Head', 'H')}</w:txbxContent></w:pict></w:r>"
    body = (
        f"<w:p><w:r><w:t>vo</w:t></w:r>{note}{box}<w:r><w:t>id</w:t></w:r></w:p><w:p>{note}</w:p>{paragraph('after')}"
    )
    footnotes = f'<w:footnote w:id="2">{paragraph("See A.")}{paragraph("See B.")}</w:footnote>'
    data = word_file(body, footnotes=footnotes, headers=(paragraph("4 O 1/20"), paragraph("4 O 1/20")))
    assert texts(read(Word(), data)[0]) == ["void", "See A.", "See B.", "boxed", "[Head]", "after", "4 O 1/20"]


def test_a_deleted_end_of_a_paragraph_joins_two() -> None:
    deleted = "<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>"
    body = paragraph("one ", deleted) + paragraph("two") + paragraph("last ", deleted)
    assert texts(read(Word(), word_file(body))[0]) == ["one two", "last"]


def test_fields_without_an_end_hide_nothing_and_lists_show_their_choice() -> None:
    begin = '<w:r><w:fldChar w:fldCharType="begin">{}</w:fldChar></w:r>'.format
    entries = '<w:result w:val="1"/><w:listEntry w:val="buyer"/><w:listEntry w:val="seller"/>'
    end = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    form = f"<w:p>{begin(f'<w:ffData><w:ddList>{entries}</w:ddList></w:ffData>')}{end}</w:p>"
    assert texts(read(Word(), word_file(form))[0]) == ["seller"]
    assert texts(read(Word(), word_file(f"<w:p>{begin('')}<w:r><w:t>kept</w:t></w:r></w:p>"))[0]) == ["kept"]


def test_numbers_of_paragraphs_are_read_as_they_are_seen() -> None:
    def level(n: int, kind: str, text: str, more: str = "") -> str:
        return (
            f'<w:lvl w:ilvl="{n}"><w:start w:val="{3 if n == 0 else 1}"/><w:numFmt w:val="{kind}"/>{more}'
            f'<w:lvlText w:val="{text}"/></w:lvl>'
        )

    levels = level(0, "decimal", "§ %1", '<w:pStyle w:val="H"/>') + level(1, "lowerLetter", "(%2)")
    levels += level(2, "upperRoman", "%1.%2.%3", "<w:isLgl/>") + level(3, "bullet", "\uf0b7")
    override = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/></w:lvlOverride>'
    numbering = (
        '<n xmlns:w="w"><w:abstractNum w:abstractNumId="7"><w:numStyleLink w:val="L"/></w:abstractNum>'
        f'<w:abstractNum w:abstractNumId="0"><w:styleLink w:val="L"/>{levels}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
        f'<w:num w:numId="2"><w:abstractNumId w:val="0"/>{override}</w:num></n>'
    )

    def item(text: str, n: int, number: int = 1, mark: str = "") -> str:
        place = f'<w:numPr><w:ilvl w:val="{n}"/><w:numId w:val="{number}"/></w:numPr>'
        return paragraph(text, f"<w:pPr>{place}<w:rPr>{mark}</w:rPr></w:pPr>")

    body = item("A", 0) + item("one", 1) + item("two", 1) + item("deep", 2) + item("gone ", 0, mark="<w:del/>")
    body += item("B", 0) + item("three", 1) + item("dot", 3) + item("none", 0, number=0) + item("C", 0, number=2)
    data = word_file(body, links={"numbering_1": "numbering.xml"}, more={"word/numbering.xml": numbering})
    assert texts(read(Word(), data)[0]) == [
        "§ 3 A", "(a) one", "(b) two", "3.2.1 deep", "gone § 4 B", "(a) three", "dot", "none", "§ 9 C",
    ]  # fmt: skip
    styles = '<s xmlns:w="w"><w:style w:styleId="H"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="1"/>'
    styles += "</w:numPr></w:pPr></w:style></s>"
    more: dict[str, str | bytes] = {"word/numbering.xml": numbering, "word/own.xml": styles}
    links = {"numbering_1": "numbering.xml", "styles": "own.xml"}
    document, _ = read(Word(), word_file(styled("Rent", "H") + styled("Term", "H"), links=links, more=more))
    assert texts(document) == ["[§ 3 Rent]", "[§ 4 Term]"]


def test_symbols_are_the_letters_that_are_seen() -> None:
    sym = '<w:r><w:sym w:font="{}" w:char="{}"/></w:r>'.format
    body = f"<w:p>{sym('Symbol', 'F061')}{sym('Symbol', '62')}{sym('Wingdings', 'F0FE')}{sym('Arial', '00E9')}</w:p>"
    assert texts(read(Word(), word_file(body))[0]) == ["αβ é"]
    assert texts(read(RichText(), rb"{\rtf1{\fonttbl{\f3\fcharset2 Symbol;}}\f3 a\f0 \'e9}")[0]) == ["αé"]


def test_charts_diagrams_and_inserted_documents_of_word_are_read() -> None:
    chart = (
        '<c:chart xmlns:c="c" xmlns:a="a"><a:p><a:r><a:t>Rents</a:t></a:r></a:p><c:ser><c:strRef><c:f>A1</c:f>'
        "<c:strCache><c:pt><c:v>Bonn</c:v></c:pt></c:strCache></c:strRef></c:ser><c:ser><c:strRef><c:f>A1</c:f>"
        "<c:strCache><c:pt><c:v>Bonn</c:v></c:pt></c:strCache></c:strRef></c:ser></c:chart>"
    )
    diagram = (
        '<d:dataModel xmlns:d="d" xmlns:a="a"><d:pt><a:p><a:r><a:t>First step</a:t></a:r></a:p></d:pt></d:dataModel>'
    )
    body = (
        '<w:p><w:r><w:drawing><x:chart r:id="chart_1"/></w:drawing><w:drawing><x:relIds r:dm="diagramData_1"/>'
        '</w:drawing></w:r></w:p><w:altChunk r:id="aFChunk_1"/><w:altChunk r:id="aFChunk_2"/>'
    )
    links = {
        "chart_1": "charts/chart1.xml", "diagramData_1": "diagrams/data1.xml",
        "aFChunk_1": "chunk.txt", "aFChunk_2": "chunk.xyz",
    }  # fmt: skip
    more: dict[str, str | bytes] = {
        "word/charts/chart1.xml": chart, "word/diagrams/data1.xml": diagram, "word/chunk.txt": "inserted text",
    }  # fmt: skip
    document, unread = read(Word(), word_file(body, links=links, more=more))
    assert texts(document) == ["Rents | Bonn", "First step", "inserted text"]
    assert [part.part for part in unread] == ["inserted document chunk.xyz"]


def test_embedded_objects_are_listed() -> None:
    links = {"package_1": "embeddings/fees.xlsx"}
    body = (
        paragraph("Fees:")
        + '<w:p><w:r><w:object><o:OLEObject ProgID="Excel.Sheet.12" r:id="package_1"/></w:object></w:r></w:p>'
    )
    _, unread = read(Word(), word_file(body, links=links))
    assert [part.part for part in unread] == ["embedded object fees.xlsx"]
    _, unread = read(RichText(), rb"{\rtf1 Fees:{\object\objemb{\*\objclass X}{\*\objdata 0105}{\result 9}}}")
    assert [part.part for part in unread] == ["embedded object 1"]
    frame = "<text:p>Fees:<draw:frame><draw:object-ole/></draw:frame></text:p>"
    _, unread = read(OpenDocument(), open_document_file(frame))
    assert [part.part for part in unread] == ["embedded object"]


def test_formulas_forms_titles_and_metadata_of_open_documents() -> None:
    math = '<math xmlns="m"><mi>a</mi><mo>=</mo><mn>2</mn><annotation>a = 2</annotation></math>'
    link = 'xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="./Object 1"'
    body = (
        '<office:forms><form:form><form:checkbox form:label="agreed"/><form:text form:current-value="Bonn"/>'
        "</form:form></office:forms>"
        '<text:p text:style-name="P1">Lease</text:p><text:h>Rent</text:h>'
        f"<text:p>It is <draw:frame><draw:object {link}/></draw:frame>due.</text:p>"
    )
    styles = '<style:style style:name="P1" style:parent-style-name="Title"/>'
    meta = "<dc:creator>Ann</dc:creator><meta:keyword>law</meta:keyword><meta:keyword>rent</meta:keyword>"
    data = open_document_file(body, styles=styles, meta=meta, more={"Object 1/content.xml": math})
    document, unread = read(OpenDocument(), data)
    assert texts(document) == ["agreed", "Bonn", "[Lease]", "[Rent]", "It is due.", "a = 2"]
    assert (document.title, document.metadata, unread) == ("Lease", {"author": "Ann", "keywords": "law, rent"}, [])


def test_an_open_document_in_one_file() -> None:
    office = "urn:oasis:names:tc:opendocument:xmlns"
    flat = (
        f'<office:document xmlns:office="{office}:office:1.0" xmlns:text="{office}:text:1.0"><office:body>'
        "<office:text><text:p>One file.</text:p></office:text></office:body></office:document>"
    )
    assert texts(read(OpenDocument(), flat.encode())[0]) == ["One file."]


@pytest.mark.parametrize(("reader", "data"), [
    (Word(), COMPOUND_FILE),
    (OpenDocument(), COMPOUND_FILE),
    (OpenDocument(), open_document_file("", more={
        "META-INF/manifest.xml": "<manifest><file-entry><encryption-data/></file-entry></manifest>"
    })),
])  # fmt: skip
def test_encrypted_documents_are_named(reader: FileReader, data: bytes) -> None:
    documents, (part,) = read_documents(reader, data, {})
    assert not documents
    assert "encrypted" in part.reason
    assert "damaged" not in part.reason


@pytest.mark.parametrize("data", [packed({"mimetype": "x"}), b"PK\x03\x04 cut off"])
@pytest.mark.parametrize("reader", [Word(), OpenDocument()])
def test_other_packed_files_are_listed(reader: FileReader, data: bytes) -> None:
    documents, unread = read_documents(reader, data, {})
    assert (documents, len(unread)) == ([], 1)


@pytest.mark.parametrize(("reader", "data"), [
    (Word(), word_file("<w:p><w:r><w:drawing><x:blip/></w:drawing></w:r></w:p>")),
    (OpenDocument(), open_document_file("<text:p><draw:frame><draw:image/></draw:frame></text:p>")),
])  # fmt: skip
def test_documents_of_pictures_alone_are_listed_as_scans(reader: FileReader, data: bytes) -> None:
    documents, (part,) = read_documents(reader, data, {})
    assert not documents
    assert "OCR" in part.reason


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    data = packed({
        "_rels/.rels": '<r><x Id="1" Type="/officeDocument" Target="d.xml"/></r>',
        "d.xml": f"{bomb}<d><body><p><r><t>&b;</t></r></p><p><r><t>kept</t></r></p></body></d>",
    })  # fmt: skip
    documents, _ = read_documents(Word(), data, {})
    assert not any("aaaaaaaaaa" in part.text for document in documents for part in document.parts)


CHARSETS = {
    0: "cp1252", 128: "cp932", 129: "cp949", 134: "gbk", 136: "cp950", 161: "cp1253", 162: "cp1254", 177: "cp1255",
    178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip


@given(st.sampled_from(sorted(CHARSETS)), st.booleans(), st.data())
def test_texts_in_fonts_of_any_character_set(charset: int, has_escapes: bool, data: st.DataObject) -> None:
    codec = CHARSETS[charset]
    text = data.draw(st.text(characters_of(codec, "LN").filter(lambda drawn: drawn != "\u3164"), min_size=1))
    escaped = "".join(f"\\'{byte:02x}" for byte in text.encode(codec))
    raw = re.sub(rb"([\\{}])", rb"\\\1", text.encode(codec)) if codec in ("cp1251", "cp1253") else escaped.encode()
    written = escaped.encode() if has_escapes else raw
    head = rf"{{\rtf1\ansi\ansicpg1252{{\fonttbl{{\f0 A;}}{{\f5\fcharset{charset} B;}}}}\f0 \'e9{{\f5 ".encode()
    document, unread = read(RichText(), head + written + rb"}\'e9}")
    assert (texts(document), unread) == ([f"é{text}é"], [])


@given(st.text(st.characters(categories=("L", "N", "So", "P")), min_size=1), st.integers(0, 3))
def test_any_text_in_unicode_with_substitutes(text: str, n_substitutes: int) -> None:
    units = text.encode("utf-16-le")
    numbers = [int.from_bytes(units[i : i + 2], "little", signed=True) for i in range(0, len(units), 2)]
    written = "".join(
        f"\\u{number} " + "\\'3f?x"[:4] * bool(n_substitutes) + "?" * (n_substitutes - 1) for number in numbers
    )
    document, unread = read(RichText(), rf"{{\rtf1\uc{n_substitutes} (".encode() + written.encode() + b")}")
    assert (texts(document), unread) == ([f"({text})"], [])


def test_bytes_that_a_character_set_does_not_have_are_listed() -> None:
    _, unread = read(RichText(), rb"{\rtf1\ansi one\'81 two}")
    assert [part.part for part in unread] == ["characters"]


def test_headings_notes_tables_and_metadata_of_rich_text() -> None:
    data = (
        rb"{\rtf1\ansi{\stylesheet{\s0 Normal;}{\s1 heading 1;}{\s2 Title;}}{\info{\author Ann}{\subject Rent\'e9}}"
        rb"\pard\s2 Lease\par\pard\s1 Costs\par\pard void{\footnote See A.\par See B.}.\par"
        rb"\trowd\intbl Court\cell 100\cell\row\pard last\par\pard\outlinelevel1 End}"
    )
    document, unread = read(RichText(), data)
    assert texts(document) == ["[Lease]", "[Costs]", "void.", "See A.", "See B.", "Court | 100", "last", "[End]"]
    assert (document.title, document.metadata, unread) == ("Lease", {"author": "Ann", "subject": "Renté"}, [])


def test_metadata_of_word() -> None:
    core = (
        '<c xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/"><dc:creator>Ann</dc:creator>'
        "<dcterms:created>2015-03-01T12:00:00Z</dcterms:created></c>"
    )
    data = packed({
        "_rels/.rels": '<r><x Id="1" Type="/officeDocument" Target="/d.xml"/>'
        '<x Id="2" Type="/core-properties" Target="core.xml"/></r>',
        "d.xml": "<d><body><p><r><t>one</t></r></p></body></d>",
        "core.xml": core,
    })  # fmt: skip
    created = datetime.datetime(2015, 3, 1, 12, tzinfo=datetime.UTC)
    assert read(Word(), data)[0].metadata == {"author": "Ann", "date": created}
