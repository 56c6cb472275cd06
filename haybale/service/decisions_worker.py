"""Read a file of decisions for a service: the work of a process of its own, with limits of memory and time.

``python -m haybale.service.decisions_worker NAME GRADE`` reads the file from standard input, and writes a JSON object
with the decisions, or with ``problem``. GRADE is that of records that say none; empty for none.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from haybale.collections.unread import UnreadPart
from haybale.errors import InputError
from haybale.review.decision_files import DecidedRecord, DecisionFile, read_decisions
from haybale.review.matched_documents import RecordIdentity
from haybale.review.recorded_decisions import RecordedDecision
from haybale.service.file_worker import packed_problem
from haybale.service.limited_process import MAX_MEMORY, MAX_SECONDS, write_answer


def decisions_of_output(output: bytes) -> DecisionFile:
    """Return the decisions that the process has written; InputError is raised if it could not read the file."""
    try:
        about = json.loads(output)
        problem = about.get("problem")
        if problem is None:
            unread = [UnreadPart(part=part, reason=reason) for part, reason in about["unread"]]
            return DecisionFile([_record(record) for record in about["records"]], about["n_undecided"], unread)
    except (ValueError, KeyError, TypeError, AttributeError):
        limits = f"{MAX_SECONDS} seconds or {MAX_MEMORY // 2**20:,} MiB"
        problem = f"expected a file of decisions, found one that takes more than {limits} to read; split it"
    raise InputError(str(problem))


def _record(values: list[Any]) -> DecidedRecord:
    location, (doc_id, title, keys, year), decisions = values
    read = (
        RecordedDecision(grade, judge, note, tuple(reasons), time, stage, tuple(resolved_by))
        for grade, judge, note, reasons, time, stage, resolved_by in decisions
    )
    return DecidedRecord(location, RecordIdentity(doc_id, title, tuple(keys), year), tuple(read))


def _written(decisions: DecisionFile) -> dict[str, Any]:
    """Return decisions as plain values; named tuples become lists."""
    unread = [(part.part, part.reason) for part in decisions.unread]
    return {"records": decisions.records, "n_undecided": decisions.n_undecided, "unread": unread}


def _answer(data: bytes) -> dict[str, Any]:
    name, grade = sys.argv[1], sys.argv[2]
    problem = packed_problem(data) if not name.lower().endswith(".asreview") else None
    return {"problem": problem} if problem else _written(read_decisions(name, data, int(grade) if grade else None))


def main() -> None:
    """Read the file from standard input with limits, and write its decisions to standard output."""
    write_answer(_answer, "decisions")


if __name__ == "__main__":
    main()
