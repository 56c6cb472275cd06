"""Read the pages of PDF files with PDFium: their lines, their metadata, the files in them, and pictures of pages.

PDFium may be used by one thread at a time, so all that calls it holds :data:`PDFIUM`.
"""

from __future__ import annotations

import ctypes
import datetime
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.collections.files.file_reader import EXTRA, Unreadable
from haybale.collections.files.page_lines import PDFLine, TextLayer, lacks_spaces, opened_text
from haybale.collections.files.pictures import MAX_PIXELS
from haybale.extras import import_optional

PDFIUM = threading.RLock()

_DAMAGED = "damaged"
_SAMPLED_PAGES = (1 / 3, 2 / 3)  # of a file, by their share of its pages, that are looked at for missing spaces
_UNREADABLE_CHARACTER = re.compile("[\x00-\x08\x0e-\x1f\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")
_MAX_UNREADABLE_SHARE = 0.3  # of the characters of a page, that fonts have no letters for
_FEW_CHARACTERS = 150  # of a page that may be a scan, with a stamp or a number on it
_SCAN_SHARE = 0.7  # of the page, that a picture covers if it is a scan
_DATE = re.compile(r"D?:?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:([+-])(\d\d)'?(\d\d)?)?")


@dataclass(frozen=True)
class PDFPage:
    """The lines of a page, what is missing of its text (empty if nothing is), and the number of its comments.

    ``by_ocr`` says that the lines were recognised in a picture of the page.
    """

    lines: list[PDFLine]
    missing: str = ""
    n_comments: int = 0
    by_ocr: bool = False

    @property
    def is_readable_by_ocr(self) -> bool:
        """Whether a picture of the page may show text that was not read."""
        return self.missing not in ("", _DAMAGED)


@contextmanager
def opened_pdf(data: bytes) -> Iterator[Any]:
    """Open a PDF file in the block, which holds :data:`PDFIUM`; the value is a ``pypdfium2.PdfDocument``.

    Raises
    ------
    Unreadable
        If it needs a password or is damaged.
    """
    pypdfium2 = import_optional("pypdfium2", EXTRA)
    with PDFIUM:
        try:
            pdf = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            if error.err_code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
                raise Unreadable("encrypted; save it without a password") from None
            raise Unreadable("damaged, or not a PDF file; restore it from where it came") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of forms in XFA, which are listed as not read
                pdf.init_forms()
            yield pdf
        finally:
            pdf.close()


def read_pages(pdf: Any) -> list[PDFPage]:
    """Return the pages of a ``pypdfium2.PdfDocument`` with all text that is seen, also in forms and annotations.

    PDFium misses spaces of some files, such as those that groff has set. Two pages are looked at, since that takes
    longer than reading them.
    """
    pypdfium2 = import_optional("pypdfium2", EXTRA)
    with ExitStack() as opened:
        sampled: dict[int, _SeenPage] = {}
        for index in {round(share * (len(pdf) - 1)) for share in _SAMPLED_PAGES}:
            with suppress(pypdfium2.PdfiumError):
                sampled[index] = opened.enter_context(_seen_page(pdf, index))
        find_spaces = lacks_spaces(page.text_layer for page in sampled.values())
        pages: list[PDFPage] = []
        for index in range(len(pdf)):
            try:
                with nullcontext(sampled[index]) if index in sampled else _seen_page(pdf, index) as page:
                    pages.append(_read_page(page, find_spaces))
            except pypdfium2.PdfiumError:
                pages.append(PDFPage([], _DAMAGED))
    return pages


class _SeenPage(NamedTuple):
    """A ``pypdfium2.PdfPage``, its text, and its annotations that are not hidden."""

    page: Any
    text_layer: TextLayer
    annotations: list[_Annotation]


@contextmanager
def _seen_page(pdf: Any, index: int) -> Iterator[_SeenPage]:
    with page_as_seen(pdf, index) as (page, annotations), opened_text(page) as text_layer:
        yield _SeenPage(page, text_layer, annotations)


