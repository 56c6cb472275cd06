"""Draw a page of a PDF file or of a picture, bounded in size, with its characters and where they are."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from haybale.collections.files.file_reader import EXTRA, Unreadable
from haybale.collections.files.page_characters import PageCharacters, characters_of_page
from haybale.collections.files.passage_boxes import Box
from haybale.collections.files.pdf_pages import opened_pdf, page_as_seen
from haybale.collections.files.pictures import as_seen
from haybale.extras import import_optional

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
DRAWN_SUFFIXES = (".pdf", *PICTURE_SUFFIXES)  # of files whose pages can be drawn
_DPI = 130
_MAX_PIXELS = 4_000_000
_MAX_SIDE = 8_000  # pixels
_MAX_PIXELS_OF_FILE = 200_000_000  # of a picture, decoded
_METRES_A_POINT = 0.0254 / 72
_QUALITY = 85  # of JPEG
_MARKS = {"fill": (255, 221, 0, 70), "outline": (200, 60, 0, 255)}  # red, green, blue, opacity
_PADDING, _OUTLINE = 3, 2  # pixels around a line of a passage


class DrawnPage(NamedTuple):
    """A page as a picture.

    Attributes
    ----------
    picture : bytes
        PNG, or JPEG if that takes less than half the bytes.
    media_type : {"image/png", "image/jpeg"}
    width, height : int
        In pixels.
    n_pages : int
        The number of pages of the file.
    characters : PageCharacters
        None of a picture, whose text is not in it.
    note : str
        What the picture does not show; empty if it shows all.
    """

    picture: bytes
    media_type: str
    width: int
    height: int
    n_pages: int
    characters: PageCharacters
    note: str = ""


def draw_page(data: bytes, suffix: str, index: int) -> DrawnPage:
    """Draw a page of a file.

    Parameters
    ----------
    data : bytes
        The content of the file.
    suffix : str
        One of :data:`DRAWN_SUFFIXES`.
    index : int
        The number of the page, from 0.

    Raises
    ------
    Unreadable
        If the file is encrypted or damaged, or has no such page.
    MissingExtraError
        Without the extra ``documents``.
    """
    pillow = import_optional("PIL.Image", EXTRA)
    return _drawn_pdf(data, index) if suffix == ".pdf" else _drawn_picture(pillow, data, index)


def _drawn_pdf(data: bytes, index: int) -> DrawnPage:
    pypdfium2 = import_optional("pypdfium2", EXTRA)
    with opened_pdf(data) as pdf:
        n_pages = len(pdf)
        _check_index(index, n_pages)
        try:
            with page_as_seen(pdf, index) as (page, _):
                width, height = page.get_size()
                most = min((_MAX_PIXELS / max(1.0, width * height)) ** 0.5, _MAX_SIDE / max(1.0, width, height))
                bitmap = page.render(scale=min(_DPI / 72, most), may_draw_forms=False)
                image = bitmap.to_pil().convert("RGB")
                bitmap.close()
                characters = characters_of_page(page)
        except pypdfium2.PdfiumError:
            raise Unreadable(f"page {index + 1} is damaged; restore the file from where it came") from None
    size = f"{width * _METRES_A_POINT:.2f} × {height * _METRES_A_POINT:.2f} m"
    note = f"the page measures {size} and is drawn smaller; open the file to see details" if most < 1 else ""
    return _page(image, n_pages, characters, note)


def _drawn_picture(pillow: Any, data: bytes, index: int) -> DrawnPage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large pictures, which are refused below, and of odd metadata
        try:
            image = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG", "TIFF"))
            n_pages = int(getattr(image, "n_frames", 1))
            _check_index(index, n_pages)
            image.seek(index)
            if image.width * image.height > _MAX_PIXELS_OF_FILE:
                raise Unreadable(f"a picture of {image.width:,} × {image.height:,} pixels; open the file itself")
            size = image.size
            image = as_seen(image).convert("RGB")
            most = min(1.0, (_MAX_PIXELS / (size[0] * size[1])) ** 0.5, _MAX_SIDE / max(size))
            if most < 1:
                image.thumbnail((max(1, round(image.width * most)), max(1, round(image.height * most))))
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable("damaged, or not a picture; restore it from where it came") from error
    return _page(image, n_pages, PageCharacters.of([], np.zeros((0, 4), dtype=np.float32)), "")


def _check_index(index: int, n_pages: int) -> None:
    if not 0 <= index < n_pages:
        raise Unreadable(f"expected a page from 1 to {n_pages:,}, found {index + 1:,}")


def _page(image: Any, n_pages: int, characters: PageCharacters, note: str) -> DrawnPage:
    picture, media_type = _encoded(image)
    return DrawnPage(picture, media_type, image.width, image.height, n_pages, characters, note)


def _encoded(image: Any) -> tuple[bytes, str]:
    """Return an image as PNG, or as JPEG if that takes less than half the bytes, and its media type."""
    png, jpeg = io.BytesIO(), io.BytesIO()
    image.save(png, "PNG", compress_level=6)
    image.save(jpeg, "JPEG", quality=_QUALITY)
    if 2 * jpeg.tell() < png.tell():
        return jpeg.getvalue(), "image/jpeg"
    return png.getvalue(), "image/png"


def with_boxes(picture: bytes, boxes: Sequence[Box]) -> tuple[bytes, str]:
    """Return a picture with boxes drawn on it, and its media type."""
    image = import_optional("PIL.Image", EXTRA).open(io.BytesIO(picture)).convert("RGB")
    draw = import_optional("PIL.ImageDraw", EXTRA).Draw(image, "RGBA")
    for box in boxes:
        left, right = box.left * image.width - _PADDING, box.right * image.width + _PADDING
        top, bottom = box.top * image.height - _PADDING, box.bottom * image.height + _PADDING
        draw.rectangle((left, top, right, bottom), width=_OUTLINE, **_MARKS)
    return _encoded(image)
