"""Turn the rows of a table into documents; the columns of text, id and title are recognised by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

from haybale.collections.files.file_reader import FileDocument, Part, Unreadable, paragraphs_of
from haybale.collections.files.record_keys import keys_of_row

NAMES = {  # names of columns, in lower case; the first that a table has is taken
    "text": (
        "text",
        "body",
        "content",
        "full_text",
        "fulltext",
        "abstract",
        "notes_abstract",
        "passage",
        "description",
    ),
    "id": ("id", "_id", "doc_id", "docid", "document_id", "record_id", "key", "path"),
    "title": ("title", "primary_title", "titel", "subject", "name", "heading"),
}
Row = Mapping[str, Any]


def chosen_columns(names: Iterable[str], columns: Mapping[str, str]) -> dict[str, str | None]:
    """Return the names of the columns ``text``, ``id`` and ``title``; those of id and title may be None.

    >>> chosen_columns(["Title", "Abstract", "year"], {})
    {'text': 'Abstract', 'id': None, 'title': 'Title'}
    """
    names = list(names)
    lowered = {name.lower().strip(): name for name in reversed(names)}
    column_of_role = {}
    for role, usual in NAMES.items():
        wanted = columns.get(role)
        if wanted is not None and wanted not in names:
            raise Unreadable(f"no column {wanted!r}; its columns are {', '.join(names)}")
        column_of_role[role] = wanted or next((lowered[name] for name in usual if name in lowered), None)
    if column_of_role["text"] is None:
        raise Unreadable(f"no column of text among {', '.join(names) or 'none'}; name it with --text")
    return column_of_role


def documents_of_rows(rows: Iterable[Row], columns: Mapping[str, str]) -> Iterator[FileDocument]:
    """Yield a document for each row that has a text or a title; other columns become its metadata."""
    chosen: dict[str, str | None] = {}
    for number, row in enumerate(rows, 1):
        chosen = chosen or chosen_columns(row, columns)
        text, title = (_text(row.get(chosen[role] or "")) for role in ("text", "title"))
        taken = set(chosen.values())
        metadata = {name: value for name, value in row.items() if name and name not in taken and _is_value(value)}
        own_id = _text(row.get(chosen["id"] or "")) or None
        parts = [Part(paragraph) for paragraph in paragraphs_of(text or title)]
        if parts:
            keys = keys_of_row(row)
            yield FileDocument(parts, title, metadata, own_id=own_id, record_keys=keys, location=f"row {number}")
    if not chosen:
        raise Unreadable("expected a header and at least one row, found none")


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(member, str) for member in value)
    return isinstance(value, str | bool | int | float | date | datetime) and value != "" and value == value
