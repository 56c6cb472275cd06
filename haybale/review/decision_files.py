"""Read files of decisions that were made in another program or another engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from haybale.collections.files.delimited import Delimited, rows_of
from haybale.collections.files.encodings import decode_text
from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.references import FORMATS, format_of
from haybale.collections.files.review_notes import without_review_notes
from haybale.collections.files.spreadsheet import sheets_of
from haybale.collections.files.table_rows import Row, is_empty
from haybale.collections.unread import UnreadPart
from haybale.errors import HaybaleError, InputError
from haybale.review.asreview_project import is_project, project_rows
from haybale.review.matched_documents import RecordIdentity, identity_of
from haybale.review.recorded_decisions import (
    RecordedDecision,
    UnknownDecisionError,
    decisions_of,
    has_decisions,
    without_label_tag,
)
from haybale.text_files import read_bytes

_ZIP = b"PK\x03\x04"


class DecidedRecord(NamedTuple):
    """A record with decisions: where it is in its file, what it can be recognised by, and the decisions."""

    location: str
    identity: RecordIdentity
    decisions: tuple[RecordedDecision, ...]

    @property
    def label(self) -> str:
        """The location and the title, or the id, for people."""
        what = self.identity.title or self.identity.doc_id or next(iter(self.identity.keys), "")
        return f"{self.location}: {what}" if what else self.location


@dataclass(frozen=True)
class DecisionFile:
    """The decisions in a file.

    Parameters
    ----------
    records : list of DecidedRecord
    n_undecided : int
        Records without a decision.
    unread : list of UnreadPart
        What was not read, or not with certainty.
    """

    records: list[DecidedRecord]
    n_undecided: int
    unread: list[UnreadPart]


def read_decisions(file: str | Path, data: bytes | None = None, otherwise: int | None = None) -> DecisionFile:
    """Return the decisions in a file: a table, a workbook, bibliographic records, or an ASReview project.

    The content decides what it is; :mod:`haybale.review.recorded_decisions` says how decisions are written.

    Parameters
    ----------
    file : str or Path
    data : bytes, optional
        The content of the file. Default: it is read.
    otherwise : int, optional
        The grade of records that say none, such as those of a file with all included records. Default: none.

    Raises
    ------
    InputError
        If the file cannot be read, no record has a decision, or a value is none.
    """
    name = str(file)
    try:
        rows, unread = _rows(name, read_bytes(Path(file)) if data is None else data)
    except Unreadable as error:
        raise InputError(f"{name}: expected records with decisions, but {error}; give another file") from None
    except HaybaleError:
        raise
    except Exception as error:  # the libraries raise errors of many types for damaged files
        about = " ".join(str(error).split())
        raise InputError(
            f"{name}: expected records with decisions, found a damaged file ({type(error).__name__}: {about:.200}); "
            "export it again"
        ) from None
    rows = [row for row in rows if not all(map(is_empty, row.values.values()))]
    records, n_undecided = list[DecidedRecord](), 0
    for row in rows:
        try:
            decisions = tuple(decisions_of(row))
        except UnknownDecisionError as error:
            raise InputError(
                f"{name}: {row.location}: expected a decision such as 1, 0, included or excluded, found "
                f"{str(error)!r:.60}; correct it"
            ) from None
        if not decisions and otherwise is not None:
            decisions = (RecordedDecision(otherwise),)
        if decisions:
            records.append(DecidedRecord(row.location, identity_of(without_review_notes(row)), decisions))
        else:
            n_undecided += 1
    if not records:
        columns = ", ".join(dict.fromkeys(str(column) for row in rows for column in row.values))
        raise InputError(
            f"{name}: expected decisions, such as a column included with 1 or 0, or notes of ASReview or Rayyan, found "
            f"none in {len(rows):,} records with {columns[:200] or 'no columns'}; add them, or say which decision all "
            "records of the file have"
        )
    return DecisionFile(records, n_undecided, unread)


def _rows(name: str, data: bytes) -> tuple[list[Row], list[UnreadPart]]:
    """Return the records of a file, and what was not read of it."""
    if is_project(data):
        return project_rows(data), []
    if data.startswith(_ZIP):
        sheets, unread = sheets_of(data)
        decided = [sheet for sheet in sheets if any(map(has_decisions, sheet.rows))] or sheets[:1]
        unread += [part.within(f"sheet {sheet.title}") for sheet in decided for part in sheet.unread]
        return [row for sheet in decided for row in sheet.rows], unread
    decoded = decode_text(data)
    format = None if name.lower().endswith(Delimited.suffixes) else format_of(decoded.text)
    if format is None:
        return _divided(rows_of(data), [])
    rows, unread = _divided(FORMATS[format].records(decoded.text), decoded.unread)
    return list(map(without_label_tag, rows)), unread


def _divided(items: Iterable[Row | UnreadPart], unread: list[UnreadPart]) -> tuple[list[Row], list[UnreadPart]]:
    """Return rows, and what was not read."""
    items = list(items)
    rows = [item for item in items if isinstance(item, Row)]
    return rows, [*unread, *(item for item in items if isinstance(item, UnreadPart))]
