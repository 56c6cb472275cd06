"""What the rows of a store say about a topic at one moment: grades, skipped documents, reading order, random sample."""

from __future__ import annotations

from collections.abc import Iterable

from haybale.review.audit_log import audit_of
from haybale.review.combined_judgements import DEFAULT_RULE, are_contradictory, combined_grade
from haybale.review.judgement_store import GRADED, Judgement

# What drew a document; the second one is followed by the digest of the documents to draw from.
SAMPLE, SAMPLE_OF = "random sample", "random sample of "


class TopicState:
    """The state that the rows of a topic lead to. Rows that were undone have no effect.

    Parameters
    ----------
    rule : str
        How the grades of several judges are combined, as in
        :func:`~haybale.review.combined_judgements.combined_grade`.
    rows : iterable of Judgement
        The first rows.
    """

    def __init__(self, rule: str = DEFAULT_RULE, rows: Iterable[Judgement] = ()) -> None:
        self.rule = rule
        self.rows: dict[str, list[Judgement]] = {}  # the rows that count, by document
        self.last = 0  # the number of the last row
        for row in rows:
            self.apply(row)

    def apply(self, row: Judgement) -> str:
        """Add a row, and return the id of the document that it is about."""
        document_rows = self.rows.setdefault(row.doc_id, [])
        if row.kind == "undone":
            document_rows[:] = [kept_row for kept_row in document_rows if kept_row.number != row.undoes]
        else:
            document_rows.append(row)
        if not document_rows:
            del self.rows[row.doc_id]
        self.last = max(self.last, row.number)
        return row.doc_id

    def grades(self, doc_id: str) -> dict[str, int]:
        """Return the latest grade of each judge; the judge who judged last is last."""
        grades: dict[str, int] = {}
        for row in self.rows.get(doc_id, ()):
            if row.kind in GRADED and row.grade is not None:
                grades.pop(row.judge, None)
                grades[row.judge] = row.grade
        return grades

    def grade(self, doc_id: str) -> int | None:
        """Return the combined grade of a document; None if it was not judged."""
        grades = self.grades(doc_id)
        return combined_grade(grades, self.rule) if grades else None

    def is_contradictory(self, doc_id: str) -> bool:
        """Return whether one judge found the document relevant and another irrelevant."""
        return are_contradictory(self.grades(doc_id))

    def is_known(self, doc_id: str) -> bool:
        """Return whether the document was judged without being proposed or drawn: from the start, or by choice."""
        if self.is_drawn(doc_id) or self.proposed_at(doc_id) is not None:
            return False
        return bool(self.grades(doc_id))

    def is_drawn(self, doc_id: str) -> bool:
        """Return whether the document belongs to the random sample, which is not that of an audit."""
        return any(row.kind == "drawn" and not audit_of(row) for row in self.rows.get(doc_id, ()))

    def is_audited(self, doc_id: str) -> bool:
        """Return whether an audit drew the document."""
        return any(map(audit_of, self.rows.get(doc_id, ())))

    def populations(self, doc_id: str) -> list[str]:
        """Return the digests of the documents from which a document was drawn."""
        drawn = (row for row in self.rows.get(doc_id, ()) if row.kind == "drawn" and not audit_of(row))
        return [(row.model or "").partition(SAMPLE_OF)[2] for row in drawn]

    def is_held_out(self, doc_id: str) -> bool:
        """Return whether a judged document of the random sample was not reached by the ranking yet.

        The ranking must not learn from it until then, because the sample shall measure the ranking.
        """
        return self.is_drawn(doc_id) and bool(self.grades(doc_id)) and self.proposed_at(doc_id) is None

    def is_skipped(self, doc_id: str) -> bool:
        """Return whether the document was skipped and not judged."""
        return not self.grades(doc_id) and any(row.kind == "skipped" for row in self.rows.get(doc_id, ()))

    def proposed_at(self, doc_id: str) -> int | None:
        """Return the number of the row with which the reading order got to this document; None if it did not.

        A document that an audit drew was read with its first judgement.
        """
        is_audited = self.is_audited(doc_id)
        for row in self.rows.get(doc_id, ()):
            if row.kind == "reached" or (row.kind in GRADED and (is_audited or row.rank is not None)):
                return row.number
        return None

    def reading_order(self) -> list[str]:
        """Return the judged documents that the ranking proposed, in the order in which it did."""
        proposal_numbers = {doc_id: at for doc_id in self.rows if (at := self.proposed_at(doc_id)) is not None}
        return [doc_id for doc_id in sorted(proposal_numbers, key=proposal_numbers.__getitem__) if self.grades(doc_id)]

    def last_of(self, judge: str | None, kinds: Iterable[str]) -> Judgement | None:
        """Return the last row of these kinds that counts, of one judge or of anybody."""
        rows = (row for document_rows in self.rows.values() for row in document_rows if row.kind in kinds)
        return max((row for row in rows if judge in (None, row.judge)), key=lambda row: row.number, default=None)

    def graded_rows(self) -> list[Judgement]:
        """Return the latest judgement of each judge about each document, in the order of the store."""
        latest: dict[tuple[str, str], Judgement] = {}
        for rows in self.rows.values():
            latest |= {(row.doc_id, row.judge): row for row in rows if row.grade is not None}
        return sorted(latest.values(), key=lambda row: row.number)
