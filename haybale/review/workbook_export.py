"""Write the table of a topic as an Excel workbook, with openpyxl."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from haybale.collections.files.file_reader import EXTRA
from haybale.extras import import_optional
from haybale.review.exports import table_of
from haybale.spreadsheets import as_cell

if TYPE_CHECKING:
    from haybale.review.review import Review

_MAX_CELL_CHARACTERS = 32_767  # of Excel
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what the XML of Excel cannot have


def exported_workbook(review: Review, documents: str = "judged", seen_by: str | None = None) -> bytes:
    """Return the table of a review as an Excel workbook. Cells hold at most 32,767 characters; the rest is left out.

    Parameters
    ----------
    review : Review
    documents : {"judged", "all"}, default "judged"
        With ``"all"``, also the documents that nobody has judged, the best first.
    seen_by : str, optional
        Leave out what this judge must not see. Default: write all.

    Raises
    ------
    MissingExtraError
        Without the extra ``documents``.
    """
    book = import_optional("openpyxl", EXTRA).Workbook(write_only=True)
    sheet = book.create_sheet("records")
    for cells in table_of(review.report(documents, seen_by).records):
        sheet.append([_workbook_cell(as_cell(cell)) for cell in cells])
    book.save(out := io.BytesIO())
    return out.getvalue()


def _workbook_cell(value: Any) -> Any:
    return _CONTROL.sub("", value)[:_MAX_CELL_CHARACTERS] if isinstance(value, str) else value
