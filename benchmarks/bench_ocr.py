"""Measure OCR: rendered and degraded pages of a collection, the time to read them, and what is lost by it.

    python benchmarks/bench_ocr.py COLLECTION FOLDER [--pages 1000]

Documents that are relevant to dev queries, and then others, are set on pages, up to a number of pages. The pages are
rendered at 150 dpi, blurred, turned by up to half a degree and noised, and are the pictures of PDF files in
FOLDER/scans; files that are there already are kept. They are read with `ocr="missing"`, and BM25 over documents ranks
the dev queries on the recognised texts and on the texts of the collection.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from provenance import options, provenance, shown, table, write_page

import haybale
from haybale.collections.files.ocr import PageRecogniser, keeping_pages
from haybale.collections.files.pdf_pages import opened_pdf, picture_of_page
from haybale.collections.readers.files import read_files

DPI, BLUR_RADIUS, MAX_DEGREES, NOISE = 150, 0.6, 0.5, 12  # radius in pixels, noise as a standard deviation of 255
LINES, LETTERS = 52, 92  # of a page, and of a line


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", type=Path, help="a collection with dev queries, such as peps")
    parser.add_argument("folder", type=Path, help="a folder for the pages and the recognised texts")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--languages", default="eng", help="of OCR")
    parser.add_argument("--note", default="", help="a sentence for the page")
    a = parser.parse_args()
    collection = haybale.open_collection(a.collection)
    chosen = list(documents(collection, a.pages))
    texts = collection.document_texts()
    n_pages = sum(write_scan(a.folder / "scans" / f"{number}.pdf", texts[number]) for number in chosen)
    done: list[int] = []
    recognise = PageRecogniser._recognised

    def counted(self: PageRecogniser, picture: bytes) -> str:
        done.append(1)
        return recognise(self, picture)

    PageRecogniser._recognised = counted  # type: ignore[method-assign]
    start = time.perf_counter()
    with keeping_pages(a.folder / "ocr"):
        read = read_files(a.folder / "scans", {"ocr": "missing", "ocr_languages": a.languages})
    seconds = time.perf_counter() - start
    recognised = {
        int(doc_id.removesuffix(".pdf")): text
        for doc_id, text in zip(read.doc_ids.to_pylist(), read.document_texts(), strict=True)
    }
    counts = [(words(texts[number]), words(recognised.get(number, ""))) for number in chosen]
    both = sum((digital & ocr).total() for digital, ocr in counts)
    recall, precision = (both / sum(pair[side].total() for pair in counts) for side in (0, 1))
    doc_ids = collection.doc_ids.to_pylist()
    measured = [
        ndcg(collection, {doc_ids[n]: source[n] for n in chosen if n in source})
        for source in (dict(enumerate(texts)), recognised)
    ]
    rows = [
        [
            n_pages,
            len(done),
            seconds,
            seconds / max(1, len(done)),
            recall,
            precision,
            *measured,
            measured[1] / measured[0],
        ]
    ]
    lines = [
        "# OCR of degraded pages",
        "",
        f"{len(chosen):,} documents of {collection.name} on {n_pages:,} pages of up to {LINES} lines, rendered at",
        f"{DPI} dpi, blurred, turned by up to {MAX_DEGREES} degrees and noised. Pages that an earlier run had",
        "recognised are kept. Words right are the share of the words of the documents that OCR reads, and precision",
        "the share of its words that are in them. nDCG@10 is that of BM25 over documents for the dev queries that have",
        f"a relevant document among them. {a.note}".strip(),
        *table(
            "pages|recognised now|s|s a page|words right|precision|nDCG@10, digital|nDCG@10, OCR|OCR / digital", rows, 0
        ),
        "",
        provenance(shown("bench_ocr.py", sys.argv[1:]), more=("pypdfium2",)),
    ]
    write_page(a.results / "ocr.md", lines)


def documents(collection: Any, n_pages: int) -> Iterator[int]:
    """Yield the numbers of documents for so many pages: those that are relevant to dev queries come first."""
    order = list(range(collection.n_documents))
    random.Random(1).shuffle(order)
    relevant = set(collection.split("dev").judged_documents.tolist())
    texts, total = collection.document_texts(), 0
    for number in sorted(order, key=lambda number: number not in relevant):
        if (pages := len(set_pages(texts[number]))) and total + pages <= n_pages:
            total += pages
            yield number


def set_pages(text: str) -> list[list[str]]:
    """Return the pages of a text, each a list of lines; letters that the font lacks are left out."""
    lines = [""]
    for word in text.encode("latin-1", errors="ignore").decode("latin-1").split():
        if lines[-1] and len(lines[-1]) + len(word) >= LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word[:LETTERS]}".strip()
    return [lines[at : at + LINES] for at in range(0, len(lines), LINES)]


def write_scan(path: Path, text: str) -> int:
    """Write the degraded pictures of the pages of a text to a PDF file, unless it is there; return their number."""
    from PIL import Image, ImageFilter
    from reportlab.pdfgen.canvas import Canvas

    pages, digital = set_pages(text), BytesIO()
    if path.exists():
        return len(pages)
    canvas = Canvas(digital, pagesize=(595, 842))
    for page in pages:
        canvas.setFont("Helvetica", 10)
        for at, line in enumerate(page):
            canvas.drawString(50, 790 - 14 * at, line)
        canvas.showPage()
    canvas.save()
    rng, pictures = np.random.default_rng(len(text)), []
    with opened_pdf(digital.getvalue()) as pdf:
        for index in range(len(pages)):
            picture = Image.fromarray(picture_of_page(pdf, index, DPI)).filter(ImageFilter.GaussianBlur(BLUR_RADIUS))
            picture = picture.rotate(rng.uniform(-MAX_DEGREES, MAX_DEGREES), Image.Resampling.BILINEAR, fillcolor=255)
            noised = np.asarray(picture, dtype=float) + rng.normal(0, NOISE, (picture.height, picture.width))
            pictures.append(Image.fromarray(noised.clip(0, 255).astype(np.uint8)))
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(path, "PDF", resolution=DPI, save_all=True, append_images=pictures[1:])
    return len(pages)


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def ndcg(collection: Any, texts: dict[str, str]) -> float:
    """Return nDCG@10 of BM25 over documents with these texts, for dev queries with a relevant one among them."""
    builder = haybale.CollectionBuilder("pages")
    for doc_id, text in texts.items():
        builder.add_document(doc_id, [text])
    engine = haybale.Engine(builder.build(), language=collection.language or "english")
    qrels = collection.qrels_frame("dev")
    qrels = qrels[qrels["doc_id"].isin(list(texts))]
    by_id = dict(
        zip(collection.queries.ids.to_pylist(), collection.queries.texts(range(collection.n_queries)), strict=True)
    )
    run = haybale.BM25("document").fit(engine).rank({query: by_id[query] for query in qrels["query_id"].unique()})
    return float(haybale.evaluate(run, qrels, ["nDCG@10"])["nDCG@10"].mean())


if __name__ == "__main__":
    main()
