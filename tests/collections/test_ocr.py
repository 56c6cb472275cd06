"""Tests of OCR: which pages are recognised, by a double of Tesseract, and real pages where the program is installed."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale import BM25, Engine
from haybale.collections import Collection
from haybale.collections.files import rapid_ocr, tesseract
from haybale.collections.files.ocr import keeping_pages, kept_tables
from haybale.collections.files.pictures import pictures_in
from haybale.collections.files.rapid_ocr import RapidOCR
from haybale.collections.readers.files import read_files
from haybale.engine.update import record_files, signatures, update
from haybale.errors import InputError, UnknownNameError

pytest.importorskip("pypdfium2")
Image = pytest.importorskip("PIL.Image")
Canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas
ImageReader = pytest.importorskip("reportlab.lib.utils").ImageReader

# It knows a page by its mean brightness, and counts its calls. Pages at 99 make it fail.
DOUBLE = f"""#!{sys.executable}
import os, sys
if "--version" in sys.argv:
    print("tesseract 5.3.0")
elif "--list-langs" in sys.argv:
    print("List of available languages (3):\\ndeu\\neng\\nosd")
else:
    _, size, _, pixels = sys.stdin.buffer.read().split(b"\\n", 3)
    level = sorted(pixels)[len(pixels) // 2]
    with open(os.environ["CALLS"], "a") as calls:
        print(level, sys.argv[sys.argv.index("-l") + 1], file=calls)
    if level == 99:
        sys.exit("no page")
    print("\\t".join("level page_num block_num par_num line_num word_num left top width height conf text".split()))
    if level != 88:
        confidence = 20 if level == 77 else 95
        for line, text in enumerate(["page", "of", f"level {{level}}", "with pre-", "mises", "and", "end"]):
            for word in text.split():
                print(*(5, 1, 1, 1, line, 1, 0, 0, 9, 20, confidence, word), sep="\\t")
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a double of Tesseract on the path; the value is the file with a line for each page that it recognised."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tesseract").write_text(DOUBLE)
    (programs / "tesseract").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    tesseract._installed.cache_clear()
    yield tmp_path / "calls"
    tesseract._installed.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


def write_pdf(path: Path, *pages: int | str) -> None:
    """Write a file of pages with a picture of a brightness, or with a text."""
    canvas = Canvas(str(path), invariant=1)
    canvas.setTitle("")
    for page in pages:
        if isinstance(page, str):
            canvas.drawString(72, 700, page)
        else:
            canvas.drawImage(ImageReader(Image.new("L", (60, 85), page)), 0, 0, *canvas._pagesize)
        canvas.showPage()
    canvas.save()


def read(folder: Path, **options: str) -> Collection:
    return read_files(folder, options)


def texts(collection: Collection) -> dict[str, list[str]]:
    """Return the passages of each document."""
    passages, starts = collection.passages.texts.to_pylist(), collection.passages.doc_offsets.tolist()
    ids = collection.doc_ids.to_pylist()
    return {doc_id: passages[start:end] for doc_id, (start, end) in zip(ids, pairwise(starts), strict=True)}


def page_text(level: str) -> str:
    """Return what the double of Tesseract reads on a page."""
    return f"page of level {level} with premises and end"


def called(calls: Path) -> list[str]:
    return sorted(calls.read_text().splitlines()) if calls.exists() else []


def test_pages_without_a_text_are_recognised_and_say_so(folder: Path, calls: Path) -> None:
    write_pdf(folder / "mixed.pdf", "The cover.", 120, "The end.")
    write_pdf(folder / "scan.pdf", 130, 140)
    write_pdf(folder / "digital.pdf", "Nothing is missing.")
    Image.new("L", (30, 40), 200).save(folder / "photo.PNG")
    assert len(read(folder).unread) == 3
    assert not called(calls)
    collection = read(folder, ocr="missing", ocr_languages="deu")
    assert not collection.unread
    assert texts(collection) == {
        "digital.pdf": ["Nothing is missing."],
        "mixed.pdf": ["The cover.", page_text("120"), "The end."],
        "photo.PNG": [page_text("200")],
        "scan.pdf": [page_text("130"), page_text("140")],
    }
    assert called(calls) == ["120 deu", "130 deu", "140 deu", "200 deu"]
    assert collection.sections is not None
    titles = [str(title) for title in collection.sections.titles]
    assert titles == ["page 1", "page 1", "page 2, read by OCR", "page 3", "page 1, read by OCR"] + [
        f"page {n}, read by OCR" for n in (1, 2)
    ]
    every = read(folder, ocr="all")
    assert texts(every)["digital.pdf"] == [page_text("255")]
    assert "255 deu+eng" in called(calls)


