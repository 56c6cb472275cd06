"""Read labelled record files: CSV, TSV, Excel or bibliographic records with title, abstract and a label for each."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from haybale.collections import Collection, CollectionBuilder
from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_reader import reader_of
from haybale.collections.files.references import FORMATS, records_of
from haybale.collections.files.spreadsheet import sheets_of
from haybale.collections.files.table_rows import Row, columns_of, is_empty, paragraphs_of_value
from haybale.collections.unread import UnreadPart, counted
from haybale.delimited_table import named_cells, read_delimited
from haybale.errors import FileFormatError, HaybaleError, InputError
from haybale.review.recorded_decisions import decisions_of, has_decisions, without_label_tag
from haybale.text_files import MAX_TEXT, read_bytes

_TABLES = (".csv", ".tsv", ".tab", ".xlsx")  # ends of names
# Names of columns, as ASReview recognises them, in lower case; the first that a file has is taken.
_NAMES = {
    "id": ("record_id", "id", "doc_id", "recordid"),
    "title": ("title", "primary_title", "translated_title"),
    "abstract": ("abstract", "abstract_note", "notes_abstract", "abstract note", "text"),
    "label": (
        "asreview_label", "included", "label", "final_included", "label_included", "included_label", "included_final",
        "included_flag", "include",
    ),
}  # fmt: skip
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
    return (name.endswith((*_TABLES, ".txt")) or _reference_format(name) is not None) and Path(path).is_file()


def _reference_format(name: str) -> str | None:
    """Return the format of bibliographic records that the name of a file promises, or None."""
    reader = reader_of(name)
    return reader.name if reader is not None and reader.name in FORMATS else None


def read_records(path: str | Path) -> LabelledRecords:
    """Read a labelled record file, such as one of ASReview, plain or ``.gz``.

    The columns are recognised by their names, as in ASReview: ``title`` and ``abstract``, of which one is enough;
    ``asreview_label``, ``included``, ``label_included`` or ``label`` with 1 for relevant and 0 for irrelevant; and
    optionally ``record_id``. Without such a column, and in bibliographic records (RIS, PubMed and others), the label is
    in notes of ASReview, Rayyan or haybale, such as ``ASReview_relevant``. Records without a label, or with neither
    title nor abstract, are left out and counted in one warning. If a ``record_id`` occurs twice, records are numbered
    instead.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    FileFormatError
        If a column is missing, a label is none, or no record is labelled.
    MissingExtraError
        For Excel, BibTeX and XML files without the extra ``documents``.
    """
    path = Path(path)
    data = read_bytes(path)
    name = path.name.lower().removesuffix(".gz")
    try:
        if path.name.lower().endswith(".gz"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_TEXT + 1)
            if len(data) > MAX_TEXT:
                raise FileFormatError(path, None, f"expected at most {MAX_TEXT:,} bytes, found more; split the file")
        rows = _rows(path, name, data)
    except HaybaleError:
        raise
    except Exception as error:  # the libraries raise errors of many types for damaged files
        raise FileFormatError(path, None, f"expected a table of records, found an error: {error}") from error
    columns = _columns(path, rows)
    builder, relevant, left_out = CollectionBuilder(path.name.split(".")[0]), [], 0
    ids = [_text(row, columns["id"]) or str(number) for number, row in enumerate(rows)]
    if len(set(ids)) < len(ids):
        ids = list(map(str, range(len(rows))))
    for doc_id, row in zip(ids, rows, strict=True):
        label = _label(path, row, columns["label"][0])
        parts = [_text(row, columns[part]) for part in ("title", "abstract")]
        text = "\n".join(filter(None, parts))
        if label is None or not text:
            left_out += 1
            continue
        try:
            builder.add_document(doc_id, text, parts[0])
        except InputError as error:
            raise FileFormatError(
                path, None, f"{row.location}: expected a record with text and an id: {error}; correct it"
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


def _rows(path: Path, name: str, data: bytes) -> list[Row]:
    """Return the records of a file; warn of what was not read, and refuse rows whose labels may be in other columns."""
    if name.endswith(".xlsx"):
        sheets, unread = sheets_of(data)
        labelled_sheets = [sheet for sheet in sheets if _columns_of_role("label", columns_of(sheet.rows))]
        rows = [row for sheet in labelled_sheets or sheets[:1] for row in sheet.rows]
        unread += [part.within(f"sheet {sheet.title}") for sheet in labelled_sheets for part in sheet.unread]
        if labelled_sheets:
            others = [sheet for sheet in sheets if sheet not in labelled_sheets]
            unread += [UnreadPart(part=f"sheet {sheet.title}", reason="no column of labels") for sheet in others]
    elif not name.endswith(_TABLES):
        items = list(records_of(data, _reference_format(name)))
        unread = [item for item in items if isinstance(item, UnreadPart)]
        rows = [without_label_tag(item) for item in items if isinstance(item, Row)]
    else:
        decoded = decode_text(data)
        table, unread = read_delimited(decoded.text), decoded.unread
        if table.problems:
            raise FileFormatError(path, *table.problems[0])
        rows = [Row(f"line {line}", named_cells(table.columns, cells)) for line, cells in table.rows]
    rows = [row for row in rows if not all(map(is_empty, row.values.values()))]
    if not _columns_of_role("label", columns_of(rows)) and any(map(has_decisions, rows)):
        rows = list(map(_with_label, rows))
    if unread:
        first = unread[0]
        warnings.warn(
            f"{path}: expected records that can be read with certainty, found {counted(unread)} with reservations, "
            f"such as {first.part} ({first.reason}); check or correct them",
            stacklevel=3,
        )
    return rows


def _with_label(record: Row) -> Row:
    """Return a record with the label that its notes have; of several judges, one who found it relevant is enough."""
    grades = [decision.grade for decision in decisions_of(record)]
    label = str(int(max(grades) > 0)) if grades else ""
    return record._replace(values={**record.values, "included": label})


def _columns_of_role(role: str, names: Sequence[str]) -> list[str]:
    """Return the names of the columns that can have a role, the usual ones first."""
    lowered = {name.lower().strip(): name for name in reversed(names)}
    return [lowered[name] for name in _NAMES[role] if name in lowered]


def _columns(path: Path, rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the columns of title and abstract, which may be different ones in each record, and those of id and label.

    Of the columns that can be the id or the label, the first is taken.
    """
    names = columns_of(rows)
    columns = {role: _columns_of_role(role, names) for role in _NAMES}
    about = ", ".join(names) or "none"
    if not rows:
        raise FileFormatError(path, None, f"expected a header with label_included and records, found {about}")
    if not columns["label"]:
        raise FileFormatError(
            path, None, f"expected a column label_included with 1 or 0, or notes of ASReview, found {about}; add one"
        )
    if not columns["title"] and not columns["abstract"]:
        raise FileFormatError(path, None, f"expected a column title or abstract, found {about}; add one")
    return columns | {role: columns[role][:1] for role in ("id", "label")}


def _label(path: Path, row: Row, column: str) -> bool | None:
    """Return whether a record is relevant; None if it has no label."""
    value = " ".join(paragraphs_of_value(row.values.get(column))).lower()
    if value in _UNLABELLED:
        return None
    if value not in _RELEVANT | _IRRELEVANT:
        raise FileFormatError(path, None, f"{row.location}, column {column}: expected 1 or 0, found {value!r:.40}")
    return value in _RELEVANT


def _text(row: Row, columns: Sequence[str]) -> str:
    """Return the text in the first of some columns that has one in this record."""
    texts = ("\n\n".join(paragraphs_of_value(row.values.get(column))) for column in columns)
    return next(filter(None, texts), "")