def _read_page(seen_page: _SeenPage, find_spaces: bool) -> PDFPage:
    page, text_layer, annotations = seen_page
    lines = text_layer.lines(find_spaces)
    if annotations:
        seen = _without_spaces(line.text for line in lines)
        for annotation in annotations:  # whose picture lacks letters
            if annotation.shown and _without_spaces([annotation.shown]) not in seen:
                shown = enumerate(annotation.shown.splitlines())
                lines += [PDFLine(text, after_gap=i == 0) for i, text in shown if text]
    n_comments = sum(annotation.is_comment for annotation in annotations)
    return PDFPage(lines, _missing_text(page, "".join([line.text for line in lines])), n_comments)


@contextmanager
def page_as_seen(pdf: Any, index: int) -> Iterator[tuple[Any, list[_Annotation]]]:
    """Open a page in the block, with what was filled into forms and annotations as a part of it.

    The value is a ``pypdfium2.PdfPage``, and the annotations that are not hidden.
    """
    page = pdf[index]
    try:
        annotations = [annotation for annotation in _annotations(pdf, page) if not annotation.is_hidden]
        if annotations and pdf.formenv is None:
            _make_form_environment(pdf)
            page.close()
            page = pdf[index]
        if annotations:
            page.flatten()
            page.close()
            page = pdf[index]
        yield page, annotations
    finally:
        page.close()


class _Annotation(NamedTuple):
    """An annotation or a field of a page: the text that the page should show, whether it is a comment, and hidden."""

    shown: str
    is_comment: bool
    is_hidden: bool


def _annotations(pdf: Any, page: Any) -> Iterator[_Annotation]:
    """Yield the annotations and fields of a page, but for links and windows of comments."""
    raw = import_optional("pypdfium2", EXTRA).raw
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        subtype = raw.FPDFAnnot_GetSubtype(annotation)
        if subtype not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):
            contents = _string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents").strip()
            shown = contents if subtype == raw.FPDF_ANNOT_FREETEXT else ""
            if subtype == raw.FPDF_ANNOT_WIDGET and pdf.formenv is not None:
                shown = _field_text(raw, pdf.formenv, annotation)
            is_comment = bool(contents) and subtype not in (raw.FPDF_ANNOT_FREETEXT, raw.FPDF_ANNOT_WIDGET)
            hidden = raw.FPDFAnnot_GetFlags(annotation) & (raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW)
            yield _Annotation(shown, is_comment, bool(hidden))
        raw.FPDFPage_CloseAnnot(annotation)


