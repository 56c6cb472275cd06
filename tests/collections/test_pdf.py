"""Tests of the reader of PDF files: every text that is written into one comes out once, or its page is listed."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.collections.files.divided_words import DocumentWords, join_divided
from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.collections.files.pdf_pages import pdf_date

pypdfium2 = pytest.importorskip("pypdfium2")
Canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas

WORDS = st.lists(st.text("abdefgilmnorstuäöüé", min_size=6, max_size=12), min_size=4, max_size=40, unique=True)


def pdf(*pages: Callable[[Any], object], **options: Any) -> bytes:
    """Return a file whose pages are drawn by functions."""
    file = io.BytesIO()
    canvas = Canvas(file, **options)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def lines(*texts: str, top: float = 770, step: float = 14) -> Callable[[Any], None]:
    """Return a function that draws lines below each other."""

    def draw(canvas: Any) -> None:
        for i, text in enumerate(texts):
            canvas.drawString(72, top - step * i, text)

    return draw


def picture(canvas: Any) -> None:
    """Draw a picture that fills the page."""
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    canvas.drawImage(ImageReader(Image.new("L", (60, 80), 200)), 0, 0, 595, 842)


def with_file(data: bytes, name: str, content: bytes) -> bytes:
    """Return a PDF file with a file in it."""
    opened = pypdfium2.PdfDocument(data)
    opened.new_attachment(name).set_data(content)
    out = io.BytesIO()
    opened.save(out)
    return out.getvalue()


def read(data: bytes) -> tuple[list[FileDocument], dict[str, str]]:
    """Return the documents of a PDF file, and the reasons by parts that were not read."""
    reader = reader_of("file.pdf")
    assert reader is not None
    documents, unread = read_documents(reader, data, {})
    return documents, {part.part: part.reason for part in unread}


def paragraphs(data: bytes) -> list[str]:
    return [part.text for part in read(data)[0][0].parts]


@settings(max_examples=40, deadline=None)
@given(WORDS, st.integers(0, 2**32), st.integers(1, 5))
def test_every_word_comes_out_once_wherever_lines_and_pages_divide_it(
    words: list[str], seed: int, n_lines: int
) -> None:
    rng = random.Random(seed)
    rows = [" ".join(words)]  # each word is in the file undivided, too
    for word in words:
        if rng.random() < 0.4:
            at = rng.randint(2, len(word) - 2)
            rows[-1] += f" {word[:at]}-"
            rows.append(word[at:])
        else:
            rows[-1] += f" {word}"
    with_page_numbers = [[*rows[at : at + n_lines], str(at)] for at in range(0, len(rows), n_lines)]
    documents, unread = read(pdf(*(lines(*page) for page in with_page_numbers), pagesize=(20_000, 842)))
    counts = Counter(word for part in documents[0].parts for word in part.text.split() if not word.isdigit())
    assert counts == dict.fromkeys(words, 2)
    assert not unread


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("ab-–\u00ad\u2010 1Aé.,;\n", max_size=12), max_size=8))
def test_joining_divided_words_loses_no_letter(texts: list[str]) -> None:
    texts = [" ".join(text.split()) for text in texts]
    joined = list(join_divided(texts, DocumentWords.of_lines(texts)))
    assert len(joined) == len(texts)
    letters = ["".join(c for c in "".join(rows) if c.isalnum()) for rows in (texts, joined)]
    assert letters[0] == letters[1]


@pytest.mark.parametrize(
    ("divided", "whole"),
    [
        ("Miet-|und Pachtvertrag", "Miet- und Pachtvertrag"),
        ("Ein-|bzw. Ausfuhr", "Ein- bzw. Ausfuhr"),
        ("in-|en uitvoer", "in- en uitvoer"),
        ("two-|to three-year", "two- to three-year"),
        ("MIET-|UND PACHTRECHT", "MIET- UND PACHTRECHT"),
        ("Be-|und Entladestelle", "Be- und Entladestelle"),
        ("Sorgfalts-|pflicht entsteht", "Sorgfaltspflicht entsteht"),
        ("Kin-|der Berlins", "Kinder Berlins"),
        ("VERWAL-|TUNG", "VERWALTUNG"),
        ("Nord-|Süd-Verbindung", "Nord-Süd-Verbindung"),
        ("10-|jährige Frist", "10-jährige Frist"),
        ("Covid-|19", "Covid-19"),
        ("e-|mail", "e-mail"),
        ("kom-|şu", "komşu"),
    ],
)
def test_hyphens_at_ends_of_lines(divided: str, whole: str) -> None:
    rows = divided.split("|")
    assert " ".join(filter(None, join_divided(rows, DocumentWords.of_lines(rows)))) == whole


def test_the_words_of_a_document_tell_hyphens_apart() -> None:
    def joined(context: str, divided: str) -> str:
        rows = [context, *divided.split("|")]
        return " ".join(filter(None, list(join_divided(rows, DocumentWords.of_lines(rows)))[1:]))

    assert joined("a long-term loan", "a long-|term view") == "a long-term view"
    assert joined("a viewpoint", "the view-|point of") == "the viewpoint of"
    assert joined("prze- lub poporodowy", "przed-|lub popołudniowy") == "przed- lub popołudniowy"
    assert joined("wir werden", "sie wer-|den Pachtverträge") == "sie werden Pachtverträge"


def test_words_are_joined_over_pages_past_headers_page_numbers_and_footnotes() -> None:
    def page(number: int, *body: str) -> Callable[[Any], None]:
        def draw(canvas: Any) -> None:
            canvas.setFont("Helvetica", 11)
            lines("District court", *body, top=800)(canvas)
            canvas.setFont("Helvetica", 8)
            canvas.drawString(72, 90, f"{number} See the annex.")
            canvas.setFont("Helvetica", 11)
            canvas.drawString(300, 40, f"Page {number} of 2")

        return draw

    data = pdf(
        page(1, "The lessee shall return", "the house and all pre-"),
        page(2, "mises in good order", "at the end of it."),
    )
    texts = paragraphs(data)
    assert any("all premises" in text for text in texts)
    assert sum("See the annex." in text for text in texts) == 2


def test_paragraphs_end_at_gaps() -> None:
    def draw(canvas: Any) -> None:
        lines("The first paragraph has", "two lines of text here")(canvas)
        lines("and the second one begins", "below a gap", top=770 - 28 - 12)(canvas)

    assert paragraphs(pdf(draw)) == [
        "The first paragraph has two lines of text here",
        "and the second one begins below a gap",
    ]


def test_turned_lines_stay_lines() -> None:
    def draw(canvas: Any) -> None:
        canvas.drawString(72, 770, "Level text")
        for angle in (90, 45, 180):
            canvas.saveState()
            canvas.translate(300, 400)
            canvas.rotate(angle)
            canvas.drawString(60, 0, f"turned{angle} text")
            canvas.restoreState()

    assert " ".join(paragraphs(pdf(draw))) == "Level text turned90 text turned45 text turned180 text"


def test_pages_without_text_are_listed() -> None:
    data = pdf(lines("The cover."), picture, lambda canvas: canvas.rect(9, 9, 99, 99), lambda canvas: None)
    documents, unread = read(data)
    assert [part.page for part in documents[0].parts] == [1]
    assert list(unread) == ["page 2", "page 3"]  # nothing is on page 4
    assert all("OCR" in reason for reason in unread.values())

    def stamped(canvas: Any) -> None:
        picture(canvas)
        canvas.drawString(9, 9, "Exhibit 12")

    documents, unread = read(pdf(stamped, lines("Text.")))
    assert [part.text for part in documents[0].parts] == ["Exhibit 12", "Text."]
    assert list(unread) == ["page 1"]


def test_fields_and_annotations_are_read_and_comments_are_listed() -> None:
    def form(canvas: Any) -> None:
        canvas.drawString(72, 750, "Name of plaintiff:")
        canvas.acroForm.textfield(name="a", value="Aurora Shipping", x=200, y=740, width=200, height=20)
        options = [("Maritime chamber", "m"), ("Labour chamber", "l")]
        canvas.acroForm.choice(name="b", value="Maritime chamber", options=options, x=200, y=700, width=200, height=20)

    def notes(canvas: Any) -> None:
        canvas.drawString(72, 750, "The lease.")
        canvas.freeTextAnnotation("Received in April", DA="/Helv 12 Tf 0 g", Rect=(72, 500, 300, 560))
        canvas.textAnnotation("Is that so?", Rect=(72, 400, 90, 420))

    for pages in ((form, notes), (notes,)):
        documents, unread = read(pdf(*pages))
        text = " ".join(part.text for part in documents[0].parts)
        shown = ["The lease.", "Received in April"]
        shown += ["Name of plaintiff:", "Aurora Shipping", "Maritime chamber"] if form in pages else []
        assert [text.count(words) for words in shown] == [1] * len(shown)
        assert "Is that so?" not in text
        assert list(unread) == ["comments"]


def test_embedded_files_are_documents_or_listed() -> None:
    inner = pdf(lines("The annex."), picture)
    data = with_file(with_file(pdf(lines("The contract.")), "annex.pdf", inner), "photo.heic", b"picture")
    documents, unread = read(data)
    assert [(document.key, document.parts[0].text) for document in documents] == [
        (None, "The contract."),
        ("annex.pdf", "The annex."),
    ]
    assert list(unread) == ["embedded file annex.pdf, page 2", "embedded file photo.heic"]


def test_encrypted_files_open_without_a_password_or_say_that_they_need_one() -> None:
    encryption = pytest.importorskip("reportlab.lib.pdfencrypt").StandardEncryption
    assert paragraphs(pdf(lines("Void."), encrypt=encryption("", ownerPassword="owner", strength=128))) == ["Void."]
    documents, unread = read(pdf(lines("Void."), encrypt="secret"))
    assert not documents
    assert "password" in unread[""]


@pytest.mark.parametrize("text", ["", "D:", "D:20159999", "D:2015030112000", "2015-03-01", "D:20150301250000"])
def test_dates_that_are_none(text: str) -> None:
    assert pdf_date(text) is None or pdf_date(text).year == 2015  # type: ignore[union-attr]
