"""Read the text of pages and pictures by optical character recognition (OCR), with the program Tesseract.

File readers get the recogniser of pages from :func:`page_recogniser`. A page is the work of
a process of Tesseract; as many run as there are cores. What was recognised is kept by page in a folder, within
:func:`keeping_pages`, so that an interrupted reading goes on where it stopped.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import shutil
import statistics
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from haybale.collections.files.pdf_pages import PDFLine, opened_pdf, picture_of_page
from haybale.errors import InputError
from haybale.folders import replaced
from haybale.parallel import cpus

T = TypeVar("T")

ADVICE = "recognise its text (OCR) with --ocr missing"  # ends the reason of a page that OCR may read
DPI = 200
_MAX_SECONDS = 300  # of a page
_MIN_CONFIDENCE = 60  # per cent, of a page that is not listed
# The language codes of Tesseract, by haybale's names of languages.
_CODES = """
arabic:ara armenian:hye basque:eus catalan:cat czech:ces danish:dan dutch:nld english:eng esperanto:epo estonian:est
finnish:fin french:fra german:deu greek:ell hindi:hin hungarian:hun indonesian:ind irish:gle italian:ita lithuanian:lit
nepali:nep norwegian:nor persian:fas polish:pol portuguese:por romanian:ron russian:rus serbian:srp spanish:spa
swedish:swe tamil:tam turkish:tur yiddish:yid
"""
TESSERACT_CODES = dict(pair.split(":") for pair in _CODES.split())

_active: ContextVar[PageRecogniser | None] = ContextVar("recogniser of pages", default=None)
_kept_pages: ContextVar[Path | None] = ContextVar("folder of recognised pages", default=None)


class RecognisedPage(NamedTuple):
    """The lines of a page, and what is missing of its text, or an empty string."""

    lines: list[PDFLine]
    missing: str = ""


class PageRecogniser:
    """Recognise pages with Tesseract, as many at a time as there are cores.

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
        If Tesseract or a language is not installed.
    """

    def __init__(self, languages: str = "", every_page: bool = False, folder: Path | None = None) -> None:
        self.version, installed = _installed()
        self.languages = languages or "+".join(sorted(installed - {"osd"}))
        if lacking := set(self.languages.split("+")) - installed:
            raise InputError(
                f"Tesseract lacks the language {min(lacking)!r}, it has {', '.join(sorted(installed - {'osd'}))}; "
                f"install its data, such as the package tesseract-ocr-{min(lacking)}, or give --ocr-languages"
            )
        self.every_page = every_page
        self.folder = folder
        self.turns_pages = "osd" in installed
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
        settings = f"{self.version}, {self.languages}, {self.turns_pages}, {DPI}, {index}"
        name = f"{_page_name(index)}-{hashlib.sha256(settings.encode()).hexdigest()[:16]}.tsv.gz"
        kept = None if self.folder is None else _kept_folder(self.folder, digest) / name
        table = None if kept is None else _read_table(kept)
        try:
            if table is None:
                table = self._recognised(data if index is None else _pgm(data, index))
                if kept is not None:
                    with replaced(kept) as aside:
                        aside.write_bytes(gzip.compress(table.encode(), mtime=0))
        except _NotRecognised as error:
            return [RecognisedPage([], f"its text could not be recognised ({error})")]
        finally:
            with self._counting:
                self.n_done += 1
        return pages_of_table(table)

    def _recognised(self, picture: bytes) -> str:
        """Return the words of a picture as a table of Tesseract."""
        layout = "1" if self.turns_pages else "3"
        command = ["tesseract", "stdin", "stdout", "-l", self.languages, "--dpi", str(DPI), "--psm", layout, "tsv"]
        environment = os.environ | {"OMP_THREAD_LIMIT": "1"}
        try:
            done = subprocess.run(command, input=picture, capture_output=True, timeout=_MAX_SECONDS, env=environment)
        except (subprocess.TimeoutExpired, OSError) as error:
            raise _NotRecognised(str(error)) from None
        if done.returncode:
            raise _NotRecognised(" ".join(done.stderr.decode(errors="replace").split())[:200] or "Tesseract failed")
        return done.stdout.decode(errors="replace")


class _NotRecognised(Exception):
    """Tesseract could not read a page; the message is the reason."""


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


def pages_of_table(table: str) -> list[RecognisedPage]:
    """Return the pages of a table of Tesseract, which has a row for each word.

    >>> names = "page_num block_num par_num line_num height conf text"
    >>> pages_of_table("\\n".join("\\t".join(row.split()) for row in (names, "1 1 1 1 20 96 Rent")))
    [RecognisedPage(lines=[PDFLine(text='Rent', after_gap=False, height=20.0)], missing='')]
    """
    pages: dict[str, list[dict[str, str]]] = {"1": []}
    for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
        page = pages.setdefault(row["page_num"], [])
        if (row["text"] or "").strip():
            page.append(row)
    return [_page(words) for words in pages.values()]


def _page(words: list[dict[str, str]]) -> RecognisedPage:
    """Return the page of its words, which are rows of a table of Tesseract."""
    if not words:
        return RecognisedPage([], "no text was recognised")
    lines: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for word in words:
        lines.setdefault((word["block_num"], word["par_num"], word["line_num"]), []).append(word)
    page: list[PDFLine] = []
    paragraph: tuple[str, ...] = ()
    for position, row in lines.items():
        text = " ".join(word["text"].strip() for word in row)
        height = statistics.median(float(word["height"]) for word in row)
        page.append(PDFLine(text, bool(page) and position[:2] != paragraph, height))
        paragraph = position[:2]
    n_characters = sum(len(word["text"]) for word in words)
    confidence = sum(len(word["text"]) * float(word["conf"]) for word in words) / n_characters
    low = f"recognised with a confidence of {confidence:.0f} % only; compare it with the picture"
    return RecognisedPage(page, low if confidence < _MIN_CONFIDENCE else "")


def _pgm(data: bytes, index: int) -> bytes:
    """Return a page of a PDF file as a picture in PGM, which needs no library."""
    with opened_pdf(data) as pdf:
        picture = picture_of_page(pdf, index, DPI)
    return b"P5\n%d %d\n255\n" % picture.shape[::-1] + picture.tobytes()


@cache
def _installed() -> tuple[str, set[str]]:
    """Return the version of Tesseract, and the codes of its languages."""
    if shutil.which("tesseract") is None:
        raise InputError(
            "--ocr needs the program tesseract, found none; install Tesseract, such as the packages tesseract-ocr "
            "and tesseract-ocr-deu"
        )
    version, languages = (
        subprocess.run(["tesseract", option], capture_output=True, text=True, check=True).stdout.splitlines()
        for option in ("--version", "--list-langs")
    )
    return version[0], set(languages[1:])


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
