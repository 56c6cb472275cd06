"""Web pages: character sets, paragraphs without elements, terms, tables, the main element, what trafilatura finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.character_sets import characters_of

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import read_documents
from haybale.collections.files.html import HTML
from haybale.collections.readers.files import read_files
from haybale.collections.unread import UnreadPart
from haybale.errors import UnknownNameError

LONG = "The lessor shall keep the premises in good repair during the whole term of this lease and bear all costs of it."


def read(page: str | bytes, **options: str) -> tuple[FileDocument, list[UnreadPart]]:
    data = page.encode() if isinstance(page, str) else page
    (document,), unread = read_documents(HTML(), data, options)
    return document, unread


def texts(page: str | bytes) -> list[str]:
    """Return the texts of the parts; headings are in brackets."""
    return [part.text or f"[{part.heading}]" for part in read(page)[0].parts]


@pytest.mark.parametrize(("page", "expected"), [
    ("one<div>two</div>three", ["one", "two", "three"]),
    ("<span style='display:block'>one</span><span>two</span> <new-word>three</new-word>", ["one", "two three"]),
    ("<p>The tenant<br>shall pay.<br>The lessor<br><br>shall not",
     ["The tenant\nshall pay.", "The lessor", "shall not"]),
    ("§ 1 Scope<br>§ 2 Term<br>(a) one<br>and two", ["§ 1 Scope", "§ 2 Term", "(a) one\nand two"]),
    ("<pre>§ 1\n  one\n\ntwo</pre>", ["§ 1\n  one", "two"]),
    ("<dl><dt>Lessor<dd>who lets<dd>land<dt>Lessee<dt>Tenant<dd>who takes</dl>",
     ["Lessor\nwho lets", "land", "Lessee\nTenant\nwho takes"]),
    ("<dl><dt>Lessor</dl>after", ["Lessor", "after"]),
    ("<div><span>1</span><div>One is due.</div></div><div><b>12a.</b><p>Two", ["1 One is due.", "12a. Two"]),
    ("<h1>A</h1><h2>B<br>C</h2><p>one<h3>D</h3>", ["[A]", "[B C]", "one", "[D]"]),
    ("<p role=heading>A</p>one", ["[A]", "one"]),
    ("<table><caption>Fees</caption><tr><th>Court<th>Fee<tr><td>Local<td><ul><li>one<li>two</ul></table>",
     ["Fees", "Court | Fee", "Local | one two"]),
    ("<table><tr><td><p>one<p>two<table><tr><td>a<td>b</table></table>", ["one", "two", "a | b"]),
    (f"<table><tr><td>{''.join(f'<p>{LONG} {n}' for n in range(9))}<td>right</table>",
     [*(f"{LONG} {n}" for n in range(9)), "right"]),
    ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby>です", ["漢字です", "kan", "ji"]),
    ("<select><option>one<option>two</select><textarea>three\n\nfour</textarea>", ["one two", "three", "four"]),
    ("<details><summary>More</summary>folded</details><p hidden>shown", ["More", "folded", "shown"]),
    ("<?xml version='1.0' encoding='utf-8'?><html xmlns='http://www.w3.org/1999/xhtml'><p>one<br/>two</p></html>",
     ["one\ntwo"]),
    ("<h2><div>A</div></h2><p>one", ["[A]", "one"]),
    ("<svg><title>t</title><text>drawn</text></svg><math><mi>a</mi><annotation>b</annotation></math>", ["drawn a"]),
    ("<p>" + "<div>" * 1000 + "deep", ["deep"]),
])  # fmt: skip
def test_blocks(page: str, expected: list[str]) -> None:
    assert texts(page) == expected


def test_title_and_metadata() -> None:
    page = (
        "<head><meta name=author content='Ann'><meta property='article:published_time' content='2015-03-01'>"
        "<title>Lease\n law</title></head><svg><title>picture</title></svg><h1>Rent</h1>one"
    )
    document, unread = read(page)
    assert (document.title, document.metadata, unread) == ("Lease law", {"author": "Ann", "date": "2015-03-01"}, [])


def test_what_is_outside_of_the_main_element_is_listed_except_menus() -> None:
    page = "<nav>Home</nav><div>We use cookies.</div><main><h1>A</h1>one</main>tail<div role=main>two</div>"
    document, (part,) = read(page)
    assert [part.text for part in document.parts] == ["", "one", "two"]
    assert (part.part, "We use cookies. tail" in part.reason) == ("outside of the main element", True)
    assert texts("<div role=Navigation>Home</div><footer>Signed</footer>one") == ["Signed", "one"]


def test_a_page_that_the_parser_cuts_off_is_listed() -> None:
    documents, unread = read_documents(HTML(), ("<p>one" + "<div>" * 3000 + "deep").encode(), {})
    assert documents
    assert [part.part for part in unread] == ["end"]


DECLARED = {"cp949": "euc-kr"}  # what browsers read as the wider set of that name
CODECS = (
    "utf-8",
    "koi8-r",
    "windows-1251",
    "iso-8859-2",
    "iso-8859-7",
    "shift_jis",
    "big5",
    "cp949",
    "gb2312",
    "tis-620",
)


@given(st.sampled_from(CODECS), st.booleans(), st.data())
def test_a_declared_character_set_is_followed(codec: str, is_short: bool, data: st.DataObject) -> None:
    characters = st.characters(categories=("L",)) if codec == "utf-8" else characters_of(codec, "L")
    word = data.draw(st.text(characters.filter(lambda drawn: drawn != "\u3164"), min_size=1))
    http = f"<meta http-equiv='Content-Type' content='text/html; charset={DECLARED.get(codec, codec).upper()}'>"
    declaration = f"<meta charset={DECLARED.get(codec, codec)}>" if is_short else http
    assert texts(f"<html><head>{declaration}</head><body>{word}</body></html>".encode(codec)) == [word]


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_pages_that_declare_none_or_another_character_set(codec: str) -> None:
    assert texts("<html><body>Gebühr</body></html>".encode(codec)) == ["Gebühr"]
    assert texts("<html><meta charset='utf-8'><body>Gebühr</body></html>".encode(codec)) == ["Gebühr"]
    assert texts("<html><meta charset='x-none'><body>Gebühr</body></html>".encode(codec)) == ["Gebühr"]


def test_the_main_text_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura")
    page = f"<html><body><div class='sidebar'><a href='/'>All decisions</a></div><article><h2>Rent</h2><p>{LONG}</p>"
    page += f"<p>{LONG} {LONG}</p></article></body></html>"
    assert "All decisions" in texts(page)
    assert "All decisions" not in [part.text for part in read(page, html="main-text")[0].parts]
    (tmp_path / "page.html").write_text(page)
    wholes = [read_files(tmp_path, {"html": html}).document_texts()[0] for html in ("all-text", "main-text")]
    assert ["All decisions" in whole for whole in wholes] == [True, False]
    assert all(LONG in whole for whole in wholes)
    with pytest.raises(UnknownNameError):
        read_files(tmp_path, {"html": "main"})
    with pytest.raises(UnknownNameError):
        read_files(tmp_path, {"htlm": "main-text"})
