"""What a team does with a topic beside judging: its protocol, full texts, PRISMA numbers, name, end and deletion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from haybale.review import (
    FullTextProgress,
    JudgementStore,
    PrismaNumbers,
    Review,
    ReviewDocument,
    ReviewProtocol,
    Topic,
    protocol_of,
    protocol_versions,
)
from haybale.review.judgement_store import TopicEvent
from haybale.review.protocol import change_protocol
from haybale.review.topic_lifecycle import (
    close_topic,
    delete_topic,
    listed_topics,
    reopen_topic,
    restore_topic,
    topic_status,
)
from haybale.service.request_texts import check_length
from haybale.service.topic_summary import TopicRows, TopicSummary

HELD_SECONDS = 1800.0  # for which a full text that one judge got is not proposed to others


class TopicDesk:
    """The desk of a workspace's topics. Several threads may use it.

    Parameters
    ----------
    store : JudgementStore
    review_of, rows_of : callable
        Return the review, and the rows, of the topic with a number; an unknown number raises NotFoundError.
    clock : callable
        Returns the time in seconds, by which full texts that a judge reads are held from others.
    """

    def __init__(
        self,
        store: JudgementStore,
        review_of: Callable[[int], Review],
        rows_of: Callable[[int], TopicRows],
        clock: Callable[[], float],
    ) -> None:
        self.store, self._review_of, self._rows_of, self._clock = store, review_of, rows_of, clock
        self._lock = threading.Lock()
        self._held: dict[tuple[int, str], tuple[str, float]] = {}  # judge and time, by topic and document

    # The protocol.

    def protocol(self, topic: int) -> ReviewProtocol:
        """Return the criteria, reasons for exclusion, keywords and stages of a topic."""
        return protocol_of(self.store, self._rows_of(topic).topic)

    def change_protocol(self, topic: int, changes: Mapping[str, Any], judge: str = "") -> ReviewProtocol:
        """Change parts of a protocol by their names in :class:`~haybale.review.ReviewProtocol`, and return it."""
        return change_protocol(self.store, self._rows_of(topic).topic, changes, judge)

    def versions(self, topic: int) -> list[TopicEvent]:
        """Return every change of a protocol, in order."""
        return protocol_versions(self.store, self._rows_of(topic).topic)

    # Full texts.

    def next_full_text(self, topic: int, n: int = 1, judge: str = "") -> list[ReviewDocument]:
        """Return the full texts that a judge should judge next; those that others got within 30 minutes come last."""
        stage = self._review_of(topic).full_text
        with self._lock:
            now = self._clock()
            self._forget(now)
            others = {doc_id for (number, doc_id), (name, _) in self._held.items() if number == topic and name != judge}
            documents = stage.next(n + len(others))
            chosen = sorted(documents, key=lambda document: document.doc_id in others)[:n]
            for document in chosen:
                if document.doc_id not in others:
                    self._held[topic, document.doc_id] = judge, now
        return chosen

    def full_text(self, topic: int, doc_id: str) -> ReviewDocument:
        """Return one full text to judge; a document that was not included by title and abstract raises InputError."""
        return self._review_of(topic).full_text.document(doc_id)

    def judge_full_text(
        self,
        topic: int,
        doc_id: str,
        grade: int,
        judge: str = "",
        note: str | None = None,
        seconds: float | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        """Judge a document by its full text, as :meth:`haybale.review.FullTextStage.judge` does."""
        check_length(note or "")
        self._review_of(topic).full_text.judge(doc_id, grade, judge, note, seconds, reasons)
        self._let_go(topic, doc_id)

    def skip_full_text(self, topic: int, doc_id: str, judge: str = "") -> None:
        """Put a full text off: it is proposed again after all others."""
        self._review_of(topic).full_text.skip(doc_id, judge)
        self._let_go(topic, doc_id)

    def undo_full_text(self, topic: int, judge: str = "") -> str:
        """Take the last judgement or skip of a judge in this stage back, and return the id of its document."""
        return self._review_of(topic).full_text.undo(judge)

    def full_text_progress(self, topic: int) -> FullTextProgress:
        """Return how many full texts were sought, judged and included."""
        return self._review_of(topic).full_text.progress()

    def full_text_grades(self, topic: int, doc_id: str) -> dict[str, int]:
        """Return the latest grade of each judge of a full text."""
        return self._review_of(topic).full_text.grades(doc_id)

    def full_text_judgements(self, topic: int) -> Any:
        """Return the judgements of full texts as a frame (:meth:`haybale.review.FullTextStage.judgements`)."""
        return self._review_of(topic).full_text.judgements()

    @property
    def n_open(self) -> int:
        """The number of full texts that judges have open."""
        with self._lock:
            self._forget(self._clock())
            return len(self._held)

    def _forget(self, now: float) -> None:
        """Forget who got a full text too long ago."""
        self._held = {key: held for key, held in self._held.items() if now - held[1] < HELD_SECONDS}

    def _let_go(self, topic: int, doc_id: str) -> None:
        with self._lock:
            self._held.pop((topic, doc_id), None)

    # PRISMA numbers.

    def prisma(self, topic: int, source: str | None = None) -> PrismaNumbers:
        """Return the numbers of the PRISMA 2020 flow diagram, as :meth:`haybale.Review.prisma` does."""
        return self._review_of(topic).prisma(source=source)

    # The topic as a whole.

    def rename(self, topic: int, name: str, judge: str = "") -> None:
        """Give a topic another name; one that another topic has raises InputError."""
        self.store.rename(self._rows_of(topic).topic, name, judge)

    def close(self, topic: int, judge: str = "") -> None:
        """Close a topic: it can be read and exported, but not judged, until it is opened again."""
        close_topic(self.store, self._rows_of(topic).topic, judge)

    def reopen(self, topic: int, judge: str = "") -> None:
        """Open a closed topic again."""
        reopen_topic(self.store, self._rows_of(topic).topic, judge)

    def delete(self, topic: int, judge: str = "") -> None:
        """Delete a topic: lists and trainings leave it out. Its judgements stay, and it can be restored."""
        delete_topic(self.store, self._rows_of(topic).topic, judge)

    def restore(self, topic: int, judge: str = "") -> None:
        """Restore a deleted topic."""
        restore_topic(self.store, self._rows_of(topic).topic, judge)

    def listed(self) -> list[Topic]:
        """Return the topics that were not deleted, in the order in which they were added."""
        return listed_topics(self.store)

    def open(self) -> list[Topic]:
        """Return the topics that can be judged, in the order in which they were added."""
        statuses = ((topic, topic_status(self.store, topic)) for topic in self.store.topics())
        return [topic for topic, status in statuses if not (status.is_closed or status.is_deleted)]

    def deleted(self) -> list[TopicSummary]:
        """Return the deleted topics, in the order in which they were added."""
        topics = [topic for topic in self.store.topics() if topic_status(self.store, topic).is_deleted]
        return [self._rows_of(topic.number).summary() for topic in topics]
