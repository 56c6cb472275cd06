"""Import a file of decisions into a topic: of another program, of another engine, or bare grades by document id."""

from __future__ import annotations

from haybale.collections.files.references import format_of
from haybale.delimited_table import read_delimited
from haybale.review.decision_import import DecisionImport, add_decisions
from haybale.service.decisions_worker import decisions_of_output
from haybale.service.imported_judgements import DOCUMENT_COLUMNS, GRADE_COLUMNS, grades_of_file
from haybale.service.limited_process import output_of
from haybale.service.workspace import Workspace

_COLUMNS_OF_RECORDS = frozenset({"title", "doi", "judgements", "asreview_label"})


def import_file(
    workspace: Workspace, topic: int, name: str, data: bytes, query: str | None = None, otherwise: int | None = None
) -> DecisionImport:
    """Add the decisions of a file to a topic, and return what became of them.

    Parameters
    ----------
    workspace : Workspace
    topic : int
    name : str
        The name of the file.
    data : bytes
    query : str, optional
        The query of the file whose grades are read, if it is one of qrels. It is needed if the file has several.
    otherwise : int, optional
        The grade of records that say none. Default: none.

    Raises
    ------
    InputError
        If the file cannot be read or has no decision, or bare grades are of documents that the engine does not have.
        Nothing is added then.
    """
    if has_bare_grades(data):
        grades = grades_of_file(data, query)
        n_added = workspace.import_judgements(topic, grades)
        return DecisionImport(len(grades), 0, n_added, len(grades) - n_added, [], {}, {}, [])
    arguments = [name or "file", "" if otherwise is None else str(otherwise)]
    decisions = decisions_of_output(output_of("haybale.service.decisions_worker", arguments, data))
    return add_decisions(workspace._review(topic), decisions)


def has_bare_grades(data: bytes) -> bool:
    """Return whether a file has grades by document id and nothing by which records could be recognised, or is empty.

    >>> [has_bare_grades(data) for data in (b"q1 0 a 1\\n", b"doc_id,grade\\na,1\\n", b"title,included\\na,1\\n")]
    [True, True, False]
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        return False
    if not text.strip() or "\x00" in text or format_of(text) is not None:
        return not text.strip()
    columns = {name.lower() for name in read_delimited(text).columns}
    if columns.intersection(DOCUMENT_COLUMNS) and columns.intersection(GRADE_COLUMNS):
        return not columns & _COLUMNS_OF_RECORDS
    first = next(line for line in text.split("\n") if line.strip())
    return len(first.split()) == 4 and first.split()[1] in ("0", "Q0")
