"""Notes in bibliographic records that a review has written: they are decisions, and no part of the record.

ASReview writes ``ASReview_relevant``, ``ASReview_irrelevant`` or ``ASReview_not_seen`` and notes such as
``asreview_time: "2026-01-01"``; haybale writes those of ASReview, and its own with the values as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from haybale.collections.files.table_rows import Row

JUDGEMENT = "haybale_judgement"  # a judgement of one judge
DOCUMENT = "haybale_document"  # rank and probability, and fields that the format of the file cannot name
RELEVANT, IRRELEVANT, NOT_SEEN = "ASReview_relevant", "ASReview_irrelevant", "ASReview_not_seen"
_REVIEW_NOTE = re.compile(
    r"(?:<p>)?(?:ASReview_(?:relevant|irrelevant|not_seen|prior)|(?:asreview|haybale)_\w+(?:: .*)?)(?:</p>)?"
)


def review_note(name: str, values: Mapping[str, Any]) -> str:
    """Return a note of haybale, in one line of ASCII characters.

    >>> review_note(JUDGEMENT, {"grade": 1, "note": "Gebühr"})
    'haybale_judgement: {"grade": 1, "note": "Geb\\\\u00fchr"}'
    """
    return f"{name}: {json.dumps(dict(values), default=str)}"


def is_review_note(note: str) -> bool:
    """Return whether a note was written by a review.

    >>> is_review_note("ASReview_relevant"), is_review_note("About ASReview_relevant")
    (True, False)
    """
    return _REVIEW_NOTE.fullmatch(note.strip()) is not None


def values_of_notes(notes: Iterable[str], name: str) -> list[dict[str, Any]]:
    """Return the values in the notes of haybale that have a name; notes that were damaged are left out."""
    values = []
    for note in notes:
        if note.startswith(f"{name}: "):
            try:
                value = json.loads(note.removeprefix(f"{name}: "))
            except (ValueError, RecursionError):
                continue
            values += [value] if isinstance(value, dict) else []
    return values


def notes_of(row: Row) -> list[str]:
    """Return the notes of a record."""
    notes = row.values.get("notes")
    return [note for note in (notes if isinstance(notes, list) else [notes]) if isinstance(note, str)]


def without_review_notes(row: Row) -> Row:
    """Return a record as it was before a review exported it: without the notes of the review, with all its fields."""
    notes = notes_of(row)
    own_notes = [note for note in notes if not is_review_note(note)]
    if len(own_notes) == len(notes):
        return row
    values = {name: value for name, value in row.values.items() if name != "notes"}
    values |= {"notes": own_notes} if own_notes else {}
    for about in values_of_notes(notes, DOCUMENT):
        aliases, fields = about.get("aliases"), about.get("fields")
        for name in aliases if isinstance(aliases, list) else ():
            values.pop(str(name), None)  # written in addition to a field with another name
        values |= fields if isinstance(fields, dict) else {}
    return row._replace(values=values)
