"""Find the decisions that screening programs write into records: haybale, ASReview, Rayyan, Covidence and spreadsheets.

A record may have decisions of several judges. What is undecided, such as Rayyan's "Maybe", is no decision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from haybale.collections.files.review_notes import JUDGEMENT, notes_of, values_of_notes
from haybale.collections.files.table_rows import Row, paragraphs_of_value
from haybale.spreadsheets import from_cell

JUDGEMENTS = "judgements"  # the column of haybale's tables that has all judgements of a record, as JSON
# Columns of decisions, in lower case with underscores; the first that has a value in a record is taken.
LABEL_COLUMNS = (
    "asreview_label", "included", "label_included", "included_label", "label", "final_included", "included_final",
    "included_flag", "include", "grade", "decision", "screening_decision", "rayyan_decision", "covidence_decision",
)  # fmt: skip
_REASON_COLUMNS = ("reason", "exclusion_reason", "reason_for_exclusion", "exclusion_reasons")
_JUDGE_COLUMNS = ("judge", "reviewer", "screener", "asreview_user_name")
_NOTE_COLUMNS = ("asreview_note", "reviewer_note", "screening_note")
_RELEVANT = {"1", "1.0", "true", "yes", "y", "include", "included", "relevant", "asreview_relevant"}
_IRRELEVANT = {
    "0", "0.0", "false", "no", "n", "exclude", "excluded", "irrelevant", "not relevant", "asreview_irrelevant",
}  # fmt: skip
_UNDECIDED = {
    "", "-1", "-1.0", "nan", "none", "na", "n/a", "maybe", "undecided", "unsure", "unclear", "not seen", "not_seen",
    "asreview_not_seen", "conflict",
}  # fmt: skip
_ASREVIEW = re.compile(r"ASReview_(relevant|irrelevant|not_seen)")
_ASREVIEW_VALUE = re.compile(r"asreview_(\w+): (.*)", re.S)
_RAYYAN_PART = re.compile(r"(RAYYAN-[A-Z-]+|USER-NOTES):\s*(.*?)\s*(?=\||$)", re.S)
_RAYYAN_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=>\s*(?:"((?:[^"\\]|\\.)*)"|\[(.*?)\])', re.S)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COVIDENCE_REASON = re.compile(r"Exclusion reason:\s*([^;|\n]+)", re.I)


class RecordedDecision(NamedTuple):
    """What a judge decided about a record, as another program or an export of haybale says it.

    Parameters
    ----------
    grade : int
        0 for irrelevant, 1 or more for relevant.
    judge, note : str
        Empty if the record does not say it.
    reasons : tuple of str
        Why the record was excluded.
    time : str
        ISO 8601, in UTC; empty if the record does not say it.
    stage : str
        The stage of a review in which it was decided, in exports of haybale; otherwise empty.
    resolved_by : tuple of str
        Who resolved a conflict of judges by this decision, in exports of haybale; otherwise empty.
    """

    grade: int
    judge: str = ""
    note: str = ""
    reasons: tuple[str, ...] = ()
    time: str = ""
    stage: str = ""
    resolved_by: tuple[str, ...] = ()


class UnknownDecisionError(ValueError):
    """A value in a column of decisions that is none."""


def decisions_of(row: Row) -> list[RecordedDecision]:
    """Return the decisions in a record, of each judge at most one; none if it was not decided.

    Raises
    ------
    UnknownDecisionError
        If a column of decisions has another value.

    Examples
    --------
    >>> decisions_of(Row("line 2", {"title": "Leases", "asreview_label": "1", "asreview_note": "by notice"}))
    [RecordedDecision(grade=1, judge='', note='by notice', reasons=(), time='', stage='', resolved_by=())]
    >>> decisions_of(Row("line 2", {"notes": 'RAYYAN-INCLUSION: {"Ada"=>"Excluded"} | RAYYAN-EXCLUSION-REASONS: dogs'}))
    [RecordedDecision(grade=0, judge='Ada', note='', reasons=('dogs',), time='', stage='', resolved_by=())]
    """
    notes, columns = notes_of(row), _columns(row.values)
    notes += [text for name in ("note", "rayyan_inclusion") for text in paragraphs_of_value(columns.get(name))]
    for find in (_of_haybale, _of_rayyan, _of_asreview):
        decisions = list(find(notes, columns))
        if decisions:
            by_judge = {(decision.judge, bool(decision.resolved_by)): decision for decision in decisions}
            return list(by_judge.values())
    if any("ASReview_not_seen" in note for note in notes):
        return []
    decision = _of_columns(columns) or _of_covidence(notes)
    return [] if decision is None else [decision]


def without_label_tag(row: Row) -> Row:
    """Return a bibliographic record without the field ``label``: RIS has the tag LB for labels of any kind."""
    return row._replace(values={name: value for name, value in row.values.items() if name != "label"})


def has_decisions(row: Row) -> bool:
    """Return whether a record has a column or a note in which programs write decisions, whatever it says."""
    columns = _columns(row.values)
    if any(name in columns for name in (*LABEL_COLUMNS, JUDGEMENTS)):
        return True
    notes = " ".join(notes_of(row))
    return any(mark in notes for mark in ("ASReview_", "RAYYAN-INCLUSION", f"{JUDGEMENT}: "))


def grade_of(text: str) -> int | None:
    """Return the grade that a text in a column of decisions says; None if it says that nothing was decided.

    >>> [grade_of(text) for text in ("Included", "0", "2", "maybe")]
    [1, 0, 2, None]
    """
    value = text.strip().lower()
    if value in _UNDECIDED:
        return None
    if value in _RELEVANT:
        return 1
    if value in _IRRELEVANT:
        return 0
    if re.fullmatch(r"[1-9]\d{0,8}(?:\.0)?", value):
        return int(float(value))
    raise UnknownDecisionError(text)


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a record by the names of their columns in lower case with underscores."""
    columns: dict[str, Any] = {}
    for name, value in values.items():
        columns.setdefault(re.sub(r"[\s_-]+", "_", str(name).strip().lower()), value)
    return columns


