"""Turn the rows of a table into documents; the columns of text, id and title are recognised by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple

from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import Unreadable, paragraphs_of
from haybale.collections.files.record_keys import keys_of_row
from haybale.collections.metadata import plain_value
from haybale.collections.unread import UnreadPart
from haybale.errors import InputError

NAMES = {  # names of columns, in lower case; the first that a row has is taken
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
    "title": (
        "title",
        "primary_title",
        "translated_title",
        "article title",
        "document title",
        "item title",
        "titel",
        "short_title",
        "booktitle",
        "subject",
        "name",
        "heading",
    ),
}
# Columns of titles that are not enough for a table without a column of texts, which may be a list of anything.
_VAGUE_TITLES = frozenset({"subject", "name", "heading"})


class Row(NamedTuple):
    """A row of a table, or a record: where it is, such as ``"line 7"``, and its values by the names of their columns.

    Rows of one table may have different columns.
    """

    location: str
    values: Mapping[str, Any]


def columns_of(rows: Iterable[Row | UnreadPart]) -> list[str]:
    """Return the names of the columns of all rows, in the order in which they occur."""
    return list(dict.fromkeys(name for row in rows if isinstance(row, Row) for name in row.values))


def columns_by_role(names: Iterable[str], options: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the columns that can be text, id and title, the usual ones first.

    >>> columns_by_role(["Title", "Abstract", "Text", "year"], {})
    {'text': ['Text', 'Abstract'], 'id': [], 'title': ['Title']}
    """
    names = list(names)
    by_lower_case: dict[str, list[str]] = {}
    for name in names:
        by_lower_case.setdefault(name.lower().strip(), []).append(name)
    columns = {}
    for role, usual_names in NAMES.items():
        wanted = options.get(role)
        if wanted is not None and wanted not in names:
            raise Unreadable(f"no column {wanted!r}; its columns are {', '.join(names)}")
        columns[role] = [wanted] if wanted else [name for usual in usual_names for name in by_lower_case.get(usual, ())]
    has_titles = options.get("title") is not None or any(
        name.lower().strip() not in _VAGUE_TITLES for name in columns["title"]
    )
    if not columns["text"] and not has_titles:
        raise Unreadable(f"no column of text or title among {', '.join(names) or 'none'}; name it with --text")
    return columns


def documents_of_rows(
    rows: Iterable[Row | UnreadPart], options: Mapping[str, str]
) -> Iterator[FileDocument | UnreadPart]:
    """Yield a document for each row that has a text or a title; other columns become its metadata.

    The text of a row is in the first column of texts that has one in this row. A list in it is paragraphs; of an
    object, all strings are taken.
    """
    rows = list(rows)
    yield from (row for row in rows if isinstance(row, UnreadPart))
    names = columns_of(rows)
    if not names:
        raise Unreadable("expected a header and at least one row, found none")
    columns = columns_by_role(names, options)
    for row in rows:
        if isinstance(row, Row):
            yield from _documents_of_row(row, columns)


def _documents_of_row(row: Row, columns: Mapping[str, list[str]]) -> Iterator[FileDocument | UnreadPart]:
    """Yield the document of a row, or why it has none; nothing if the row is empty."""
    values = {name: value for name, value in row.values.items() if not is_empty(value)}
    try:
        texts = {name: paragraphs_of_value(values[name]) for name in columns["text"] if name in values}
        text_column = next((name for name, paragraphs in texts.items() if paragraphs), None)
        title_column, id_column = (
            next((name for name in columns[role] if row.values.get(name) is not None), "") for role in ("title", "id")
        )
        title = " ".join(paragraphs_of_value(values.get(title_column)))
        own_id = " ".join(paragraphs_of_value(values.get(id_column))) or None
    except Unreadable as error:
        yield UnreadPart(part=row.location, reason=str(error))
        return
    parts = [Part(paragraph) for paragraph in (texts[text_column] if text_column else paragraphs_of(title))]
    if parts:
        metadata: dict[str, Any] = {}
        for name in values:
            if name in (text_column, title_column, id_column):
                continue
            try:
                metadata[name] = _metadata_value(values[name])
            except InputError as error:
                yield UnreadPart(part=f"{row.location}, column {name}", reason=str(error))
        keys = keys_of_row(row.values)
        yield FileDocument(parts, title, metadata, own_id=own_id, record_keys=keys, location=row.location)
    elif values:
        yield UnreadPart(part=row.location, reason=f"neither a text nor a title, only {', '.join(values)[:200]}")


def _metadata_value(value: Any) -> Any:
    """Return a value as metadata have it; those of unusual types, such as times of day, as texts."""
    plain = plain_value(value)
    return plain if isinstance(plain, str | bool | int | float | date | list) else str(value)


def is_empty(value: Any) -> bool:
    """Return whether a cell has no value: None, NaN, an empty text, list or object."""
    return value is None or (isinstance(value, float) and value != value) or value in ("", b"", [], {}, ())


def paragraphs_of_value(value: Any) -> list[str]:
    """Return the paragraphs in a value: a text, a number, a list of these, or the strings of an object.

    >>> paragraphs_of_value(["One.", {"p": "Two.", "n": 7}, None]), paragraphs_of_value(2015.0)
    (['One.', 'Two.'], ['2015'])
    """
    if is_empty(value):
        return []
    if isinstance(value, str):
        return paragraphs_of(value)
    if isinstance(value, bytes):
        return paragraphs_of(decode_text(value).text)
    if isinstance(value, Mapping):
        members = [member for member in value.values() if isinstance(member, str | bytes | list | tuple | Mapping)]
        return [paragraph for member in members for paragraph in paragraphs_of_value(member)]
    if isinstance(value, list | tuple):
        return [paragraph for member in value for paragraph in paragraphs_of_value(member)]
    return [str(int(value) if isinstance(value, float) and value.is_integer() else value)]
