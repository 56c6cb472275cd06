"""Tests of OCR: which pages are recognised, by a double of Tesseract, and real pages where the program is installed."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from haybale import BM25, Engine
from haybale.collections import Collection
from haybale.collections.files import tesseract
from haybale.collections.files.ocr import keeping_pages
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
