"""Read judgements that exist before a review begins: ids of relevant documents, grades by id, qrels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from haybale.collections.ids import as_ids
from haybale.collections.qrels import judgements, read_qrels
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame
from haybale.review.grades import check_grade


def grades_of(documents: Sequence[str] | Mapping[str, int]) -> dict[str, int]:
    """Return grades by document id; documents without a grade are relevant."""
    ids = as_ids(documents, "known documents")
    values: Iterable[Any] = documents.values() if isinstance(documents, Mapping) else [1] * len(ids)
    return {doc_id: check_grade(grade) for doc_id, grade in zip(ids, values, strict=True)}


def old_judgements(qrels: Frame | str | Path, query: str | None) -> dict[str, int]:
    """Return the grades of one query in a file or frame; grades below 0 count as irrelevant."""
    if isinstance(qrels, str | Path):
        rows = [(query_id, doc_id, grade) for _, query_id, doc_id, grade in read_qrels(qrels)]
    else:
        frame = judgements(qrels)
        rows = list(zip(frame["query_id"], frame["doc_id"], frame["relevance"].tolist(), strict=True))
    queries = list(dict.fromkeys(query_id for query_id, *_ in rows))
    if query is None and len(queries) > 1:
        raise InputError(
            f"expected judgements of one query, found {len(queries):,}; give query=, such as {queries[0]!r}"
        )
    if query is not None and query not in queries:
        raise UnknownNameError("query", query, queries)
    grades: dict[str, int] = {}
    for query_id, doc_id, grade in rows:
        if query in (None, query_id) and grades.setdefault(doc_id, max(grade, 0)) != max(grade, 0):
            raise InputError(f"expected one grade for document {doc_id!r}, found several; remove all but one")
    return grades
