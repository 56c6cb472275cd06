"""Close, delete and restore topics. Their judgements stay in the store."""

from __future__ import annotations

from typing import NamedTuple

from haybale.review.judgement_store import JudgementStore, Topic


class TopicStatus(NamedTuple):
    """Whether a topic is closed, so that nobody judges it, and deleted, so that lists and trainings leave it out."""

    is_closed: bool
    is_deleted: bool


def topic_status(store: JudgementStore, topic: Topic) -> TopicStatus:
    """Return whether a topic is closed or deleted.

    >>> store = JudgementStore()
    >>> topic = store.add_topic("leases", "When does a lease end?")
    >>> close_topic(store, topic, judge="Ada")
    >>> topic_status(store, topic)
    TopicStatus(is_closed=True, is_deleted=False)
    """
    last = {event.kind: event.value for event in store.events(topic, latest=True)}
    return TopicStatus(bool(last.get("closed")), bool(last.get("deleted")))


def listed_topics(store: JudgementStore) -> list[Topic]:
    """Return the topics that were not deleted, in the order in which they were added."""
    return [topic for topic in store.topics() if not topic_status(store, topic).is_deleted]


def close_topic(store: JudgementStore, topic: Topic, judge: str = "") -> None:
    """Close a topic: nobody can judge it until it is opened again, but it can be read and exported."""
    _decide(store, topic, "closed", True, judge)


def reopen_topic(store: JudgementStore, topic: Topic, judge: str = "") -> None:
    """Open a closed topic again."""
    _decide(store, topic, "closed", False, judge)


def delete_topic(store: JudgementStore, topic: Topic, judge: str = "") -> None:
    """Delete a topic: lists and trainings leave it out, and nobody can judge it, until it is restored.

    Its judgements stay in the store, and its name stays taken.
    """
    _decide(store, topic, "deleted", True, judge)


def restore_topic(store: JudgementStore, topic: Topic, judge: str = "") -> None:
    """Restore a deleted topic; one that was closed before is closed again."""
    _decide(store, topic, "deleted", False, judge)


def _decide(store: JudgementStore, topic: Topic, kind: str, value: bool, judge: str) -> None:
    if getattr(topic_status(store, topic), f"is_{kind}") != value:
        store.record(topic, kind, value, judge)
