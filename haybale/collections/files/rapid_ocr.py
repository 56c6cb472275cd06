"""Recognise the lines of a picture with the package rapidocr, whose wheel brings its models.

Its models read Latin, Chinese, Japanese and Greek letters, in any mixture.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections.files.recognised_words import COLUMNS, PAGE_LEVEL, WORD_LEVEL, NotRecognised
from haybale.errors import InputError
from haybale.extras import import_optional

_EXTRA = "ocr"
_UNREAD_ALPHABETS = {"ara", "hye", "hin", "nep", "fas", "rus", "srp", "tam", "yid"}  # by codes of Tesseract
_MIN_GUTTER = 1.0  # heights of a line, between columns
_MIN_LINES_OF_COLUMN = 3
_MIN_GAP = 0.8  # heights of a line, between paragraphs
_MAX_RISE = 0.5  # heights of a line, between parts of it

Boxes = NDArray[np.float64]  # (n, 4): left, top, right and bottom in pixels


class RapidOCR:
    """Engine of OCR that calls the package rapidocr, with models that run in this process.

    Parameters
    ----------
    languages : str, default ""
        Codes of Tesseract with ``+`` between them; the models read all languages that they know at once.

    Raises
    ------
    InputError
        If the models lack the letters of a language.
    """

    def __init__(self, languages: str = "") -> None:
        if unread := _UNREAD_ALPHABETS & set(languages.split("+")):
            raise InputError(
                f"the package rapidocr lacks the letters of the language {min(unread)!r}, it has Latin, Greek, Chinese "
                f"and Japanese ones; install Tesseract, such as the packages tesseract-ocr and "
                f"tesseract-ocr-{min(unread)}"
            )
        self.settings = f"rapidocr {version('rapidocr')}"
        self._of_thread = threading.local()

    @staticmethod
    def is_installed() -> bool:
        return all(importlib.util.find_spec(name) is not None for name in ("rapidocr", "onnxruntime"))

    def table_of(self, picture: NDArray[np.uint8], dpi: int) -> str:
        """Return the table of the words of a picture in shades of grey, of shape (height, width)."""
        del dpi  # the models find letters of any size
        if not hasattr(self._of_thread, "recognise"):
            self._of_thread.recognise = _loaded()
        try:
            output = self._of_thread.recognise(np.repeat(picture[:, :, np.newaxis], 3, axis=2))
        except Exception as error:  # of OpenCV and of ONNX Runtime
            raise NotRecognised(f"{type(error).__name__}: {' '.join(str(error).split()):.200}") from error
        height, width = picture.shape
        rows: list[tuple[Any, ...]] = [COLUMNS, (PAGE_LEVEL, 1, 0, 0, 0, 0, 0, 0, width, height, -1, "")]
        if output.boxes is not None and len(output.boxes):
            corners = np.asarray(output.boxes, dtype=np.float64)
            boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
            rows += _word_rows(boxes, output.txts, output.scores)
        return "\n".join("\t".join(map(str, row)) for row in rows)


def _loaded() -> Any:
    """Return an object that recognises pictures with one thread."""
    threads = dict.fromkeys(("intra_op_num_threads", "inter_op_num_threads"), 1)
    settings = {f"EngineConfig.onnxruntime.{name}": n for name, n in threads.items()}
    return import_optional("rapidocr", _EXTRA).RapidOCR(params={"Global.log_level": "error"} | settings)


def _word_rows(boxes: Boxes, texts: tuple[str, ...], scores: tuple[float, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of words; the words of a line share its box by their letters."""
    for block, rows_of_block in enumerate(blocks_of(boxes), 1):
        for line, rows in enumerate(_lines_of(boxes, rows_of_block), 1):
            n_words = 0
            for row in rows:
                left, top, right, bottom = boxes[row]
                at, width = 0, (right - left) / max(1, len(texts[row]))
                for word in texts[row].split():
                    at = texts[row].index(word, at)
                    n_words += 1
                    box = (round(value) for value in (left + at * width, top, len(word) * width, bottom - top))
                    yield WORD_LEVEL, 1, block, 1, line, n_words, *box, round(100 * scores[row], 2), word
                    at += len(word)


def blocks_of(boxes: Boxes) -> list[NDArray[np.intp]]:
    """Return the rows of boxes in the order in which the page is read, a block for each paragraph.

    A page is cut at gaps between columns, and these at gaps between paragraphs, again and again (XY-cut).

    >>> left, right = ([[x, y, x + 90, y + 10] for y in (0, 12, 24)] for x in (0, 120))
    >>> [block.tolist() for block in blocks_of(np.array([*left, *right, [0, 60, 210, 70]], dtype=float)[::-1])]
    [[6, 5, 4], [3, 2, 1], [0]]
    """
    least = float(np.median(boxes[:, 3] - boxes[:, 1]))

    def cut(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        for axis, gap, n_lines in ((0, _MIN_GUTTER, _MIN_LINES_OF_COLUMN), (1, _MIN_GAP, 1)):
            ordered = rows[np.argsort(boxes[rows, axis], kind="stable")]
            ends = np.maximum.accumulate(boxes[ordered, axis + 2])
            gaps = boxes[ordered[1:], axis] - ends[:-1]
            n_before = np.arange(1, len(ordered))
            gaps[(n_before < n_lines) | (len(ordered) - n_before < n_lines)] = -np.inf
            if len(gaps) and gaps.max() > gap * least:
                at = int(gaps.argmax()) + 1
                yield from cut(ordered[:at])
                yield from cut(ordered[at:])
                return
        yield rows[np.argsort(boxes[rows, 1], kind="stable")]

    return list(cut(np.arange(len(boxes))))


def _lines_of(boxes: Boxes, rows: NDArray[np.intp]) -> list[list[int]]:
    """Return the rows of a block, which are sorted from top to bottom, by lines, each from left to right."""
    lines: list[list[int]] = []
    for row in rows.tolist():
        height = boxes[row, 3] - boxes[row, 1]
        if lines and boxes[row, 1] - boxes[lines[-1][0], 1] < _MAX_RISE * height:
            lines[-1].append(row)
        else:
            lines.append([row])
    return [sorted(line, key=lambda row: boxes[row, 0]) for line in lines]