def test_what_is_not_recognised_is_listed(folder: Path, calls: Path) -> None:
    write_pdf(folder / "a.pdf", "Text.", 99, 88, 77)
    collection = read(folder, ocr="missing")
    unread = {part.part: part.reason for part in collection.unread}
    assert list(unread) == ["page 2", "page 3", "page 4"]
    assert "no page" in unread["page 2"]
    assert "20 %" in unread["page 4"]
    assert texts(collection)["a.pdf"] == ["Text.", page_text("77")]


def test_recognised_pages_are_kept(folder: Path, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pdf(folder / "scan.pdf", *range(100, 106))
    kept = tmp_path / "kept"
    recognise = tesseract.Tesseract._run
    n_pages = iter(range(3))

    def interrupted(*arguments: Any) -> str:
        if next(n_pages, None) is None:
            raise KeyboardInterrupt
        return recognise(*arguments)

    monkeypatch.setattr(tesseract.Tesseract, "_run", interrupted)
    with keeping_pages(kept), pytest.raises(KeyboardInterrupt):
        read(folder, ocr="missing")
    monkeypatch.setattr(tesseract.Tesseract, "_run", recognise)
    assert len(called(calls)) == 3
    with keeping_pages(kept):
        first = texts(read(folder, ocr="missing"))
        assert len(called(calls)) == 6
        assert texts(read(folder, ocr="missing")) == first
        assert len(called(calls)) == 6
        for damaged in list(kept.rglob("*.gz"))[:2]:
            damaged.write_bytes(damaged.read_bytes()[:-9])
        assert texts(read(folder, ocr="missing")) == first
        assert len(called(calls)) == 8
        read(folder, ocr="missing", ocr_languages="deu")
        assert len(called(calls)) == 14


def test_an_engine_is_updated_with_ocr(folder: Path, calls: Path, tmp_path: Path) -> None:
    write_pdf(folder / "scan.pdf", "A stamp", 120)
    (folder / "note.txt").write_text("A note about the harbour.")
    files = signatures(folder)
    engine = Engine.build(read_files(folder), tmp_path / "engine", language="english")
    record_files(engine, files, folder)
    assert len(engine.unread) == 1
    changes = update(engine, folder, {"ocr": "missing"})
    assert (changes.n_added, changes.n_replaced, len(called(calls))) == (0, 1, 1)
    assert not engine.unread
    (hit,) = BM25("passage").fit(engine).search("level", k=1)
    assert (hit.snippets[0].page, hit.snippets[0].place) == (2, "page 2, read by OCR")
    assert update(engine, folder).n_replaced == 0  # the option is recorded
    write_pdf(folder / "more.pdf", 130)
    assert update(engine, folder).n_added == 1


def test_lacking_programs_languages_and_wrong_options(
    folder: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(folder / "scan.pdf", 120)
    with pytest.raises(InputError, match="tesseract-ocr-fra"):
        read(folder, ocr="missing", ocr_languages="deu+fra")
    with pytest.raises(UnknownNameError, match="missing"):
        read(folder, ocr="some")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(RapidOCR, "is_installed", lambda: False)
    tesseract._installed.cache_clear()
    with pytest.raises(InputError, match=r"tesseract.*rapidocr"):
        read(folder, ocr="missing")


def test_the_pages_of_a_picture_are_seen_as_a_person_sees_them(folder: Path, calls: Path) -> None:
    pages = [Image.new("L", (30, 40), level) for level in (111, 112, 113)]
    pages[0].save(folder / "a.tif", save_all=True, append_images=pages[1:])
    Image.fromarray(np.full((40, 30), 120 * 257, dtype=np.uint16)).save(folder / "b.tif")
    Image.new("LA", (30, 40), (0, 0)).save(folder / "c.png")  # black, and transparent
    (folder / "d.png").write_bytes((folder / "c.png").read_bytes()[:-30])
    collection = read(folder, ocr="missing")
    assert texts(collection) == {
        "a.tif": [page_text(level) for level in ("111", "112", "113")],
        "b.tif": [page_text("120")],
        "c.png": [page_text("255")],
    }
    assert [part.file for part in collection.unread] == ["d.png"]


@given(st.integers(1, 8), st.booleans())
def test_pictures_are_turned_as_their_orientation_says(orientation: int, is_tiff: bool) -> None:
    picture = Image.fromarray(np.repeat(np.repeat(np.array([[0, 80, 160], [240, 40, 120]], np.uint8), 8, 0), 8, 1))
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    picture.save(out, "TIFF" if is_tiff else "PNG", exif=exif)
    (turned,) = pictures_in(out.getvalue())
    expected = np.asarray(picture)
    if orientation >= 5:
        expected = expected.T  # of which the others are mirrors
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}
    assert (turned == np.flip(expected, flips.get(orientation, ()))).all()


def test_a_page_is_turned_only_if_its_words_are_not_recognised(folder: Path, calls: Path) -> None:
    write_pdf(folder / "a.pdf", 120, 77)
    read(folder, ocr="missing")
    assert called(calls) == ["120 deu+eng", "77 deu+eng", "77 deu+eng"]


class DoubleOfRapidOCR:
    """Recognises two columns of lines on any page, and a line below them, in no order."""

    def __init__(self, params: dict[str, Any]) -> None:
        assert params["EngineConfig.onnxruntime.intra_op_num_threads"] == 1

    def __call__(self, picture: Any) -> Any:
        assert picture.shape[2] == 3
        if picture[0, 0, 0] == 99:
            raise ValueError("no page")
        columns = (("right column", 300), ("left column", 0))
        lines = {f"{name} {n}": (x, 20 * n, x + 200) for n in (2, 0, 1) for name, x in columns}
        lines["the line below"] = (0, 200, 500)
        boxes = [[(x, y), (end, y), (end, y + 12), (x, y + 12)] for x, y, end in lines.values()]
        return SimpleNamespace(boxes=np.array(boxes), txts=tuple(lines), scores=(0.9,) * len(lines))


def test_without_tesseract_pages_are_recognised_by_rapidocr(
    folder: Path, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(RapidOCR, "is_installed", lambda: True)
    monkeypatch.setattr(rapid_ocr, "version", lambda name: "3.10")
    monkeypatch.setitem(sys.modules, "rapidocr", SimpleNamespace(RapidOCR=DoubleOfRapidOCR))
    write_pdf(folder / "scan.pdf", 120, 99)
    with keeping_pages(tmp_path / "kept"):
        collection = read(folder, ocr="missing", ocr_languages="deu")
    (passages,) = texts(collection).values()
    sides = (" ".join(f"{name} column {n}" for n in range(3)) for name in ("left", "right"))
    assert passages == [*sides, "the line below"]
    assert [(part.part, "no page" in part.reason) for part in collection.unread] == [("page 2", True)]
    assert [str(title) for title in collection.sections.titles] == ["page 1, read by OCR"]  # type: ignore[union-attr]
    (table,) = kept_tables(tmp_path / "kept", hashlib.sha256((folder / "scan.pdf").read_bytes()).hexdigest(), 0)
    page, *words = (row.split("\t") for row in table.split("\n")[1:])
    assert page[0] == "1"
    assert [(row[6], row[8], row[-1]) for row in words[:2]] == [("0", "62", "left"), ("77", "92", "column")]
    with pytest.raises(InputError, match="rus"):
        read(folder, ocr="missing", ocr_languages="deu+rus")


@given(st.lists(st.tuples(*[st.floats(0, 1000)] * 4), min_size=1, max_size=30))
def test_each_box_is_in_one_block(corners: list[tuple[float, ...]]) -> None:
    boxes = np.array([(min(a, b), min(c, d), max(a, b), max(c, d)) for a, b, c, d in corners])
    assert sorted(row for block in rapid_ocr.blocks_of(boxes) for row in block.tolist()) == list(range(len(boxes)))


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="needs Tesseract")
def test_a_rendered_page_is_read_by_tesseract(folder: Path) -> None:
    from haybale.collections.files.pdf_pages import opened_pdf, picture_of_page

    digital = folder.parent / "digital.pdf"
    words = "The tenant shall return the premises in good order at the end of the lease and pay for any damage."
    canvas = Canvas(str(digital))
    canvas.setFont("Helvetica", 14)
    for i in range(4):
        canvas.drawString(60, 700 - 25 * i, " ".join(words.split()[5 * i : 5 * i + 5]))
    canvas.save()
    with opened_pdf(digital.read_bytes()) as pdf:
        picture = Image.fromarray(picture_of_page(pdf, 0, 150))
    out = io.BytesIO()
    picture.save(out, "PNG")
    (folder / "scan.png").write_bytes(out.getvalue())
    if "eng" in tesseract._installed()[1]:
        (passages,) = texts(read(folder, ocr="missing", ocr_languages="eng")).values()
        assert len(set(words.split()) - set(" ".join(passages).split())) <= 1
