"""Match decisions of another program to the documents of a review, and say what did not match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haybale.collections import Collection
from haybale.collections.unread import UnreadPart
from haybale.review.decision_files import DecidedRecord, DecisionFile, read_decisions
from haybale.review.full_text import full_text_state
from haybale.review.grades import check_grade
from haybale.review.judgement_store import RESOLUTION, Judgement
from haybale.review.matched_documents import DocumentIdentities
from haybale.review.topic_ranking import with_digest
from haybale.review.topic_state import FULL_TEXT, TITLE_ABSTRACT, TopicState

if TYPE_CHECKING:
    from haybale.review.review import Review


@dataclass(frozen=True)
class DecisionImport:
    """What became of the decisions of a file.

    Parameters
    ----------
    n_decided, n_undecided : int
        Records of the file with and without a decision.
    n_added : int
        Judgements that were added: one for each document and judge.
    n_repeated : int
        Judgements that the topic has already from the same judge; these were kept.
    unmatched : list of str
        Records that no document matches, by their place in the file and their title.
    several : dict of str to list of str
        The ids of the documents that one record matches, such as duplicates; all of them were judged.
    conflicting : dict of str to list of str
        By document, the records that contradict each other about it, of one judge; none of these was added.
    unread : list of UnreadPart
        What was not read of the file, or not with certainty.
    """

    n_decided: int
    n_undecided: int
    n_added: int
    n_repeated: int
    unmatched: list[str]
    several: dict[str, list[str]]
    conflicting: dict[str, list[str]]
    unread: list[UnreadPart]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def lists(self) -> list[tuple[str, list[str]]]:
        """Return what did not match, or was not read, for people: what it is, and its members."""
        lists = (
            ("records that match no document", self.unmatched),
            ("records that match several documents, which were all judged", _joined(self.several)),
            ("documents that were left out, because records contradict each other", _joined(self.conflicting)),
            ("parts of the file that were not read with certainty", list(map(str, self.unread))),
        )
        return [(what, members) for what, members in lists if members]

    def text(self) -> str:
        """Return all of it for people, in lines."""
        lines = [
            f"judgements added: {self.n_added:,}; there already: {self.n_repeated:,}",
            f"records with a decision: {self.n_decided:,}; without one: {self.n_undecided:,}",
        ]
        for what, members in self.lists():
            lines += [f"{what} ({len(members):,}):", *(f"  {member}" for member in members)]
        return "\n".join(lines)


def _joined(members: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name} = {', '.join(values)}" for name, values in members.items()]


def import_decisions(
    review: Review, file: str | Path, data: bytes | None = None, *, otherwise: int | None = None
) -> DecisionImport:
    """Add decisions of another program or engine to the documents they are about, and say what did not match.

    The file is a table (CSV, TSV, Excel), has bibliographic records (RIS, PubMed, Web of Science, EndNote, BibTeX), or
    is an ASReview project. Documents are found by DOI, PubMed id and other ids, or by title and year. Each judge's
    judgements are kept beside those of others.

    Parameters
    ----------
    review : Review
    file : str or Path
    data : bytes, optional
        The content of the file. Default: it is read.
    otherwise : int, optional
        The grade of records that say none, such as those of a file with all included records. Default: none.

    Raises
    ------
    InputError
        If the file cannot be read, or has no decision. Nothing is added then.

    Examples
    --------
    >>> from haybale import Engine, Review
    >>> engine = Engine({"a": {"title": "Dogs", "text": "They bark."}, "b": "Cats purr."}, language="english")
    >>> review = Review(engine, "animals")
    >>> done = import_decisions(review, "old.csv", b"title,included,reason\\ndogs,0,no cat\\nhens,1,\\n")
    >>> done.n_added, done.unmatched
    (1, ['line 3: hens'])
    >>> review.judgements()[["doc_id", "grade"]].to_numpy().tolist()
    [['a', 0]]
    """
    decisions = read_decisions(file, data, None if otherwise is None else check_grade(otherwise))
    return add_decisions(review, decisions)


def add_decisions(review: Review, decisions: DecisionFile) -> DecisionImport:
    """Add the decisions of a file that was read to a review, as :func:`import_decisions` does."""
    with review._lock:
        ranking = review._sync()
        rows, done = imported_judgements(decisions, ranking.collection, ranking.state)
        review.store.add(review.topic, *(with_digest(row, ranking.snapshot) for row in rows))
        review._sync()
    return done


def imported_judgements(
    decisions: DecisionFile, collection: Collection, state: TopicState
) -> tuple[list[Judgement], DecisionImport]:
    """Return the judgements to add to a topic, and what became of all decisions.

    Each judge's judgements stay beside those of others. A decision of nobody in particular is added only to documents
    that nobody has judged.

    Parameters
    ----------
    decisions : DecisionFile
    collection : Collection
        The documents of the engine.
    state : TopicState
        What was judged so far.
    """
    identities = DocumentIdentities(collection)
    unmatched, several = list[str](), dict[str, list[str]]()
    full_texts = full_text_state(state)
    by_judge: dict[tuple[str, str, bool, str], list[tuple[DecidedRecord, Judgement]]] = {}
    for record in decisions.records:
        matching = identities.matching(record.identity)
        doc_ids = list(dict.fromkeys(map(state.representative, matching)))  # a group of duplicates is judged once
        if not doc_ids:
            unmatched.append(record.label)
        elif len(doc_ids) > 1:
            several[record.label] = doc_ids
        for doc_id in doc_ids:
            for row in _rows(doc_id, record):
                key = doc_id, row.judge, row.is_resolution, row.details.get("stage", TITLE_ABSTRACT)
                by_judge.setdefault(key, []).append((record, row))
    added, conflicting, n_repeated = list[Judgement](), dict[str, list[str]](), 0
    for (doc_id, judge, is_resolution, stage), records in by_judge.items():
        grades = (full_texts if stage == FULL_TEXT else state).grades(doc_id)
        if len({row.grade for _, row in records}) > 1:
            conflicting.setdefault(doc_id, []).extend(record.label for record, _ in records)
        elif is_resolution and state.resolution(doc_id) is None:
            added.append(records[0][1])
        elif is_resolution or judge in grades or (grades and not judge):
            n_repeated += 1
        else:
            added.append(records[0][1])
    counts = len(decisions.records), decisions.n_undecided, len(added), n_repeated
    return added, DecisionImport(*counts, unmatched, several, conflicting, decisions.unread)


def _rows(doc_id: str, record: DecidedRecord) -> Iterable[Judgement]:
    """Return the judgements that a record leads to about a document.

    Exports have the last decision. If it is about the full text, the record was included by title and abstract before.
    """
    for decision in record.decisions:
        if decision.stage == FULL_TEXT:
            yield Judgement(doc_id, "known", 1, decision.judge, time=decision.time)
        details: dict[str, Any] = {"reason": list(decision.reasons)} if decision.reasons else {}
        details |= {"stage": decision.stage} if decision.stage else {}
        details |= {RESOLUTION: {"by": list(decision.resolved_by)}} if decision.resolved_by else {}
        about: dict[str, Any] = {"note": decision.note or None, "time": decision.time, "details": details}
        yield Judgement(doc_id, "known", decision.grade, decision.judge, **about)
