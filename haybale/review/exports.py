"""Write the judgements of a topic for other programs: TREC, BEIR, spreadsheets and ASReview, reference managers.

A table, in CSV or Excel, has a row for each document: its id, title and text; the grades of all judges combined, and
as ``asreview_label`` and ``label_included``, which ASReview reads; the judges, reasons for exclusion and notes; the
passage that was shown; rank and probability; and then the fields that came in. If the engine does not have the text
that was judged, the title is empty and ``status`` says why. ``judgements`` has what each judge said as JSON, so that an
import has it again.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from haybale.collections.files.reference_fields import texts_of
from haybale.collections.metadata import unique_name
from haybale.errors import InputError
from haybale.folders import check_file, check_output, replaced, whole_folder
from haybale.review.exported_records import ExportedRecord
from haybale.review.judgement_store import Topic
from haybale.review.ris_export import ris_of
from haybale.review.topic_state import TITLE_ABSTRACT
from haybale.spreadsheets import as_cell

FORMATS = ("qrels", "csv", "beir", "ris")
TABLE_COLUMNS = (
    "doc_id", "title", "abstract", "asreview_label", "grade", "label_included", "judges", "reasons", "time", "seconds",
    "notes", "passage_id", "passage", "rank", "probability", "model", "contradictory", "resolution",
    "resolved_by", "stage", "status", "duplicate_of", "judgements",
)  # fmt: skip


def query_id(topic: Topic) -> str:
    """Return the name of a topic as an id for qrels, with hyphens in place of white space.

    >>> query_id(Topic(1, "end of a lease", "", {}, ""))
    'end-of-a-lease'
    """
    return re.sub(r"\s+", "-", topic.name.strip())


def exported(format: str, topic: Topic, records: Sequence[ExportedRecord]) -> str:
    """Return records as text in one of the :data:`FORMATS`."""
    if format in ("qrels", "beir"):
        grades = {record.doc_id: record.grade for record in records if record.grade is not None}
        _refuse_ids(grades, r"\s" if format == "qrels" else r"[\t\r\n]", format)
        name = query_id(topic)
        if format == "qrels":
            return "".join(f"{name} 0 {doc_id} {grade}\n" for doc_id, grade in grades.items())
        lines = [f"{name}\t{doc_id}\t{grade}\n" for doc_id, grade in grades.items()]
        return "".join(["query-id\tcorpus-id\tscore\n", *lines])
    if format == "ris":
        return "".join(map(ris_of, records))
    return "".join(map(_csv_line, table_of(records)))


def table_of(records: Sequence[ExportedRecord]) -> Iterator[Sequence[Any]]:
    """Yield the header, and a row for each record: what was judged, and then its metadata."""
    fields = dict.fromkeys(name for record in records for name in record.metadata)
    header = list(TABLE_COLUMNS)
    for name in fields:
        header.append(unique_name(name, header))
    yield header
    for record in records:
        values = ("; ".join(texts_of(record.metadata[name])) if name in record.metadata else "" for name in fields)
        yield [*_cells(record), *values]


def _cells(record: ExportedRecord) -> list[Any]:
    """Return the cells of a record in the :data:`TABLE_COLUMNS`; those about judgements are empty without one."""
    about = [record.doc_id, record.title, "\n\n".join(record.paragraphs)]
    chances = [record.rank, "" if record.probability is None else round(record.probability, 6)]
    if not record.rows:
        return [*about, *[""] * 10, *chances, *[""] * 5, record.status, record.duplicate_of, ""]
    last, seconds = record.rows[-1], [row.seconds for row in record.rows if row.seconds is not None]
    label, grade = int((record.grade or 0) > 0), record.grade or 0
    judgements = [*record.rows, *([] if record.resolution is None else [record.resolution])]
    notes = "; ".join(row.note for row in judgements if row.note)
    return [
        *about, label, grade, label, record.judges, "; ".join(record.reasons), last.time,
        sum(seconds) if seconds else "", notes, last.passage_id, last.passage, *chances, last.model,
        int(record.is_contradictory), "" if record.resolution is None else record.resolution.grade,
        " and ".join([] if record.resolution is None else record.resolution.resolved_by),
        last.details.get("stage", TITLE_ABSTRACT), record.status, record.duplicate_of, json.dumps(record.judgements()),
    ]  # fmt: skip


def _csv_line(cells: Iterable[Any]) -> str:
    """Return a line of CSV, in which a spreadsheet finds texts and numbers, and no formula."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerow(map(as_cell, cells))  # quotes cells with one of both characters
    return out.getvalue().removesuffix("\r\n") + "\n"


def write_export(format: str, topic: Topic, text: str, path: Path) -> None:
    """Write what :func:`exported` returned to a file, or for BEIR to a new folder."""
    if format != "beir":
        check_file(path)
        with replaced(path) as aside:
            aside.write_text(text, encoding="utf-8", newline="")
        return
    check_output(path)
    with whole_folder(path) as aside:
        query = {"_id": query_id(topic), "text": topic.text or topic.name}
        (aside / "queries.jsonl").write_text(json.dumps(query, ensure_ascii=False) + "\n", encoding="utf-8")
        (aside / "qrels").mkdir()
        (aside / "qrels" / "train.tsv").write_text(text, encoding="utf-8")


def _refuse_ids(grades: dict[str, int], wrong: str, format: str) -> None:
    for doc_id in grades:
        if re.search(wrong, doc_id):
            other = "beir or csv" if format == "qrels" else "csv"
            raise InputError(f"document id {doc_id!r} has white space that {format} cannot contain; use format={other}")
