"""Write the judgements of a topic for other programs: TREC, BEIR, spreadsheets and ASReview, reference managers.

A table, in CSV or Excel, has a row for each document: its id, title and text; the grades of all judges combined, and
as ``asreview_label`` and ``label_included``, which ASReview reads; the judges, reasons for exclusion and notes; the
passage that was shown; rank and probability; then the fields that came in, and how the document is cited. If the engine
does not have the text that was judged, the title is empty and ``status`` says why. ``judgements`` has what each judge
said as JSON, so that an import has it again. The files have no byte order mark, which not all programs expect; for
Excel there is the workbook.
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
from haybale.errors import InputError, UnknownNameError
from haybale.folders import check_file, check_output, replaced, whole_folder
from haybale.review.exported_records import ExportedRecord
from haybale.review.judgement_store import Topic
from haybale.review.reference_exports import bibtex_of, nbib_of
from haybale.review.ris_export import ris_of
from haybale.review.topic_report import TopicReport
from haybale.review.topic_state import TITLE_ABSTRACT
from haybale.spreadsheets import as_cell

FORMATS = ("qrels", "csv", "beir", "ris", "json", "bibtex", "nbib")
TABLE_COLUMNS = (
    "doc_id", "title", "abstract", "asreview_label", "grade", "label_included", "judges", "reasons", "time", "seconds",
    "notes", "passage_id", "passage", "rank", "probability", "model", "draw", "contradictory", "resolution",
    "resolved_by", "stage", "status", "duplicate_of", "judgements",
)  # fmt: skip

# How a document is cited, and the page of its passage: after the metadata, where the metadata has no such column.
CITED_COLUMNS = ("citation", "court", "date", "docket", "page", "link")


def query_id(topic: Topic) -> str:
    """Return the name of a topic as an id for qrels, with hyphens in place of white space.

    >>> query_id(Topic(1, "end of a lease", "", {}, ""))
    'end-of-a-lease'
    """
    return re.sub(r"\s+", "-", topic.name.strip())


def exported(format: str, report: TopicReport) -> str:
    """Return a report as text in one of the :data:`FORMATS`; another one raises UnknownNameError."""
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    return report.to_json() if format == "json" else records_text(format, report.topic, report.records)


def records_text(format: str, topic: Topic, records: Sequence[ExportedRecord]) -> str:
    """Return records as text in one of the :data:`FORMATS` but JSON."""
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
    if format in ("bibtex", "nbib"):
        return "".join(map(bibtex_of if format == "bibtex" else nbib_of, records))
    return "".join(map(_csv_line, table_of(records)))


def table_of(records: Sequence[ExportedRecord]) -> Iterator[Sequence[Any]]:
    """Yield the header, and a row for each record: what was judged, and then its metadata."""
    fields = dict.fromkeys(name for record in records for name in record.metadata)
    header, cited = list(TABLE_COLUMNS), [name for name in CITED_COLUMNS if name not in fields]
    for name in (*fields, *cited):
        header.append(unique_name(name, header))
    yield header
    for record in records:
        values = ("; ".join(texts_of(record.metadata[name])) if name in record.metadata else "" for name in fields)
        about = record.citation._asdict() | {"page": "" if record.shown is None else record.shown.page or ""}
        yield [*_cells(record), *values, *(about["text" if name == "citation" else name] for name in cited)]


def _cells(record: ExportedRecord) -> list[Any]:
    """Return the cells of a record in the :data:`TABLE_COLUMNS`; those about judgements are empty without one."""
    about = [record.doc_id, record.title, "\n\n".join(record.paragraphs)]
    chances = [record.rank, "" if record.probability is None else round(record.probability, 6)]
    if not record.rows:
        return [*about, *[""] * 10, *chances, *[""] * 6, record.status, record.duplicate_of, ""]
    last, seconds = record.rows[-1], [row.seconds for row in record.rows if row.seconds is not None]
    label, grade = int(record.is_relevant), record.grade or 0
    return [
        *about, label, grade, label, record.judges, "; ".join(record.reasons), last.time,
        sum(seconds) if seconds else "", "; ".join(record.notes), last.passage_id, last.passage, *chances, last.model,
        record.draw or "", int(record.is_contradictory), "" if record.resolution is None else record.resolution.grade,
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
