"""Read the text of pages and pictures by optical character recognition (OCR).

File readers get the recogniser of pages from :func:`page_recogniser`. Its engine is the program Tesseract, or the
package rapidocr where that program is not installed. As many pages are recognised at a time as there are cores. What
was recognised is kept by page in a folder, within :func:`keeping_pages`, so that an interrupted reading goes on where
it stopped.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.collections.files.pdf_pages import opened_pdf, picture_of_page
from haybale.collections.files.pictures import pictures_in
from haybale.collections.files.rapid_ocr import RapidOCR
from haybale.collections.files.recognised_words import NotRecognised, RecognisedPage, joined_tables, pages_of_table
from haybale.collections.files.tesseract import TESSERACT_CODES, Tesseract
from haybale.folders import replaced
from haybale.parallel import cpus

T = TypeVar("T")

ADVICE = "recognise its text (OCR) with --ocr missing"  # ends the reason of a page that OCR may read
DPI = 200

_active: ContextVar[PageRecogniser | None] = ContextVar("recogniser of pages", default=None)
_kept_pages: ContextVar[Path | None] = ContextVar("folder of recognised pages", default=None)


class PageRecogniser:
    """Recognise pages, as many at a time as there are cores.

    Parameters
    ----------
    languages : str, default ""
        Codes of Tesseract with ``+`` between them, such as ``"deu+eng"``. Default: all that are installed.
    every_page : bool, default False
        Whether to recognise pages that have a text, too.
    folder : Path, optional
        Where recognised pages are kept.

    Raises
    ------
    InputError
        If neither Tesseract nor rapidocr is installed, or a language is not.
    """

    def __init__(self, languages: str = "", every_page: bool = False, folder: Path | None = None) -> None:
        with_package = RapidOCR.is_installed() and not Tesseract.is_installed()
        self.engine = RapidOCR(languages) if with_package else Tesseract(languages)
        self.every_page = every_page
        self.folder = folder
        self.n_done = self.n_begun = 0
        self._counting = threading.Lock()
        self._workers = ThreadPoolExecutor(cpus(), thread_name_prefix="ocr")

    def close(self) -> None:
        """Begin no further pages, and wait for those that were begun."""
        self._workers.shutdown(cancel_futures=True)

    def progress(self) -> str:
        return f"{self.n_done:,} of {self.n_begun:,} pages recognised" if self.n_begun else ""

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a context in which this is the recogniser of pages."""
        context = copy_context()
        context.run(_active.set, self)
        return context.run(function, *arguments)

    def pdf_pages(self, data: bytes, indexes: Sequence[int]) -> dict[int, RecognisedPage]:
        """Return pages of a PDF file by their numbers from 0."""
        digest = hashlib.sha256(data).hexdigest()
        futures = {index: self._begin(data, digest, index) for index in indexes}
        return {index: future.result()[0] for index, future in futures.items()}

    def picture(self, data: bytes) -> list[RecognisedPage]:
        """Return the pages of a picture: the content of a PNG, JPEG or TIFF file."""
        return self._begin(data, hashlib.sha256(data).hexdigest(), None).result()

    def _begin(self, data: bytes, digest: str, index: int | None) -> Future[list[RecognisedPage]]:
        with self._counting:
            self.n_begun += 1
        return self._workers.submit(self._pages, data, digest, index)

    def _pages(self, data: bytes, digest: str, index: int | None) -> list[RecognisedPage]:
        """Return a recognised page, or those of a picture if ``index`` is None; they are recognised unless kept."""
        settings = f"{self.engine.settings}, {DPI}, {index}"
        name = f"{_page_name(index)}-{hashlib.sha256(settings.encode()).hexdigest()[:16]}.tsv.gz"
        kept = None if self.folder is None else _kept_folder(self.folder, digest) / name
        table = None if kept is None else _read_table(kept)
        try:
            if table is None:
                pictures = pictures_in(data) if index is None else [_picture_of_page(data, index)]
                table = joined_tables(self.engine.table_of(picture, DPI) for picture in pictures)
                if kept is not None:
                    with replaced(kept) as aside:
                        aside.write_bytes(gzip.compress(table.encode(), mtime=0))
        except NotRecognised as error:
            return [RecognisedPage([], f"its text could not be recognised ({error})")]
        finally:
            with self._counting:
                self.n_done += 1
        return pages_of_table(table)


def _read_table(path: Path) -> str | None:
    """Return a kept table; None if there is none, or a damaged one."""
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None


def kept_tables(folder: Path, digest: str, index: int | None) -> list[str]:
    """Return the tables that are kept of a page, the latest first: one for each choice of languages and versions.

    Parameters
    ----------
    folder : Path
        As :func:`keeping_pages` takes it.
    digest : str
        The SHA-256 of the file, in hexadecimal digits.
    index : int or None
        The number of the page, from 0; None for the pages of a picture, which are in one table.
    """
    paths = _kept_folder(folder, digest).glob(f"{_page_name(index)}-*.tsv.gz")
    tables = [_read_table(path) for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)]
    return [table for table in tables if table is not None]


def _kept_folder(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / digest


def _page_name(index: int | None) -> str:
    """Return how the names of the kept tables of a page begin."""
    return "picture" if index is None else f"page-{index + 1}"


def _picture_of_page(data: bytes, index: int) -> NDArray[np.uint8]:
    with opened_pdf(data) as pdf:
        return picture_of_page(pdf, index, DPI)


def page_recogniser() -> PageRecogniser | None:
    """Return the recogniser of this reading; None if pages are not recognised."""
    return _active.get()


@contextmanager
def keeping_pages(folder: Path) -> Iterator[None]:
    """Keep what is recognised in the block in a folder."""
    token = _kept_pages.set(folder)
    try:
        yield
    finally:
        _kept_pages.reset(token)


def with_languages(options: Mapping[str, str], language: str | None) -> dict[str, str]:
    """Return options of readers with the languages of OCR, if they are not chosen: that of the collection.

    >>> with_languages({"ocr": "missing"}, "german")
    {'ocr_languages': 'deu', 'ocr': 'missing'}
    """
    code = TESSERACT_CODES.get(language or "")
    default = {"ocr_languages": code} if code and options.get("ocr", "never") != "never" else {}
    return default | dict(options)


@contextmanager
def recognising(options: Mapping[str, str]) -> Iterator[PageRecogniser | None]:
    """Make the recogniser that the options of readers ask for, for the block; None if they ask for none."""
    mode = options.get("ocr", "never")
    if mode == "never":
        yield None
        return
    recogniser = PageRecogniser(options.get("ocr_languages", ""), mode == "all", _kept_pages.get())
    try:
        yield recogniser
    finally:
        recogniser.close()
