"""What the rows of a store say about a topic at one moment: grades, skipped documents, reading order, random sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from haybale.review.combined_judgements import DEFAULT_RULE, are_contradictory, combined_grade
from haybale.review.judgement_store import GRADED, Judgement
from haybale.review.screening_plan import SINGLE_SCREENING, ScreeningPlan

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
    plan : ScreeningPlan
        Which documents need two judges. :meth:`follow` takes another one.
    representatives : mapping of str to str, optional
        The documents that stand for their groups of duplicates, by the documents of these groups. What is said about
        one document of a group counts for the group, and :attr:`rows` has it under the representative. Default: none.
    """

    def __init__(
        self,
        rule: str = DEFAULT_RULE,
        rows: Iterable[Judgement] = (),
        plan: ScreeningPlan = SINGLE_SCREENING,
        representatives: Mapping[str, str] | None = None,
    ) -> None:
        self.rule, self.plan, self.representatives = rule, plan, representatives or {}
        self.rows: dict[str, list[Judgement]] = {}  # the rows that count, by document
        self.last = 0  # the number of the last row
        self.waiting: dict[str, str] = {}  # the only judge of each document that needs a second one, the first first
        self._with_resolution: set[str] = set()  # documents that a resolution has ever been about
        for row in rows:
            self.apply(row)

    def apply(self, row: Judgement) -> str:
        """Add a row, and return the id of the document, or of the representative, that it is about."""
        doc_id = self.representative(row.doc_id)
        document_rows = self.rows.setdefault(doc_id, [])
        if row.kind == "undone":
            document_rows[:] = [kept_row for kept_row in document_rows if kept_row.number != row.undoes]
        else:
            document_rows.append(row)
        if not document_rows:
            del self.rows[doc_id]
        if row.is_resolution:
            self._with_resolution.add(doc_id)
        self.last = max(self.last, row.number)
        self._note_waiting(doc_id)
        return doc_id

    def representative(self, doc_id: str) -> str:
        """Return the document that stands for the group of a document; the document itself if it has no duplicates."""
        return self.representatives.get(doc_id, doc_id)

    def rows_of(self, doc_id: str) -> Sequence[Judgement]:
        """Return the rows that count for a document: those about it, and about its duplicates."""
        return self.rows.get(self.representative(doc_id), ())

    def needs_two(self, doc_id: str) -> bool:
        """Return whether two judges have to judge a document, or one of its duplicates."""
        return self.plan.needs_two(self.representative(doc_id))

    def is_waiting(self, doc_id: str) -> bool:
        """Return whether a document needs two judges, and one of them has judged it."""
        return self.representative(doc_id) in self.waiting

    def follow(self, plan: ScreeningPlan) -> None:
        """Take another plan of which documents need two judges."""
        if plan != self.plan:
            self.plan, self.waiting = plan, {}
            first = {doc_id: rows[0].number for doc_id in self.rows if (rows := self.graded(doc_id))}
            for doc_id in sorted(first, key=first.__getitem__):
                self._note_waiting(doc_id)

    def _note_waiting(self, doc_id: str) -> None:
        judges = self.judges_of(doc_id) if self.needs_two(doc_id) else []
        is_known = any(row.kind == "known" for row in self.rows_of(doc_id))
        if len(judges) == 1 and not is_known:
            self.waiting[doc_id] = judges[0]
        else:
            self.waiting.pop(doc_id, None)

    def graded(self, doc_id: str) -> list[Judgement]:
        """Return the rows with a grade of a judge, without resolutions of conflicts."""
        return [row for row in self.rows_of(doc_id) if row.kind in GRADED and not row.is_resolution]

    def latest(self, doc_id: str) -> dict[str, Judgement]:
        """Return the latest judgement of each judge; the judge who judged last is last."""
        latest: dict[str, Judgement] = {}
        for row in self.graded(doc_id):
            latest.pop(row.judge, None)
            latest[row.judge] = row
        return latest

    def grades(self, doc_id: str) -> dict[str, int]:
        """Return the latest grade of each judge; the judge who judged last is last."""
        return {judge: row.grade for judge, row in self.latest(doc_id).items() if row.grade is not None}

    def judges_of(self, doc_id: str) -> list[str]:
        """Return who has judged the text of a document that was judged last, in a review."""
        latest = [row for row in self.latest(doc_id).values() if row.kind == "judged"]
        newest = {row.doc_id: row.document for row in latest}  # duplicates have texts of their own
        return [row.judge for row in latest if newest[row.doc_id] is None or row.document in (None, newest[row.doc_id])]

    def is_read(self, doc_id: str) -> bool:
        """Return whether as many judges as the document needs have judged it."""
        return not self.is_waiting(doc_id) and bool(self.graded(doc_id))

    def resolution(self, doc_id: str) -> Judgement | None:
        """Return what resolves a conflict about a document: the last resolution, until another text is judged."""
        if self.representative(doc_id) not in self._with_resolution:
            return None
        rows = [row for row in self.rows_of(doc_id) if row.grade is not None]
        last = max((position for position, row in enumerate(rows) if row.is_resolution), default=None)
        if last is None:
            return None
        resolved = rows[last]
        later = (row.document for row in rows[last:] if row.doc_id == resolved.doc_id)
        is_of_same_text = all(None in (resolved.document, digest) or digest == resolved.document for digest in later)
        return resolved if is_of_same_text else None

    def grade(self, doc_id: str) -> int | None:
        """Return the grade of a document that counts: that of a resolution, else the combined one; None without any."""
        grades = self.grades(doc_id)
        if not grades:
            return None
        resolution = self.resolution(doc_id)
        return combined_grade(grades, self.rule) if resolution is None else resolution.grade

    def is_contradictory(self, doc_id: str) -> bool:
        """Return whether one judge found the document relevant and another irrelevant."""
        return are_contradictory(self.grades(doc_id))

    def is_conflict(self, doc_id: str) -> bool:
        """Return whether judges contradict each other about a document that is read, and nobody has resolved it."""
        return self.is_read(doc_id) and self.is_contradictory(doc_id) and self.resolution(doc_id) is None

    def hidden_rows(self, doc_id: str, judge: str) -> list[Judgement]:
        """Return what a judge must not see of a document: all that others have said, until two have judged it."""
        if self.waiting.get(self.representative(doc_id), judge) == judge:
            return []
        return [row for row in self.rows_of(doc_id) if row.judge != judge and row.kind in (*GRADED, "skipped")]

    def seen_by(self, judge: str) -> TopicState:
        """Return the state without what a judge must not see. It is that of one moment: no rows are added to it."""
        seen = TopicState(self.rule, plan=self.plan, representatives=self.representatives)
        seen.rows, seen.waiting, seen.last = dict(self.rows), self.waiting, self.last
        seen._with_resolution = self._with_resolution
        for doc_id in self.waiting:
            hidden = self.hidden_rows(doc_id, judge)
            seen.rows[doc_id] = [row for row in self.rows[doc_id] if row not in hidden]
        return seen

    def blind_judgements(self, doc_id: str) -> dict[str, Judgement]:
        """Return the judgements that judges gave without seeing those of others, by judge.

        If the document needs two judges, these are the judgements of the first two when both had judged; otherwise the
        latest ones, because nothing is hidden then.
        """
        if not self.needs_two(doc_id):
            return self.latest(doc_id)
        blind: dict[str, Judgement] = {}
        for row in self.graded(doc_id):
            if row.kind == "judged":
                blind[row.judge] = row
            if len(blind) == 2:
                break
        return blind

    def is_known(self, doc_id: str) -> bool:
        """Return whether the document was judged without being proposed or drawn: from the start, or by choice."""
        if self.is_drawn(doc_id) or self.proposed_at(doc_id) is not None:
            return False
        return bool(self.grades(doc_id))

    def is_drawn(self, doc_id: str) -> bool:
        """Return whether the document belongs to the random sample."""
        return any(row.kind == "drawn" for row in self.rows_of(doc_id))

    def populations(self, doc_id: str) -> list[str]:
        """Return the digests of the documents from which a document was drawn."""
        drawn = (row for row in self.rows_of(doc_id) if row.kind == "drawn")
        return [(row.model or "").partition(SAMPLE_OF)[2] for row in drawn]

    def is_held_out(self, doc_id: str) -> bool:
        """Return whether a judged document of the random sample was not reached by the ranking yet.

        The ranking must not learn from it until then, because the sample shall measure the ranking.
        """
        return self.is_drawn(doc_id) and bool(self.grades(doc_id)) and self.proposed_at(doc_id) is None

    def is_skipped(self, doc_id: str) -> bool:
        """Return whether the document was skipped and not judged."""
        return not self.grades(doc_id) and any(row.kind == "skipped" for row in self.rows_of(doc_id))

    def proposed_at(self, doc_id: str) -> int | None:
        """Return the number of the row with which the reading order got to this document; None if it did not."""
        for row in self.rows_of(doc_id):
            if row.kind == "reached" or (row.kind in GRADED and row.rank is not None):
                return row.number
        return None

    def reading_order(self) -> list[str]:
        """Return the judged documents that the ranking proposed, in the order in which it did."""
        proposal_numbers = {doc_id: at for doc_id in self.rows if (at := self.proposed_at(doc_id)) is not None}
        return [doc_id for doc_id in sorted(proposal_numbers, key=proposal_numbers.__getitem__) if self.grades(doc_id)]

    def last_of(self, judge: str | None, kinds: Iterable[str]) -> Judgement | None:
        """Return the last row of these kinds that counts, of one judge or of anybody, without resolutions."""
        rows = (row for document_rows in self.rows.values() for row in document_rows if row.kind in kinds)
        theirs = (row for row in rows if judge in (None, row.judge) and not row.is_resolution)
        return max(theirs, key=lambda row: row.number, default=None)

    def graded_rows(self) -> list[Judgement]:
        """Return the latest judgement of each judge about each document, and resolutions, in the order of the store."""
        rows = [row for doc_id in self.rows for row in self.latest(doc_id).values()]
        rows += [row for doc_id in self.rows if (row := self.resolution(doc_id)) is not None and self.grades(doc_id)]
        return sorted(rows, key=lambda row: row.number)
