"""What is exported about a document of a topic: the record as it came in, the judgements, rank and probability."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from haybale.collections import Collection
from haybale.collections.citations import Citation, cite
from haybale.collections.readers.files import is_title_in
from haybale.engine import Duplicates
from haybale.errors import UnknownNameError
from haybale.review.judgement_store import Judgement
from haybale.review.marked_terms import marked_terms
from haybale.review.topic_duplicates import carried_rows
from haybale.review.topic_ranking import TopicRanking
from haybale.review.topic_state import TopicState
from haybale.search.searching import metadata_of, title_of
from haybale.search.snippets import Snippet, snippet_of

DOCUMENTS = ("judged", "all")  # which documents are exported


class ExportedRecord(NamedTuple):
    """A document with what was judged about it.

    Parameters
    ----------
    doc_id : str
    title : str
        The title of the engine; empty if the engine does not have the text that was judged.
    own_title : str
        The title, unless it is only the name of the file.
    paragraphs : list of str
        The text without the title before it; for a document that is gone or replaced, the passages that were shown.
    status : str
        ``"orphaned"`` or ``"replaced"`` if the engine does not have the text that was judged, otherwise empty.
    metadata : mapping
        The fields that came in.
    rows : sequence of Judgement
        The latest judgement of each judge; empty if nobody has judged the document.
    grade : int or None
        The judgements combined; None without one.
    is_contradictory : bool
    rank : int or None
        The rank at which it was proposed; for a document that nobody has judged, its present one.
    probability : float or None
        How likely it is relevant, as the learner estimates now; None if the engine does not have the text, or if the
        estimate would tell a judgement that is hidden.
    resolution : Judgement or None
        What resolves a conflict of the judges.
    duplicate_of : str
        The judged document whose judgements these are, if it is a duplicate of it; otherwise empty.
    shown : Snippet or None
        The passage that was shown, or else the first one, with marked terms of the topic's text and its place; None if
        nobody has judged the document, or the engine does not have the text.
    link : str
        The address of the document in a service; otherwise empty.
    draw : int
        The number of its draw in the audit of the topic, from 1; 0 if it was not drawn.
    """

    doc_id: str
    title: str
    own_title: str
    paragraphs: list[str]
    status: str
    metadata: Mapping[str, Any]
    rows: Sequence[Judgement]
    grade: int | None
    is_contradictory: bool
    rank: int | None
    probability: float | None
    resolution: Judgement | None = None
    duplicate_of: str = ""
    shown: Snippet | None = None
    link: str = ""
    draw: int = 0

    @property
    def is_relevant(self) -> bool:
        """Whether it is relevant by its combined grade."""
        return (self.grade or 0) > 0

    @property
    def citation(self) -> Citation:
        """How it is cited; the link is that of the service, or else of the metadata."""
        citation = cite(self.title or self.doc_id, self.metadata)
        return citation._replace(link=self.link) if self.link else citation

    @property
    def notes(self) -> list[str]:
        """The notes of the judges, and of a resolution."""
        return [row.note for row in (*self.rows, *([self.resolution] if self.resolution else [])) if row.note]

    @property
    def judges(self) -> str:
        """The latest grade of each judge, such as ``"Ada: 1; Bob: 0"``."""
        return "; ".join(f"{row.judge}: {row.grade}" if row.judge else str(row.grade) for row in self.rows)

    @property
    def reasons(self) -> list[str]:
        """Why the judges excluded it."""
        reasons = (row.details.get("reason", ()) for row in self.rows if not row.grade)
        return list(dict.fromkeys(str(reason) for texts in reasons for reason in texts))

    def judgements(self) -> list[dict[str, Any]]:
        """Return what each judge said, and what resolves their conflict, as plain values without empty ones."""
        fields = ("grade", "judge", "time", "seconds", "note")
        return [
            {name: value for name in fields if (value := getattr(row, name)) not in (None, "")} | dict(row.details)
            for row in (*self.rows, *([] if self.resolution is None else [self.resolution]))
        ]


def exported_records(
    ranking: TopicRanking,
    documents: str = "judged",
    state: TopicState | None = None,
    duplicates: Duplicates | None = None,
    hides_estimates: bool = False,
    text: str = "",
) -> list[ExportedRecord]:
    """Return what is exported about the documents of a topic.

    Parameters
    ----------
    ranking : TopicRanking
    documents : {"judged", "all"}, default "judged"
        The judged documents in the order of their judgements; with ``"all"``, the others follow in the order of the
        ranking.
    state : TopicState, optional
        The judgements. Default: those of the ranking.
    duplicates : Duplicates, optional
        Groups of documents, to which a judgement of one of them is carried. Default: none.
    hides_estimates : bool, default False
        Whether to leave ranks and probabilities out, because they would tell judgements that are hidden.
    text : str, default ""
        The text of the topic, whose terms are marked in passages. Terms of other relevant documents are not marked:
        they would tell judgements, too.
    """
    state = state or ranking.state
    if documents not in DOCUMENTS:
        raise UnknownNameError("choice of documents", documents, DOCUMENTS)
    rows, judged_of = state.graded_rows(), dict[str, str]()
    if duplicates is not None:
        rows, judged_of = carried_rows(rows, duplicates)
    by_document: dict[str, list[Judgement]] = {}
    for row in rows:
        if not row.is_resolution:
            by_document.setdefault(row.doc_id, []).append(row)
    whole, audit = ranking.snapshot.whole, ranking.audit
    draws = {} if audit is None else {doc_id: n for n, doc_id in enumerate(ranking.audit_log.drawn(audit.number), 1)}
    probabilities = ranking.learner.probabilities() if ranking.collection.n_documents else np.empty(0)
    records = []
    for doc_id, document_rows in by_document.items():
        number = ranking.number(doc_id)
        status = next(filter(None, map(ranking.status_of, document_rows)), "")
        rank = document_rows[-1].rank
        judged = document_rows, state.grade(doc_id), state.is_contradictory(doc_id), rank
        if number is None or status:
            shown = list(dict.fromkeys(row.passage for row in document_rows if row.passage))
            record = ExportedRecord(doc_id, "", "", shown, status, {}, *judged, None)
        else:
            record = _record(whole, number, judged, float(probabilities[number]))
            record = record._replace(shown=_shown(ranking, number, document_rows, text))
        record = record._replace(resolution=state.resolution(doc_id), duplicate_of=judged_of.get(doc_id, ""))
        records.append(record._replace(draw=draws.get(doc_id, 0)))
    if documents == "all":
        for rank, number in enumerate(_unjudged(ranking, set(by_document), hides_estimates), 1):
            unjudged = (), None, False, None if hides_estimates else rank
            records.append(_record(whole, number, unjudged, float(probabilities[number])))
    return [record._replace(probability=None) for record in records] if hides_estimates else records


def _unjudged(ranking: TopicRanking, judged: set[str], hides_estimates: bool) -> list[int]:
    """Return the numbers of the other documents, in the order of the ranking, or of ids if the ranking would tell."""
    numbers = [n for n in range(ranking.collection.n_documents) if ranking.doc_id(n) not in judged]
    if hides_estimates:
        return sorted(numbers, key=lambda number: ranking.places[number])
    scores = ranking.learner.scores()
    return sorted(numbers, key=lambda number: (-scores[number], ranking.places[number]))


def _shown(ranking: TopicRanking, number: int, rows: Sequence[Judgement], text: str) -> Snippet | None:
    """Return the passage that was shown last for a document, or its first one, with marked terms of a text."""
    passages = ranking.collection.passages
    start, end = passages.doc_offsets[number : number + 2].tolist()
    if start == end:
        return None
    shown_id = next((row.passage_id for row in reversed(rows) if row.passage_id), None)
    ids = passages.ids[start:end].to_pylist()
    passage = start + (ids.index(shown_id) if shown_id in ids else 0)
    snippet = snippet_of(ranking.collection, passage, [])
    return replace(snippet, highlights=marked_terms(ranking.snapshot, text, snippet.text, ()))


def _record(
    whole: Collection, number: int, judged: tuple[Sequence[Judgement], int | None, bool, int | None], probability: float
) -> ExportedRecord:
    """Return a document that the engine has."""
    start, end = whole.passages.doc_offsets[number : number + 2]
    passages = whole.passages.texts[int(start) : int(end)].to_pylist()
    title, metadata = str(whole.doc_titles[number].as_py() or ""), metadata_of(whole, number)
    own_title, paragraphs = title_and_abstract(title, passages)
    if own_title == title == PurePosixPath(str(metadata.get("file", ""))).stem and not is_title_in(title, passages[0]):
        own_title = ""
    fields = {name: value for name, value in metadata.items() if name != "file"}
    about = str(whole.doc_ids[number].as_py()), title_of(whole, number), own_title, paragraphs
    return ExportedRecord(*about, "", fields, *judged, probability)


def title_and_abstract(title: str, passages: Sequence[str]) -> tuple[str, list[str]]:
    r"""Return the title of a record as it came in, and its paragraphs without the title that stands before them.

    >>> title_and_abstract("Leases", ["Leases\nThey end.", "Soon."]), title_and_abstract("Leases", ["Leases"])
    (('Leases', ['They end.', 'Soon.']), ('Leases', []))
    >>> title_and_abstract("Leases", ["Leases end."])
    ('Leases', ['Leases end.'])
    """
    if not title or not passages:
        return title, list(passages)
    words = r"\s+".join(map(re.escape, title.split()))
    if len(passages) == 1 and re.fullmatch(words, passages[0]):
        return passages[0], []
    match = re.match(rf"({words})\n", passages[0])
    rest = passages[0][match.end() :] if match else ""
    if match is not None and rest.strip() and not is_title_in(match[1], rest):
        return match[1], [rest, *passages[1:]]
    inside = re.search(rf"(?<!\w){words}(?!\w)", passages[0])  # with the white space that it came in with
    return inside[0] if inside else title, list(passages)
