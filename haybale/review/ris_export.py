"""Write the records of a topic in RIS, from which an engine reads the same records, and a topic the decisions.

Fields that RIS has a tag for get it, for other programs. What RIS cannot keep, such as the names of other fields, is in
a note of its own; so are the judgements. ASReview reads its note about relevance.
"""

from __future__ import annotations

from typing import Any

from haybale.collections.files.reference_fields import name_of_tag, ris_fields, ris_type, text_of
from haybale.collections.files.review_notes import (
    DOCUMENT,
    IRRELEVANT,
    JUDGEMENT,
    NOT_SEEN,
    RELEVANT,
    review_note,
    without_review_notes,
)
from haybale.collections.files.ris import guarded, ris_records
from haybale.collections.files.table_rows import Row
from haybale.review.exported_records import ExportedRecord

_TYPE = "type_of_reference"
_OF_RECORD = ("id", "title", "abstract")  # names of fields that the record itself has


def ris_of(record: ExportedRecord) -> str:
    """Return a record in RIS, with its judgements as notes."""
    metadata = {name: value for name, value in record.metadata.items() if value not in ("", [])}
    fields = [("TY", ris_type(text_of(metadata.get(_TYPE, "")))), ("ID", record.doc_id), ("TI", record.own_title)]
    fields += [(tag, text) for tag, text in ris_fields(metadata) if tag not in ("TY", "TI", "AB")]
    fields.append(("AB", "\n\n".join(record.paragraphs)))
    about: dict[str, Any] = {"rank": record.rank, "probability": record.probability}
    about |= {"contradictory": record.judges} if record.is_contradictory else {}
    about |= {"duplicate_of": record.duplicate_of} if record.duplicate_of else {}
    about |= _not_kept(fields, metadata)
    notes = [NOT_SEEN if record.grade is None else RELEVANT if record.grade > 0 else IRRELEVANT]
    notes += [f"haybale_{record.status}"] if record.status else []
    notes += [review_note(JUDGEMENT, judgement) for judgement in record.judgements()]
    notes.append(review_note(DOCUMENT, {name: value for name, value in about.items() if value is not None}))
    return _written([*fields, *(("N1", note) for note in notes)]) + "\n"


def _written(fields: list[tuple[str, str]]) -> str:
    """Return the lines of a record."""
    lines = [f"{tag}  - {guarded(text)}" for tag, text in fields if text or tag == "TY"]
    return "\n".join([*lines, "ER  - "]) + "\n"


def _not_kept(fields: list[tuple[str, str]], metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata that a reader of the fields would not find as it is, and what it must forget."""
    text = _written(fields).replace("\r\n", "\n").replace("\r", "\n")  # as files are read
    (read,) = (item for item in ris_records(text) if isinstance(item, Row))
    values = {name: _plain(value) for name, value in without_review_notes(read).values.items()}
    missing = {name: _plain(value) for name, value in metadata.items() if values.get(name) != _plain(value)}
    aliases = [
        name
        for name in dict.fromkeys(name_of_tag(tag) for tag, _ in fields)
        if name not in metadata and name not in _OF_RECORD
    ]
    return {name: value for name, value in (("fields", missing), ("aliases", aliases)) if value}


def _plain(value: Any) -> str | list[str]:
    """Return a value as texts, which are read as the same value."""
    return [text_of(member) for member in value] if isinstance(value, list) else text_of(value)
