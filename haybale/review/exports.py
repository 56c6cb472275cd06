"""Write the judgements of a topic for other programs: TREC, BEIR, spreadsheets and ASReview, reference managers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from haybale.engine import Duplicates, Engine
from haybale.engine.reattaching import digest_of
from haybale.errors import InputError
from haybale.folders import check_file, check_output, replaced, whole_folder
from haybale.review.judgement_store import Judgement, Topic
from haybale.review.topic_duplicates import carried_rows
from haybale.review.topic_state import TITLE_ABSTRACT, TopicState
from haybale.search.searching import title_of
from haybale.spreadsheets import as_cell

FORMATS = ("qrels", "csv", "beir", "ris")
CSV_COLUMNS = (
    "doc_id", "title", "grade", "label_included", "judges", "time", "seconds", "notes",
    "passage_id", "passage", "rank", "model", "contradictory", "resolution", "resolved_by", "status",
    "reasons", "stage", "duplicate_of",
)  # fmt: skip


class JudgedText(NamedTuple):
    """Title and text of a judged document, and ``"orphaned"`` or ``"replaced"`` if the engine has another text."""

    title: str = ""
    text: str = ""
    status: str = ""


def query_id(topic: Topic) -> str:
    """Return the name of a topic as an id for qrels, with hyphens in place of white space.

    >>> query_id(Topic(1, "end of a lease", "", {}, ""))
    'end-of-a-lease'
    """
    return re.sub(r"\s+", "-", topic.name.strip())


def exported(
    format: str,
    topic: Topic,
    rows: Sequence[Judgement],
    state: TopicState,
    engine: Engine | None,
    duplicates: Duplicates | None = None,
) -> str:
    """Return judgements as text in one of the :data:`FORMATS`.

    ``rows`` are the latest ones of each judge about each document, and resolutions of conflicts; ``state`` combines
    their grades. The judgements of a document are carried to its ``duplicates``. Titles and texts
    are those of the engine, if it has the text that was judged. Otherwise the title is empty, the text is the passage
    that was shown, and the status is ``"orphaned"`` if the document is gone, or ``"replaced"`` if it has another text.
    """
    rows, judged_of = carried_rows(rows, duplicates) if duplicates is not None else (rows, dict[str, str]())
    by_document: dict[str, list[Judgement]] = {}
    for row in rows:
        by_document.setdefault(row.doc_id, []).append(row)
    grades = {doc_id: state.grade(doc_id) or 0 for doc_id in by_document}
    if format in ("qrels", "beir"):
        _refuse_ids(grades, r"\s" if format == "qrels" else r"[\t\r\n]", format)
        name = query_id(topic)
        if format == "qrels":
            return "".join(f"{name} 0 {doc_id} {grade}\n" for doc_id, grade in grades.items())
        lines = [f"{name}\t{doc_id}\t{grade}\n" for doc_id, grade in grades.items()]
        return "".join(["query-id\tcorpus-id\tscore\n", *lines])
    texts = {doc_id: _as_judged(engine, doc_id, of_document) for doc_id, of_document in by_document.items()}
    if format == "ris":
        return "".join(
            _ris(
                doc_id, texts[doc_id], grade, by_document[doc_id], state.is_contradictory(doc_id), judged_of.get(doc_id)
            )
            for doc_id, grade in grades.items()
        )
    lines = [_csv_line(CSV_COLUMNS)]
    for doc_id, document_rows in by_document.items():
        last = next(row for row in reversed(document_rows) if not row.is_resolution)
        seconds = [row.seconds for row in document_rows if row.seconds is not None]
        notes, resolution = "; ".join(row.note for row in document_rows if row.note), state.resolution(doc_id)
        lines.append(
            _csv_line([
                doc_id, texts[doc_id].title, grades[doc_id], int(grades[doc_id] > 0), _judges(document_rows), last.time,
                sum(seconds) if seconds else "", notes, last.passage_id, last.passage, last.rank, last.model,
                int(state.is_contradictory(doc_id)), "" if resolution is None else resolution.grade,
                " and ".join(resolution.resolved_by) if resolution else "", texts[doc_id].status,
                "; ".join(_reasons(document_rows)), last.details.get("stage", TITLE_ABSTRACT),
                judged_of.get(doc_id, ""),
            ])
        )  # fmt: skip
    return "".join(lines)


def _csv_line(cells: Iterable[Any]) -> str:
    """Return a line of CSV, in which a spreadsheet finds texts and numbers, and no formula."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerow(map(as_cell, cells))  # quotes cells with one of both characters
    return out.getvalue().removesuffix("\r\n") + "\n"


def _reasons(rows: Sequence[Judgement]) -> list[str]:
    """Return the reasons for exclusion that judges gave, each once."""
    return list(dict.fromkeys(reason for row in rows for reason in row.details.get("reason", ())))


def _judges(rows: Sequence[Judgement]) -> str:
    """Return the latest grade of each judge, such as ``"Ada: 1; Bob: 0"``."""
    judged = [row for row in rows if not row.is_resolution]
    return "; ".join(f"{row.judge}: {row.grade}" if row.judge else str(row.grade) for row in judged)


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


def _as_judged(engine: Engine | None, doc_id: str, rows: Sequence[Judgement]) -> JudgedText:
    """Return title and text of a document, or what was shown of it if the engine does not have the judged text."""
    if engine is None:
        return JudgedText()
    collection = engine.collection
    number = int(collection.find_documents([doc_id])[0])
    shown = "\n".join(dict.fromkeys(row.passage for row in rows if row.passage))
    if number < 0:
        return JudgedText("", shown, "orphaned")
    if any(row.document not in (None, digest_of(collection, number)) for row in rows):
        return JudgedText("", shown, "replaced")
    start, end = collection.passages.doc_offsets[number : number + 2]
    text = "\n".join(collection.passages.texts[int(start) : int(end)].to_pylist())
    return JudgedText(title_of(collection, number), text)


def _ris(
    doc_id: str,
    judged: JudgedText,
    grade: int,
    rows: Sequence[Judgement],
    is_contradictory: bool,
    duplicate_of: str | None,
) -> str:
    """Return a record with notes: ASReview's about its relevance, whether its text is there, and contradictions."""
    note = "ASReview_relevant" if grade > 0 else "ASReview_irrelevant"
    fields = [("TY", "GEN"), ("ID", doc_id), ("TI", judged.title), ("AB", judged.text), ("N1", note)]
    fields += [("N1", f"haybale_{judged.status}")] if judged.status else []
    if is_contradictory:
        fields.append(("N1", f"contradictory judgements: {_judges(rows)}"))
    fields += [("N1", f"exclusion reason: {reason}") for reason in _reasons(rows)]
    resolved = [f"resolved by {' and '.join(row.resolved_by)}: {row.grade}" for row in rows if row.is_resolution]
    fields += [("N1", text) for text in resolved]
    fields += [("N1", f"haybale_duplicate_of: {duplicate_of}")] if duplicate_of else []
    fields += [("N1", row.note) for row in rows if row.note] + [("ER", "")]
    return "".join(f"{name}  - {' '.join(value.split())}\n" for name, value in fields) + "\n"
