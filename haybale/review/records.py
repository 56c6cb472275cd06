"""Read record files of ASReview: CSV, TSV, Excel or RIS with title, abstract and a label for each record."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haybale.collections import Collection, CollectionBuilder
from haybale.collections.files.delimited import rows_of
from haybale.collections.files.file_reader import EXTRA, decoded
from haybale.errors import FileFormatError, HaybaleError, InputError
from haybale.extras import import_optional
from haybale.text_files import MAX_TEXT, read_bytes

SUFFIXES = (".csv", ".tsv", ".tab", ".xlsx", ".ris", ".txt")
# Names of columns, as ASReview recognises them, in lower case; the first that a file has is taken.
_NAMES = {
    "id": ("record_id", "id", "doc_id", "recordid"),
    "title": ("title", "primary_title", "translated_title"),
    "abstract": ("abstract", "abstract_note", "notes_abstract", "abstract note", "text"),
    "label": ("included", "label_included", "included_label", "label", "final_included", "included_final", "include"),
}
_RELEVANT, _IRRELEVANT = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}
_UNLABELLED = {"", "-1", "-1.0", "nan", "none"}


@dataclass(frozen=True)
class LabelledRecords:
    """Records of a review that was finished.

    Parameters
    ----------
    collection : Collection
        A document for each labelled record: one passage of title and abstract.
    relevant : list of str
        The ids of the relevant records.
    """

    collection: Collection
    relevant: list[str]


def is_record_file(path: str | Path) -> bool:
    """Return whether a path names a file that can hold records."""
    name = str(path).lower().removesuffix(".gz")
    return name.endswith(SUFFIXES) and Path(path).is_file()


def read_records(path: str | Path) -> LabelledRecords:
    """Read a record file of ASReview, plain or ``.gz``.

    The columns are recognised by their names, as in ASReview: ``title`` and ``abstract``, of which one is enough;
    ``included``, ``label_included`` or ``label`` with 1 for relevant and 0 for irrelevant; and optionally
    ``record_id``. In RIS files, a note ``ASReview_relevant`` or ``ASReview_irrelevant`` is the label. Records without a
    label, or with neither title nor abstract, are left out and counted in one warning.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    FileFormatError
        If a column is missing, a label is none, an id occurs twice, or no record is labelled.
    MissingExtraError
        For Excel and RIS files without the extra ``documents``.
    """
    path = Path(path)
    data = read_bytes(path)
    name = path.name.lower().removesuffix(".gz")
    try:
        if path.name.lower().endswith(".gz"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_TEXT + 1)
            if len(data) > MAX_TEXT:
                raise FileFormatError(path, None, f"expected at most {MAX_TEXT:,} bytes, found more; split the file")
        rows = list(_rows(name, data))
    except HaybaleError:
        raise
    except Exception as error:  # the libraries raise errors of many types for damaged files
        raise FileFormatError(path, None, f"expected a table of records, found an error: {error}") from error
    if not rows:
        raise FileFormatError(path, None, "expected a header with label_included and records, found none")
    columns = _columns(path, rows[0])
    builder, relevant, left_out = CollectionBuilder(path.name.split(".")[0]), [], 0
    for number, row in enumerate(rows):
        label = _label(path, number, row, columns["label"])
        parts = [_text(row.get(columns[part] or "")) for part in ("title", "abstract")]
        text = "\n".join(filter(None, parts))
        if label is None or not text:
            left_out += 1
            continue
        doc_id = _text(row.get(columns["id"] or "")) or str(number)
        try:
            builder.add_document(doc_id, text, parts[0])
        except InputError as error:
            raise FileFormatError(
                path, None, f"record {number + 1}: expected a record with an id of its own: {error}"
            ) from None
        if label:
            relevant.append(doc_id)
    if left_out:
        warnings.warn(
            f"{path}: left out {left_out:,} of {len(rows):,} records, which have no label or no text; label them to "
            "use them",
            stacklevel=2,
        )
    if left_out == len(rows):
        raise FileFormatError(path, None, "expected records with label_included 1 or 0, found none; label them")
    return LabelledRecords(builder.build(), relevant)


def _rows(name: str, data: bytes) -> Iterator[Mapping[str, Any]]:
    if name.endswith(".xlsx"):
        book = import_optional("openpyxl", EXTRA).load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        table = book.worksheets[0].iter_rows(values_only=True)
        header = [str(cell) if cell is not None else "" for cell in next(table, ())]
        yield from (dict(zip(header, row, strict=False)) for row in table if any(cell is not None for cell in row))
    elif name.endswith((".ris", ".txt")):
        for record in import_optional("rispy", EXTRA).loads(decoded(data)):
            notes = " ".join(map(str, record.get("notes", [])))
            label = "1" if "ASReview_relevant" in notes else "0" if "ASReview_irrelevant" in notes else ""
            yield {"title": "", "abstract": ""} | record | {"included": label}
    else:
        yield from rows_of(data)


def _columns(path: Path, row: Mapping[str, Any]) -> dict[str, str | None]:
    lowered = {str(name).lower().strip(): name for name in reversed(list(row))}
    columns = {role: next((lowered[name] for name in names if name in lowered), None) for role, names in _NAMES.items()}
    names = ", ".join(map(str, row)) or "none"
    if columns["label"] is None:
        raise FileFormatError(path, None, f"expected a column label_included with 1 or 0, found {names}; add one")
    if columns["title"] is None and columns["abstract"] is None:
        raise FileFormatError(path, None, f"expected a column title or abstract, found {names}; add one")
    return columns


def _label(path: Path, number: int, row: Mapping[str, Any], column: str | None) -> bool | None:
    """Return whether a record is relevant; None if it has no label."""
    value = _text(row.get(column or "")).lower()
    if value in _UNLABELLED:
        return None
    if value not in _RELEVANT | _IRRELEVANT:
        raise FileFormatError(path, None, f"record {number + 1}, column {column}: expected 1 or 0, found {value!r:.40}")
    return value in _RELEVANT


def _text(value: Any) -> str:
    """Return a cell as a text; whole numbers of Excel lose their decimal point."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