def _field_text(raw: Any, form: Any, field: Any) -> str:
    """Return what a field of a form shows: its text, or the labels of the chosen options."""
    kind = raw.FPDFAnnot_GetFormFieldType(form, field)
    if kind in (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
        chosen = [
            _string(raw.FPDFAnnot_GetOptionLabel, form, field, option)
            for option in range(raw.FPDFAnnot_GetOptionCount(form, field))
            if raw.FPDFAnnot_IsOptionSelected(form, field, option)
        ]
        return "\n".join(chosen) or _string(raw.FPDFAnnot_GetFormFieldValue, form, field).strip()
    is_secret = raw.FPDFAnnot_GetFormFieldFlags(form, field) & raw.FPDF_FORMFLAG_TEXT_PASSWORD
    if kind != raw.FPDF_FORMFIELD_TEXTFIELD or is_secret:
        return ""
    return _string(raw.FPDFAnnot_GetFormFieldValue, form, field).strip()


def _string(function: Any, *arguments: Any) -> str:
    """Return a text that a function of PDFium writes into a buffer."""
    n_bytes = function(*arguments, None, 0)
    if n_bytes <= 2:  # the end mark alone
        return ""
    buffer = (ctypes.c_ushort * (n_bytes // 2 + 1))()
    function(*arguments, buffer, n_bytes)
    return bytes(buffer)[:n_bytes].decode("utf-16-le", errors="replace").rstrip("\x00")


def _without_spaces(texts: Iterable[str]) -> str:
    return "".join("".join(texts).split())


def _make_form_environment(pdf: Any) -> None:
    """Let annotations of a file without a form be drawn; pypdfium2 does this for files with a form alone."""
    pypdfium2 = import_optional("pypdfium2", EXTRA)
    config = pypdfium2.raw.FPDF_FORMFILLINFO(version=2)
    handle = pypdfium2.raw.FPDFDOC_InitFormFillEnvironment(pdf, config)
    pdf.formenv = pypdfium2.PdfFormEnv(handle, config)


def _missing_text(page: Any, text: str) -> str:
    """Return why a page may have more text than was read, or an empty string."""
    raw = import_optional("pypdfium2", EXTRA).raw
    if text and len(_UNREADABLE_CHARACTER.findall(text)) > _MAX_UNREADABLE_SHARE * len(text):
        return "its fonts do not say which letters they draw"
    if len(text) > _FEW_CHARACTERS:
        return ""
    n_paths, n_pictures, covered = 0, 0, 0.0
    for shape in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH]):
        if shape.type == raw.FPDF_PAGEOBJ_PATH:
            n_paths += 1
            continue
        n_pictures += 1
        left, bottom, right, top = shape.get_bounds() if shape.container is None else shape.container.get_bounds()
        covered = max(covered, (right - left) * (top - bottom))
    width, height = page.get_size()
    if text:
        scan = covered > _SCAN_SHARE * width * height
        return f"a picture fills the page, and {len(text):,} characters are text; probably a scan" if scan else ""
    if n_pictures:
        return "no text, probably a scan"
    return "no text, only drawings" if n_paths else ""


def metadata_of(pdf: Any) -> tuple[str, dict[str, Any]]:
    """Return the title of a file, and its author, subject, keywords and date, as far as it has them."""
    entries = {name.lower(): value.strip() for name, value in pdf.get_metadata_dict(skip_empty=True).items()}
    metadata: dict[str, Any] = {name: entries[name] for name in ("author", "subject", "keywords") if entries.get(name)}
    date = pdf_date(entries.get("creationdate", ""))
    return entries.get("title", ""), metadata | ({} if date is None else {"date": date})


def pdf_date(text: str) -> datetime.datetime | None:
    """Return a date as PDF files write it; None if it is none.

    >>> pdf_date("D:20150301120000+01'00'").isoformat(), pdf_date("yesterday")
    ('2015-03-01T12:00:00+01:00', None)
    """
    match = _DATE.match(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (
        int(value or least) for value, least in zip(match.groups(), (1, 1, 1, 0, 0, 0), strict=False)
    )
    zone = None
    if "Z" in text or match[7]:
        offset = datetime.timedelta(hours=int(match[8] or 0), minutes=int(match[9] or 0))
        zone = datetime.timezone(-offset if match[7] == "-" else offset)
    try:
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None


def embedded_files(pdf: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files in a PDF file."""
    for index in range(pdf.count_attachments()):
        attachment = pdf.get_attachment(index)
        yield attachment.get_name(), bytes(attachment.get_data())


def has_xfa_form(pdf: Any) -> bool:
    """Return whether the file has a form whose fields are drawn by a program (XFA), not by the pages."""
    raw = import_optional("pypdfium2", EXTRA).raw
    return bool(pdf.get_formtype() == raw.FORMTYPE_XFA_FULL)


def picture_of_page(pdf: Any, index: int, dpi: int) -> NDArray[np.uint8]:
    """Return a page as it is seen, in shades of grey of shape (height, width); of a huge page, a smaller picture."""
    page = pdf[index]
    try:
        width, height = page.get_size()
        scale = min(dpi / 72, (MAX_PIXELS / max(1.0, width * height)) ** 0.5)
        bitmap = page.render(scale=scale, grayscale=True)
        picture: NDArray[np.uint8] = bitmap.to_numpy().copy()
        bitmap.close()
    finally:
        page.close()
    return picture.reshape(picture.shape[:2])
