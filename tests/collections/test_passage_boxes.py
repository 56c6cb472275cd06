"""Passages are boxed where they are on their page, on pages of two makers, turned and cropped, or not at all."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")
pytest.importorskip("reportlab")

from support.page_files import PASSAGES, by_matplotlib, by_reportlab, ink, turned

from haybale.collections.files.file_reader import Unreadable, read_documents, reader_of
from haybale.collections.files.page_characters import PageCharacters, characters_of_table, letters_of
from haybale.collections.files.page_picture import draw_page, with_boxes
from haybale.collections.files.passage_boxes import (
    Box,
    boxes_of_lines,
    locate_end_of_word,
    locate_passages,
)

CROP = (60.0, 60.0, 800.0, 800.0)  # left, bottom, right and top in points


def boxes(data: bytes, number: int) -> tuple[bytes, list[Box]]:
    """Return the picture of the first page, and the boxes of a passage among those that the reader finds."""
    reader = reader_of("a.pdf")
    assert reader is not None
    texts = [part.text for part in read_documents(reader, data, {})[0][0].parts]
    page = draw_page(data, ".pdf", 0)
    located = locate_passages(texts, page.characters)[number]
    assert located is not None
    return page.picture, boxes_of_lines(page.characters, located)


@pytest.mark.parametrize("data", [
    *(by_reportlab(PASSAGES, 1, degrees) for degrees in (90, 180)),
    *(turned(by_reportlab(PASSAGES, 1, degrees), degrees, None) for degrees in (0, 90, 180, 270)),
    *(turned(by_reportlab(PASSAGES, 1, degrees), degrees, CROP) for degrees in (0, 90, 180, 270)),
    *(turned(by_matplotlib(PASSAGES, 1), degrees, crop) for degrees in (0, 180, 270) for crop in (None, CROP)),
])  # fmt: skip
def test_boxes_are_around_the_ink_of_the_passage_and_no_other(data: bytes) -> None:
    picture, found = boxes(data, 1)
    recall, precision = ink(picture, found)
    assert recall > 0.98
    assert precision > 0.98
    assert len(found) == 3  # lines


def test_equal_passages_are_told_apart_by_their_order() -> None:
    texts = ["Rent.", PASSAGES[0], "Rent.", PASSAGES[1], "Rent.", PASSAGES[0]]
    for red in range(len(texts)):
        recall, precision = ink(*boxes(by_reportlab(texts, red), red))
        assert min(recall, precision) > 0.95, red


def test_a_picture_with_boxes_is_marked_in_them_alone() -> None:
    from PIL import Image

    drawn = draw_page(by_reportlab(PASSAGES, 1), ".pdf", 0)
    box = Box(0.25, 0.5, 0.5, 0.6)
    before, after = (
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
        for data in (drawn.picture, with_boxes(drawn.picture, [box])[0])
    )
    changed = (before != after).any(axis=-1)
    rows, columns = np.nonzero(changed)
    margin = 5
    assert abs(rows.min() - box.top * drawn.height) < margin
    assert abs(rows.max() - box.bottom * drawn.height) < margin
    assert abs(columns.min() - box.left * drawn.width) < margin
    assert abs(columns.max() - box.right * drawn.width) < margin


def characters(text: str) -> PageCharacters:
    """Return characters of a page that stand side by side."""
    n = len(text)
    return PageCharacters.of([*text], np.array([[i, 0, i + 1, 1] for i in range(n)], dtype=np.float32) / max(n, 1))


WORDS = st.lists(st.text("abcdefßöﬁ", min_size=1, max_size=8), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=8))
def test_the_passages_of_a_page_are_all_located_one_after_the_other(passages: list[list[str]]) -> None:
    texts = [" ".join(words) for words in passages]
    page = characters("\n".join(texts))
    located = locate_passages(texts, page)
    end = 0
    for text, at in zip(texts, located, strict=True):
        assert at is not None
        assert page.letters[at.start : at.end] == letters_of(text)
        assert at.start == end
        end = at.end
    assert end == len(page.letters)


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS)
def test_what_is_not_on_the_page_gets_no_place(passage: list[str], others: list[str]) -> None:
    page = characters(" ".join(others))
    text = " ".join(passage) + " absent"
    (located,) = locate_passages([text], page)
    assert located is None or located.letters_over
    if located is not None:
        assert letters_of(text) == page.letters[located.start : located.end] + located.letters_over
        assert "absent".endswith(located.letters_over)


def test_a_word_that_is_divided_between_pages_is_found_on_both() -> None:
    first, second = characters("Rent. The tenant returns the pre-"), characters("12 mises. The lessor")
    (_, located) = locate_passages(["Rent.", "The tenant returns the premises."], first)
    assert located is not None
    assert first.letters[located.start : located.end] == "thetenantreturnsthepre"
    rest = locate_end_of_word(located.letters_over, second)
    assert rest is not None
    assert second.letters[rest.start : rest.end] == "mises"


def test_the_words_of_a_recognised_page_have_boxes() -> None:
    names = "level page_num block_num par_num line_num word_num left top width height conf text"
    rows = [
        "1 1 0 0 0 0 0 0 1000 2000 -1 ",
        "5 1 1 1 1 1 100 200 400 40 96 Rent",
        "5 1 1 1 1 2 550 200 50 40 96 is",
        "5 1 1 1 2 1 100 260 100 40 96 due",
    ]
    (page,) = characters_of_table("\n".join("\t".join(row.split(" ")) for row in (names, *rows)))
    (located,) = locate_passages(["Rent is due"], page)
    assert located is not None
    found = boxes_of_lines(page, located)
    assert np.allclose(found, [(0.1, 0.1, 0.6, 0.12), (0.1, 0.13, 0.2, 0.15)])


def test_a_huge_page_is_drawn_small_and_a_page_that_is_not_there_is_refused() -> None:
    from PIL import Image
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(28_346, 28_346))  # 10 m x 10 m
    canvas.setFont("Helvetica", 900)
    canvas.drawString(2_000, 14_000, "A plan of the site")
    canvas.save()
    drawn = draw_page(out.getvalue(), ".pdf", 0)
    assert drawn.width * drawn.height <= 4_000_000
    assert "10.00 × 10.00 m" in drawn.note
    narrow = io.BytesIO()
    canvas = Canvas(narrow, pagesize=(14_400, 1))
    canvas.line(0, 0, 9_000, 0)
    canvas.save()
    assert max(draw_page(narrow.getvalue(), ".pdf", 0)[2:4]) <= 8_000
    with pytest.raises(Unreadable, match="from 1 to 1"):
        draw_page(out.getvalue(), ".pdf", 1)
    picture = io.BytesIO()
    Image.new("L", (6_000, 4_000), 200).save(picture, "PNG")
    drawn = draw_page(picture.getvalue(), ".png", 0)
    assert drawn.width * drawn.height <= 4_000_000
    with pytest.raises(Unreadable, match="damaged"):
        draw_page(b"no picture", ".png", 0)


def test_an_encrypted_file_is_refused() -> None:
    encryption = pytest.importorskip("reportlab.lib.pdfencrypt").StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, encrypt=encryption("secret"))
    canvas.drawString(72, 700, "Nobody reads this.")
    canvas.save()
    with pytest.raises(Unreadable, match="encrypted"):
        draw_page(out.getvalue(), ".pdf", 0)


def test_a_turned_photo_stands_upright() -> None:
    from PIL import Image

    image, out = Image.new("RGB", (60, 40), "white"), io.BytesIO()
    exif = image.getexif()
    exif[0x0112] = 6  # orientation: turn by a quarter
    image.save(out, "JPEG", exif=exif)
    assert draw_page(out.getvalue(), ".jpg", 0)[2:4] == (40, 60)
