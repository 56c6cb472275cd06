"""Recognise the words of a picture with the program Tesseract, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import numpy as np
from numpy.typing import NDArray

from haybale.collections.files.recognised_words import NotRecognised, pages_of_table
from haybale.errors import InputError

_MAX_SECONDS = 300  # of a page
_SURE_CONFIDENCE = 80  # per cent, of a page that is taken for upright
_ORIENTATION = "osd"  # the data by which Tesseract recognises how a page is turned
_UPRIGHT, _ANY_ORIENTATION = "3", "1"  # Tesseract's modes of finding the blocks of a page
# The language codes of Tesseract, by haybale's names of languages.
_CODES = """
arabic:ara armenian:hye basque:eus catalan:cat czech:ces danish:dan dutch:nld english:eng esperanto:epo estonian:est
finnish:fin french:fra german:deu greek:ell hindi:hin hungarian:hun indonesian:ind irish:gle italian:ita lithuanian:lit
nepali:nep norwegian:nor persian:fas polish:pol portuguese:por romanian:ron russian:rus serbian:srp spanish:spa
swedish:swe tamil:tam turkish:tur yiddish:yid
"""
TESSERACT_CODES = dict(pair.split(":") for pair in _CODES.split())


class Tesseract:
    """Engine of OCR that calls the program Tesseract.

    Parameters
    ----------
    languages : str, default ""
        Codes of Tesseract with ``+`` between them, such as ``"deu+eng"``. Default: all that are installed.

    Raises
    ------
    InputError
        If Tesseract or a language is not installed.
    """

    def __init__(self, languages: str = "") -> None:
        version, installed = _installed()
        self.languages = languages or "+".join(sorted(installed - {_ORIENTATION}))
        if lacking := set(self.languages.split("+")) - installed:
            names = ", ".join(sorted(installed - {_ORIENTATION}))
            raise InputError(
                f"Tesseract lacks the language {min(lacking)!r}, it has {names}; "
                f"install its data, such as the package tesseract-ocr-{min(lacking)}, or give --ocr-languages"
            )
        self._turns_pages = _ORIENTATION in installed
        self.settings = f"{version}, {self.languages}, {self._turns_pages}"

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("tesseract") is not None

    def table_of(self, picture: NDArray[np.uint8], dpi: int) -> str:
        """Return the table of the words of a picture in shades of grey, of shape (height, width).

        How a page is turned is recognised only if its words are not, since that takes a quarter of the time.

        Raises
        ------
        NotRecognised
            If Tesseract fails or takes too long.
        """
        data = b"P5\n%d %d\n255\n" % picture.shape[::-1] + picture.tobytes()
        table = self._run(data, dpi, _UPRIGHT)
        if not self._turns_pages or _evidence(table)[0] >= _SURE_CONFIDENCE:
            return table
        return max(table, self._run(data, dpi, _ANY_ORIENTATION), key=lambda table: _evidence(table)[1])

    def _run(self, data: bytes, dpi: int, layout: str) -> str:
        command = ["tesseract", "stdin", "stdout", "-l", self.languages, "--dpi", str(dpi), "--psm", layout, "tsv"]
        environment = os.environ | {"OMP_THREAD_LIMIT": "1"}
        try:
            done = subprocess.run(command, input=data, capture_output=True, timeout=_MAX_SECONDS, env=environment)
        except (subprocess.TimeoutExpired, OSError) as error:
            raise NotRecognised(str(error)) from None
        if done.returncode:
            raise NotRecognised(" ".join(done.stderr.decode(errors="replace").split())[:200] or "Tesseract failed")
        return done.stdout.decode(errors="replace")


def _evidence(table: str) -> tuple[float, float]:
    """Return the mean confidence of the characters of a page, and its sum."""
    (page,) = pages_of_table(table)
    return page.confidence, page.confidence * sum(len(line.text) for line in page.lines)


@cache
def _installed() -> tuple[str, set[str]]:
    """Return the version of Tesseract, and the codes of its languages."""
    if not Tesseract.is_installed():
        raise InputError(
            "--ocr needs the program tesseract or the package rapidocr, found none; install Tesseract, such as the "
            'packages tesseract-ocr and tesseract-ocr-deu, or pip install "haybale[ocr]"'
        )
    version, languages = (
        subprocess.run(["tesseract", option], capture_output=True, text=True, check=True).stdout.splitlines()
        for option in ("--version", "--list-langs")
    )
    return version[0], set(languages[1:])
