"""Measure OCR: rendered and degraded pages of a collection, the time to read them, and what is lost by it.

    python benchmarks/bench_ocr.py COLLECTION FOLDER [--pages 1000]

Documents that are relevant to dev queries, and then others, are set on pages, up to a number of pages. The pages are
rendered at 150 dpi, blurred, turned by up to half a degree and noised, and are the pictures of PDF files in
FOLDER/scans; files that are there already are kept. A process reads them with `ocr="missing"` and is killed when it has
recognised half of the pages; another one goes on. BM25 over documents ranks the dev queries on the recognised texts and
on the texts of the collection.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
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
from haybale.collections.files.ocr import keeping_pages
from haybale.collections.files.pdf_pages import opened_pdf, picture_of_page
from haybale.collections.readers.files import read_files

DPI, BLUR_RADIUS, MAX_DEGREES, NOISE = 150, 0.6, 0.5, 12  # radius in pixels, noise as a standard deviation of 255
LINES, LETTERS = 52, 92  # of a page, and of a line
RECOGNISED, TEXTS = "ocr", "texts.json"  # in the folder: the recognised pages, and the texts of the documents


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", type=Path, help="a collection with dev queries, such as peps")
    parser.add_argument("folder", type=Path, help="a folder for the pages and the recognised texts")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--languages", default="eng", help="of OCR")
    parser.add_argument("--note", default="", help="a sentence for the page")
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.read:
        read_here(a.folder, a.languages)
        return
    collection = haybale.open_collection(a.collection)
    chosen = list(documents(collection, a.pages))
    texts = collection.document_texts()
    n_pages = sum(write_scan(a.folder / "scans" / f"{number}.pdf", texts[number]) for number in chosen)
    shutil.rmtree(a.folder / RECOGNISED, ignore_errors=True)
    first, second = read_until(a, n_pages // 2), read_until(a)
    recognised = {int(number): text for number, text in json.loads((a.folder / TEXTS).read_text()).items()}
    counts = [(words(texts[number]), words(recognised.get(number, ""))) for number in chosen]
    both = sum((digital & ocr).total() for digital, ocr in counts)
    recall, precision = (both / sum(pair[side].total() for pair in counts) for side in (0, 1))
    doc_ids = collection.doc_ids.to_pylist()
    digital, ocr = (
        ndcg(collection, {doc_ids[n]: source[n] for n in chosen if n in source})
        for source in (dict(enumerate(texts)), recognised)
    )
    times = [
        [name, n, seconds, cpu, cpu / max(1, n), load]
        for name, (n, seconds, cpu, load) in (
            ("until it was killed", first),
            ("the rest", second),
            ("both", (*(a + b for a, b in zip(first[:3], second[:3], strict=True)), os.getloadavg()[0])),
        )
    ]
    lines = [
        "# OCR of degraded pages",
        "",
        f"{len(chosen):,} documents of {collection.name} on {n_pages:,} pages of up to {LINES} lines, rendered at",
        f"{DPI} dpi, blurred, turned by up to {MAX_DEGREES} degrees and noised. A process that reads them is killed",
        "when half of the pages are recognised, and another one goes on. Pages are those that each of them wrote.",
        "Seconds of all cores are those of the process and of its Tesseract processes, without the pages that the kill",
        "cut off. The load is the mean number of processes that ran or waited in the last minute, ours included. "
        f"{a.note}".strip(),
        *table("reading|pages|s|s of all cores|s of a core, a page|load", times),
        "",
        "Words right are the share of the words of the documents that OCR reads, and precision the share of its words",
        "that are in them. nDCG@10 is that of BM25 over documents for the dev queries that have a relevant document",
        "among them.",
        "",
        *table(
            "words right|precision|nDCG@10, digital|nDCG@10, OCR|OCR / digital",
            [[recall, precision, digital, ocr, ocr / digital]],
            0,
        ),
        "",
        provenance(shown("bench_ocr.py", sys.argv[1:]), more=("pypdfium2",)),
    ]
    write_page(a.results / "ocr.md", lines)


def read_until(a: argparse.Namespace, n_pages: int | None = None) -> tuple[int, float, float, float]:
    """Read the scans in a process of its own, and kill it when it has recognised so many pages.

    Returns the number of pages that it recognised, the seconds it took, those of all cores, and the load.
    """
    kept = a.folder / RECOGNISED
    n_before = n_recognised(kept)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, __file__, str(a.collection), str(a.folder), "--languages", a.languages, "--read"]
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None:
        time.sleep(0.5)
        if n_pages is not None and n_recognised(kept) >= n_pages:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if n_pages is None and process.returncode:
        raise SystemExit(f"the process that read ended with {process.returncode}")
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return n_recognised(kept) - n_before, seconds, cpu, os.getloadavg()[0]


def n_recognised(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*/*/*.tsv.gz"))


def read_here(folder: Path, languages: str) -> None:
    """Read the scans in this process, and write their texts by the numbers of documents."""
    with keeping_pages(folder / RECOGNISED):
        read = read_files(folder / "scans", {"ocr": "missing", "ocr_languages": languages})
    numbers = (doc_id.removesuffix(".pdf") for doc_id in read.doc_ids.to_pylist())
    (folder / TEXTS).write_text(json.dumps(dict(zip(numbers, read.document_texts(), strict=True))))


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
