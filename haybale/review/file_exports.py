"""Write a topic to a file or folder in any format, as the command line does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from haybale.errors import InputError, UnknownNameError
from haybale.folders import check_file, check_output, replaced
from haybale.review.exports import FORMATS
from haybale.review.topic_folder import write_topic
from haybale.review.workbook_export import exported_workbook

if TYPE_CHECKING:
    from haybale.review.review import Review

_BYTES_FORMATS = ("docx", "xlsx")  # that a terminal cannot show
_WHOLE_FORMATS = ("zip", "folder")  # all of a topic
FILE_FORMATS = (*FORMATS, *_BYTES_FORMATS, *_WHOLE_FORMATS)
_FOLDERS = ("beir", "folder")


def check_format(format: str, out: Path | None) -> None:
    """Raise an error if a topic cannot be written in a format to a path, or to the terminal if there is none."""
    if format not in FILE_FORMATS:
        raise UnknownNameError("format", format, FILE_FORMATS)
    if out is None:
        if format in (*_BYTES_FORMATS, *_WHOLE_FORMATS, "beir"):
            kind = "folder" if format in _FOLDERS else "file"
            raise InputError(f"--export {format} needs a {kind}, found no --out; give --out PATH")
    elif format in _FOLDERS:
        check_output(out)
    elif format == "zip" and out.suffix.lower() != ".zip":
        raise InputError(f"--export zip needs a file that ends in .zip, found {out.name!r}; choose another name")
    else:
        check_file(out)


def write_file(review: Review, format: str, path: Path, documents: str = "judged") -> None:
    """Write a topic in one of the :data:`FILE_FORMATS`; the path becomes a folder for ``"beir"`` and ``"folder"``."""
    if format in _WHOLE_FORMATS:
        write_topic(review, path)
    elif format in FORMATS:
        review.export(format, path, documents)
    else:
        content = exported_workbook(review, documents) if format == "xlsx" else None
        with replaced(path) as aside:
            aside.write_bytes(content or review.report(documents).to_word())
