"""Decode pictures of pages with Pillow, as a person sees them: upright, and on white paper."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections.files.file_reader import EXTRA
from haybale.collections.files.recognised_words import NotRecognised
from haybale.extras import import_optional

MAX_PIXELS = 40_000_000  # of the picture of a page; larger ones are made smaller


def pictures_in(data: bytes) -> Iterator[NDArray[np.uint8]]:
    """Yield the pages of a PNG, JPEG or TIFF file in shades of grey, each of shape (height, width).

    They are turned as their tag of the orientation says (EXIF), and transparent parts are white.

    Raises
    ------
    NotRecognised
        If the file is damaged, or a page has more pixels than Pillow takes for harmless: 179 million.
    """
    pillow, sequence = import_optional("PIL.Image", EXTRA), import_optional("PIL.ImageSequence", EXTRA)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pictures with half as many pixels as are refused
            with pillow.open(BytesIO(data)) as image:
                for frame in sequence.Iterator(image):
                    yield _shades(frame)
    except (OSError, ValueError, SyntaxError, EOFError, pillow.DecompressionBombError) as error:
        raise NotRecognised(f"expected a picture, found damaged data or an unknown kind: {error}") from error


def as_seen(image: Any) -> Any:
    """Return a picture of Pillow upright, with 8 bits a colour, and on white paper where it is transparent."""
    pillow, operations = import_optional("PIL.Image", EXTRA), import_optional("PIL.ImageOps", EXTRA)
    image = operations.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits, of which Pillow would keep the lowest
        values = np.asarray(image, dtype=np.float64)
        largest = 65_535.0 if image.mode.startswith("I;16") or values.max() > 1 else 1.0
        image = pillow.fromarray((255 * np.clip(values / max(largest, values.max()), 0, 1)).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        paper = pillow.new("RGBA", image.size, "white")
        image = pillow.alpha_composite(paper, image)
    return image


def _shades(image: Any) -> NDArray[np.uint8]:
    """Return a picture of Pillow in shades of grey, with at most ``MAX_PIXELS``."""
    image = as_seen(image).convert("L")
    share = (MAX_PIXELS / (image.width * image.height)) ** 0.5
    if share < 1:
        image = image.resize((max(1, int(image.width * share)), max(1, int(image.height * share))))
    return np.asarray(image)
