"""Read PDF files with PDFium: paragraphs with their pages, form fields, annotations, and the files in them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from haybale.collections.files.attachments import read_attachments
from haybale.collections.files.divided_words import HYPHENS, DocumentWords, join_divided
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FileReader, Unreadable
from haybale.collections.files.ocr import ADVICE, page_recogniser
from haybale.collections.files.page_lines import PDFLine
from haybale.collections.files.pdf_pages import (
    PDFPage,
    embedded_files,
    has_xfa_form,
    metadata_of,
    opened_pdf,
    read_pages,
)
from haybale.collections.unread import UnreadPart

_SHORT_LINE_SHARE = 0.8  # a line below this share of the usual length may end a paragraph
_FOOTNOTE_SHARE = 0.93  # of the usual height of letters of a page, below which its last lines are footnotes
_RUNNING_LINES = 2  # lines at the top and at the bottom of a page that may be on all pages


class PDF(FileReader):
    """Reader of PDF files. Pages without a text, such as scans, are listed; recognise their text first (OCR)."""

    name = "pdf"
    suffixes = (".pdf",)
    packages = ("pypdfium2",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        with opened_pdf(data) as pdf:
            pages = read_pages(pdf)
            title, metadata = metadata_of(pdf)
            files = list(embedded_files(pdf))
            xfa = has_xfa_form(pdf)
        pages = _recognised(data, pages)
        unread = [UnreadPart(part=f"page {n}", reason=page.missing) for n, page in enumerate(pages, 1) if page.missing]
        if n_comments := sum(page.n_comments for page in pages):
            unread.append(
                UnreadPart(part="comments", reason=f"{n_comments:,} comments, which are no part of the pages")
            )
        if xfa:
            unread.append(UnreadPart(part="form", reason="its fields are in XFA; print it to a new PDF file"))
        parts = [
            Part(paragraph, page=number, by_ocr=pages[number - 1].by_ocr)
            for number, lines in enumerate(joined_pages([page.lines for page in pages]), 1)
            for paragraph in page_paragraphs(lines)
        ]
        if parts:
            yield FileDocument(parts, title, metadata | {"pages": len(pages)})
        elif not files and page_recogniser() is None and all(page.missing != "damaged" for page in pages):
            raise Unreadable(f"no text on {len(pages)} pages, probably a scan; {ADVICE}")
        yield from unread
        yield from read_attachments(files, options, "embedded file")


def _recognised(data: bytes, pages: list[PDFPage]) -> list[PDFPage]:
    """Return the pages with those recognised that OCR reads; without OCR, those that it may read say so."""
    recogniser = page_recogniser()
    if recogniser is None:
        return [replace(p, missing=f"{p.missing}; {ADVICE}") if p.is_readable_by_ocr else p for p in pages]
    indexes = [i for i, page in enumerate(pages) if recogniser.every_page or page.is_readable_by_ocr]
    for i, recognised in recogniser.pdf_pages(data, indexes).items():
        if recognised.lines:
            pages[i] = replace(pages[i], lines=recognised.lines, missing=recognised.missing, by_ocr=True)
        elif pages[i].missing:
            pages[i] = replace(pages[i], missing=f"{pages[i].missing}; {recognised.missing}")
    return pages


def joined_pages(pages: Sequence[Sequence[PDFLine]]) -> list[list[PDFLine]]:
    """Return the lines of pages with the words joined that are divided at ends of lines and of pages.

    Lines that are on all pages, such as page numbers, and footnotes do not stand between the end of a page and the next
    page.

    >>> pages = [[PDFLine("A lease of pre-"), PDFLine("1")], [PDFLine("mises."), PDFLine("2")]]
    >>> [[line.text for line in page] for page in joined_pages(pages)]
    [['A lease of premises.', '1'], ['2']]
    """
    if not any(line.text.endswith(HYPHENS) for page in pages for line in page):
        return [[line for line in page if line.text] for page in pages]
    words = DocumentWords.of_lines([line.text for page in pages for line in page])
    body: list[tuple[int, int]] = []  # a page and a line of it
    footnotes: list[list[tuple[int, int]]] = []
    for number, page in enumerate(pages):
        running = _running_lines(pages, number)
        first_note = _first_footnote(page, running)
        body += [(number, i) for i in range(first_note) if i not in running]
        footnotes.append([(number, i) for i in range(first_note, len(page)) if i not in running])
    texts = {(number, i): line.text for number, page in enumerate(pages) for i, line in enumerate(page)}
    for positions in (body, *footnotes):
        texts.update(zip(positions, join_divided([texts[at] for at in positions], words), strict=True))
    return [
        [
            line if line.text == texts[number, i] else replace(line, text=texts[number, i])
            for i, line in enumerate(page)
            if texts[number, i]
        ]
        for number, page in enumerate(pages)
    ]


def _running_lines(pages: Sequence[Sequence[PDFLine]], number: int) -> set[int]:
    """Return the first and last lines of a page that pages near it have, too, but for numbers; or have no letters."""
    page, running = pages[number], set[int]()
    neighbours = [pages[other] for other in (number - 2, number - 1, number + 1, number + 2) if 0 <= other < len(pages)]
    for step in (1, -1):
        for nth in range(min(_RUNNING_LINES, len(page))):
            at = nth if step == 1 else -1 - nth
            shape = _shape(page[at].text)
            others = (_shape(other[at].text) for other in neighbours if len(other) > nth)
            if not re.search(r"[^\W\d_]", shape) or shape in others:
                running.add(at % len(page))
            else:
                break
    return running


def _shape(line: str) -> str:
    return re.sub(r"\d+", "0", line)


def _first_footnote(page: Sequence[PDFLine], running: set[int]) -> int:
    """Return the number of the first line of the footnotes of a page, or how many lines it has."""
    heights = [line.height for line in page]
    least = _FOOTNOTE_SHARE * statistics.median(heights) if heights else 0.0
    first = len(page)
    for i in range(len(page) - 1, 0, -1):
        if i in running:
            continue
        if page[i].height >= least:
            break
        first = i
    return first


def page_paragraphs(lines: Iterable[PDFLine]) -> list[str]:
    """Return the paragraphs of a page, each on one line.

    A paragraph ends at a gap, or at a line that ends with a full stop and is shorter than most.

    >>> lines = ["The lessee shall return", "the premises.", "The second paragraph", "has two lines."]
    >>> page_paragraphs(PDFLine(line, line.startswith("The second")) for line in lines)
    ['The lessee shall return the premises.', 'The second paragraph has two lines.']
    """
    blocks: list[list[str]] = []
    for line in lines:
        if line.after_gap or not blocks:
            blocks.append([])
        blocks[-1].append(line.text)
    paragraphs: list[str] = []
    for block in blocks:
        usual = statistics.quantiles(map(len, block), n=4)[2] if len(block) > 1 else 0.0
        current: list[str] = []
        for text in block:
            current.append(text)
            if text.endswith((".", "!", "?", ":", "”", '"')) and len(text) < _SHORT_LINE_SHARE * usual:
                paragraphs.append(" ".join(current))
                current = []
        if current:
            paragraphs.append(" ".join(current))
    return paragraphs