def _text(columns: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the text in the first of some columns that has one."""
    texts = (" ".join(paragraphs_of_value(columns.get(name))) for name in names)
    return from_cell(next(filter(None, texts), ""))


def _of_haybale(notes: list[str], columns: Mapping[str, Any]) -> Iterator[RecordedDecision]:
    """Yield the judgements that haybale has written as JSON, into notes or into a column."""
    written = values_of_notes(notes, JUDGEMENT)
    if not written and isinstance(columns.get(JUDGEMENTS), str):
        try:
            in_column = json.loads(from_cell(columns[JUDGEMENTS]))
        except (ValueError, RecursionError):
            in_column = []
        written = [value for value in in_column if isinstance(value, dict)] if isinstance(in_column, list) else []
    for values in written:
        grade = values.get("grade")
        if isinstance(grade, int) and not isinstance(grade, bool) and 0 <= grade < 2**31:
            judge, note, time, stage = (str(values.get(name) or "") for name in ("judge", "note", "time", "stage"))
            reasons = values.get("reason")
            texts = tuple(map(str, reasons)) if isinstance(reasons, list) else ()
            resolution = values.get("resolution")
            names = resolution.get("by") if isinstance(resolution, dict) else None
            by = tuple(map(str, names)) if isinstance(names, list) else ()
            yield RecordedDecision(grade, judge, note, texts, time if _TIME.fullmatch(time) else "", stage, by)


def _of_rayyan(notes: list[str], columns: Mapping[str, Any]) -> Iterator[RecordedDecision]:
    """Yield the decisions of Rayyan's notes, which name the judges; it does not say whose reasons the reasons are."""
    parts: dict[str, str] = {}
    for note in notes:
        parts |= dict(_RAYYAN_PART.findall(note))
        if note.lstrip().startswith('{"') and "=>" in note:  # a column of its own
            parts.setdefault("RAYYAN-INCLUSION", note)
    user_notes = {
        _unescaped(pair[0]): "; ".join(map(_unescaped, _QUOTED.findall(pair[2]))) or _unescaped(pair[1])
        for pair in _RAYYAN_PAIR.findall(parts.get("USER-NOTES", ""))
    }
    reasons = tuple(filter(None, map(str.strip, parts.get("RAYYAN-EXCLUSION-REASONS", "").split(","))))
    for judge, decision, _ in _RAYYAN_PAIR.findall(parts.get("RAYYAN-INCLUSION", "")):
        grade = grade_of(decision)
        if grade is not None:
            name = _unescaped(judge)
            yield RecordedDecision(grade, name, user_notes.get(name, ""), () if grade else reasons)


def _of_asreview(notes: list[str], columns: Mapping[str, Any]) -> Iterator[RecordedDecision]:
    """Yield the decision in ASReview's notes; as in ASReview, it is in the first note that has one."""
    match = next(filter(None, map(_ASREVIEW.search, notes)), None)
    if match is None or match[1] == "not_seen":
        return
    values: dict[str, str] = {}
    for written in filter(None, (_ASREVIEW_VALUE.fullmatch(note) for note in notes)):
        try:
            values[written[1]] = str(json.loads(written[2]) or "")
        except (ValueError, RecursionError):
            continue
    judge, note, time = (values.get(name, "") for name in ("user_name", "note", "time"))
    yield RecordedDecision(int(match[1] == "relevant"), judge, note, time=_time(time))


def _of_columns(columns: Mapping[str, Any]) -> RecordedDecision | None:
    """Return the decision in the first column of decisions that has a value."""
    label = _text(columns, LABEL_COLUMNS)
    grade = grade_of(label)
    if grade is None:
        return None
    judge, note, reason = (_text(columns, names) for names in (_JUDGE_COLUMNS, _NOTE_COLUMNS, _REASON_COLUMNS))
    reasons = () if grade or not reason else (reason,)
    return RecordedDecision(grade, judge, note, reasons, _time(_text(columns, ["asreview_time"])))


def _of_covidence(notes: list[str]) -> RecordedDecision | None:
    """Return the exclusion that Covidence notes with its reason."""
    match = next(filter(None, map(_COVIDENCE_REASON.search, notes)), None)
    return None if match is None else RecordedDecision(0, reasons=(match[1].strip(),))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _time(text: str) -> str:
    """Return a time of ASReview, which is in UTC, as haybale writes times; empty for another text."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?", text)
    return f"{match[1]}T{match[2]}+00:00" if match else ""
