"""Read the file of judgements that somebody imports into a topic."""

from __future__ import annotations

from collections.abc import Iterator

from haybale.delimited_table import read_delimited
from haybale.errors import InputError, UnknownNameError
from haybale.spreadsheets import from_cell
from haybale.text_files import whole_number

_QUERY_COLUMNS = ("query_id", "query-id", "query", "topic")  # names of columns, in lower case
DOCUMENT_COLUMNS = ("doc_id", "corpus-id", "document")
GRADE_COLUMNS = ("grade", "relevance", "score")
_MAX_GRADE_DIGITS = 10


def grades_of_file(data: bytes, query: str | None = None) -> dict[str, int]:
    """Return the grades by document of a file: a table with a header, or qrels.

    The table may be one that haybale has exported. In qrels, and tables with a column for the query, grades below 0
    count as irrelevant.

    Parameters
    ----------
    data : bytes
        The content of the file, in UTF-8.
    query : str, optional
        The query or topic whose judgements are read. It is needed if the file has several.

    Raises
    ------
    InputError
        If the file is neither a table nor qrels, has judgements of several queries, or two grades of one document.

    Examples
    --------
    >>> grades_of_file(b"doc_id,grade\\na,1\\nb,0\\n")
    {'a': 1, 'b': 0}
    >>> grades_of_file(b"q1 0 a 2\\nq2 0 b 1\\n", query="q1")
    {'a': 2}
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the file of judgements must be in UTF-8, found a byte {error.object[error.start]:#x}; save it as UTF-8"
        ) from None
    rows = list(_rows(text))
    queries = list(dict.fromkeys(name for name, _, _ in rows))
    if query is None and len(queries) > 1:
        raise InputError(
            f"expected judgements of one query, found {len(queries):,}; say which one, such as {queries[0]!r:.100}"
        )
    if query is not None and query not in queries:
        raise UnknownNameError("query", query, [name for name in queries if name is not None])
    grades: dict[str, int] = {}
    for name, doc_id, written in rows:
        if query in (None, name):
            grade = _grade(doc_id, written)
            if grade < 0 and name is None:
                raise InputError(f"a grade must be a whole number from 0, found {grade} for {doc_id!r:.100}")
            grade = max(grade, 0)
            if grades.setdefault(doc_id, grade) != grade:
                raise InputError(f"expected one grade for document {doc_id!r:.100}, found several; remove all but one")
    return grades


def _rows(text: str) -> Iterator[tuple[str | None, str, str]]:
    """Yield query (None if the file names none), document and grade of each judgement."""
    table = read_delimited(text.replace("\r\n", "\n").replace("\r", "\n"))
    names = [name.lower() for name in table.columns]
    positions = [
        [at for at, name in enumerate(names) if name in column_names]
        for column_names in (_QUERY_COLUMNS, DOCUMENT_COLUMNS, GRADE_COLUMNS)
    ]
    if not positions[1] or not positions[2]:
        yield from _qrels(text)
        return
    if doubled := next((columns for columns in positions if len(columns) > 1), None):
        shown = " and ".join(repr(table.columns[at]) for at in doubled)
        raise InputError(f"the file of judgements must have one of the columns {shown}, found both; remove the others")
    if table.problems:
        line, reason = table.problems[0]
        raise InputError(f"line {line:,} of the file of judgements is no row of its table: {reason}; correct it")
    query, document, grade = next(iter(positions[0]), None), positions[1][0], positions[2][0]
    for _, cells in table.rows:
        yield None if query is None else from_cell(cells[query]), from_cell(cells[document]), cells[grade]


def _qrels(text: str) -> Iterator[tuple[str | None, str, str]]:
    """Yield the judgements of lines of qrels: query, 0, document, grade."""
    rows = [parts for line in text.split("\n") if (parts := line.split())]
    if not rows or any(len(parts) != 4 for parts in rows):
        raise InputError(
            "judgements must have a header with doc_id and grade, or lines of qrels (topic 0 document grade); the file "
            "has neither"
        )
    for query, _, document, grade in rows:
        yield query, document, grade


def _grade(doc_id: str, written: str) -> int:
    grade = whole_number(written)
    if grade is None or abs(grade) >= 10**_MAX_GRADE_DIGITS:
        raise InputError(f"a grade must be a whole number from 0, found {written!r:.60} for {doc_id!r:.100}")
    return grade
