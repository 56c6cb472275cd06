"""PDF files of two makers with a red passage among black ones, and whether boxes are around what is red."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2

from haybale import Engine
from haybale.collections.readers.files import read_files
from haybale.engine.update import record_files, signatures

PASSAGES = [
    "The lessee shall return the premises in the state in which they were let, but for wear that use brings about.",
    "The lessor keeps the deposit until all claims are settled, at most for six months after the end of the lease.",
    "Disputes that arise from this lease are settled by one arbitrator, whom the chamber of commerce of Ulm appoints.",
]
WIDTH, HEIGHT = 595, 842  # points
_LINE_CHARACTERS = 52


def lines_of(passages: Sequence[str]) -> list[tuple[str, float, int]]:
    """Return the lines of passages with their height above the bottom of the page, and the number of the passage."""
    lines, y = [], 700.0
    for number, passage in enumerate(passages):
        for line in textwrap.wrap(passage, _LINE_CHARACTERS):
            lines.append((line, y, number))
            y -= 16
        y -= 24
    return lines


def by_reportlab(passages: Sequence[str], red: int, degrees: int = 0) -> bytes:
    """Return a page by ReportLab, whose passage with the number ``red`` is red.

    It is drawn so that it is upright after it was turned by ``degrees``, as scanners and programs write wide pages.
    """
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    size = (HEIGHT, WIDTH) if degrees % 180 else (WIDTH, HEIGHT)
    canvas = Canvas(out, pagesize=size, invariant=1)
    canvas.translate(*{0: (0, 0), 90: (HEIGHT, 0), 180: (WIDTH, HEIGHT), 270: (0, WIDTH)}[degrees])
    canvas.rotate(degrees)
    canvas.setTitle("The lease of a workshop")
    for line, y, number in lines_of(passages):
        canvas.setFillColorRGB(*((1, 0, 0) if number == red else (0, 0, 0)))
        canvas.drawString(90, y, line)
    canvas.save()
    return out.getvalue()


def by_matplotlib(passages: Sequence[str], red: int) -> bytes:
    """Return the same page by Matplotlib, which embeds its fonts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
    for line, y, number in lines_of(passages):
        figure.text(90 / WIDTH, y / HEIGHT, line, color="red" if number == red else "black", fontsize=11)
    out = io.BytesIO()
    figure.savefig(out, format="pdf")
    return out.getvalue()


def turned(data: bytes, degrees: int, crop: tuple[float, float, float, float] | None = None) -> bytes:
    """Return a file whose first page is turned, and cropped to a rectangle of left, bottom, right and top."""
    pdf = pypdfium2.PdfDocument(data)
    page = pdf[0]
    page.set_rotation(degrees)
    if crop is not None:
        page.set_cropbox(*crop)
    out = io.BytesIO()
    pdf.save(out)
    return out.getvalue()


def ink(picture: bytes, boxes: Sequence[Any]) -> tuple[float, float]:
    """Return the share of red pixels that boxes are around, and the share of red among the dark ones in them."""
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    red = (pixels[..., 0] > 150) & (pixels[..., 1] < 110) & (pixels[..., 2] < 110)
    black = pixels.sum(axis=-1) < 250
    inside = np.zeros(red.shape, dtype=bool)
    height, width = red.shape
    for box in boxes:
        rows = slice(max(0, int(box.top * height) - 2), int(box.bottom * height) + 3)
        inside[rows, max(0, int(box.left * width) - 2) : int(box.right * width) + 3] = True
    assert red.any()
    within = int((red & inside).sum())
    return within / int(red.sum()), within / max(1, within + int((black & inside).sum()))


def engine_of(source: Path, folder: Path, **options: str) -> Engine:
    """Build an engine from a folder of files, as ``haybale index`` does."""
    from haybale.collections.files.ocr import keeping_pages
    from haybale.engine.storage import RECOGNISED

    files = signatures(source)
    with keeping_pages(folder / RECOGNISED):
        read = read_files(source, options)
    engine = Engine.build(read, folder, language="english", encoder="tfidf(min_df=1)")
    record_files(engine, files, source, options)
    return engine


def passage_ids(engine: Engine, doc_id: str) -> list[str]:
    """Return the ids of the passages of a document."""
    (number,) = engine.whole.document_numbers([doc_id]).tolist()
    start, end = engine.whole.passages.doc_offsets[number : number + 2].tolist()
    return [str(passage_id) for passage_id in engine.whole.passages.ids.slice(start, end - start).to_pylist()]
