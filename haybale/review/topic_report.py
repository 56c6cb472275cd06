"""What is taken along of a topic, for all formats: its documents, how they are cited and judged, and its protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from haybale.review.exported_records import ExportedRecord
from haybale.review.judgement_store import Topic, TopicEvent
from haybale.review.protocol import ReviewProtocol
from haybale.search.search_hit import plain_metadata
from haybale.search.snippets import Snippet
from haybale.search.taken_hits import MAX_PASSAGE_CHARACTERS
from haybale.versions import __version__
from haybale.word_document import WordDocument


@dataclass(frozen=True)
class TopicReport:
    """A topic at one moment, as somebody may see it.

    Parameters
    ----------
    topic : Topic
    collection : str
        The name of the collection.
    n_documents : int
        Of the collection.
    records : sequence of ExportedRecord
        The judged documents in the order of their judgements, and perhaps the others.
    protocol : ReviewProtocol
    versions : sequence of TopicEvent
        Every change of the protocol, in order.
    time : str
        When the report was made: ISO 8601, in UTC. Default: now.
    """

    topic: Topic
    collection: str
    n_documents: int
    records: Sequence[ExportedRecord]
    protocol: ReviewProtocol
    versions: Sequence[TopicEvent]
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def linked(self, link_of: Callable[[str], str]) -> TopicReport:
        """Return the report with the address of each document, by its id, in place of the link in its metadata."""
        return replace(self, records=[record._replace(link=link_of(record.doc_id)) for record in self.records])

    @property
    def judged(self) -> list[ExportedRecord]:
        """The documents with a judgement."""
        return [record for record in self.records if record.rows]

    @property
    def relevant(self) -> list[ExportedRecord]:
        """The documents that are relevant as the judgements of all judges are combined."""
        return [record for record in self.judged if record.is_relevant]

    @property
    def irrelevant(self) -> list[ExportedRecord]:
        """The other judged documents."""
        return [record for record in self.judged if not record.is_relevant]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "topic": self.topic.name,
            "text": self.topic.text,
            "begun": self.topic.time,
            "made": self.time,
            "haybale": __version__,
            "collection": self.collection,
            "n_documents": self.n_documents,
            "n_judged": len(self.judged),
            "n_relevant": len(self.relevant),
            "protocol": self.protocol.to_dict(),
            "protocol_changes": [
                {"part": event.kind, "value": event.value, "judge": event.judge, "time": event.time}
                for event in self.versions
            ],
            "documents": [record_values(record) for record in self.records],
        }

    def to_json(self) -> str:
        """Return all as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def to_word(self) -> bytes:
        """Return a Word file: the topic, each relevant document under a heading, the other judged ones in short."""
        document = WordDocument(self.topic.name)
        document.values(
            [
                ("Looked for", self.topic.text if self.topic.text != self.topic.name else ""),
                ("Collection", f"{self.collection}, {self.n_documents:,} documents"),
                ("Judged", f"{len(self.judged):,} documents, {len(self.relevant):,} of them relevant"),
                ("Date", self.time[:10]),
            ]
        )
        unread = [record for record in self.records if not record.rows]
        parts = [("Relevant documents", self.relevant), ("Other judged documents", self.irrelevant)]
        for heading, records in [*parts, ("Documents that nobody has judged", unread)]:
            if records:
                document.heading(f"{heading} ({len(records):,})", 1)
            for number, record in enumerate(records, 1):
                _add_record(document, number, record)
        if not self.records:
            document.paragraph("Nothing is judged yet.")
        return document.to_bytes()


def record_values(record: ExportedRecord) -> dict[str, Any]:
    """Return plain values of a document, for JSON."""
    citation, shown = record.citation, record.shown or Snippet("", "", [])
    return {
        "doc_id": record.doc_id,
        "title": record.title,
        "citation": citation.text,
        "court": citation.court,
        "date": citation.date,
        "docket": citation.docket,
        "link": citation.link,
        "page": shown.page,
        "heading": shown.heading,
        "passage_id": shown.passage_id or None,
        "snippet": shown.text or "\n\n".join(record.paragraphs),
        "grade": record.grade,
        "contradictory": record.is_contradictory,
        "reasons": record.reasons,
        "judgements": record.judgements(),
        "rank": record.rank,
        "probability": record.probability,
        "draw": record.draw or None,
        "status": record.status,
        "duplicate_of": record.duplicate_of,
        "metadata": plain_metadata(record.metadata),
    }


def _add_record(document: WordDocument, number: int, record: ExportedRecord) -> None:
    citation, title = record.citation, record.title or record.doc_id
    document.heading(f"{number}. {title}", 2)
    if citation.text != title:
        document.paragraph(citation.text)
    document.values(
        [
            ("Court", citation.court),
            ("Date", citation.date),
            ("Docket", citation.docket),
            ("Judged by", record.judges),
            ("Reasons", "; ".join(record.reasons)),
            ("Notes", "\n".join(record.notes)),
            ("Copy of", record.duplicate_of),
            ("Id", record.doc_id),
        ]
    )
    if record.shown is not None and (record.is_relevant or record.notes):
        document.snippet(record.shown.place, record.shown.pieces(MAX_PASSAGE_CHARACTERS))
    if citation.link:
        document.link("Open the document", citation.link)
