"""The groups of duplicates of a workspace's topics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from haybale.engine import Duplicates
from haybale.review import JudgementStore, Topic, TopicDuplicates
from haybale.service.open_reviews import OpenReviews

ACTIONS = ("separate", "join")


class TopicGroups:
    """Lists, separates and joins the duplicates of topics. Several threads may use it.

    Parameters
    ----------
    reviews : OpenReviews
    store : JudgementStore
    topic_of : callable
        Returns a topic by its number; an unknown one raises NotFoundError.
    """

    def __init__(self, reviews: OpenReviews, store: JudgementStore, topic_of: Callable[[int], Topic]) -> None:
        self._reviews, self._store, self._topic_of = reviews, store, topic_of
        self._lock = threading.Lock()
        self._by_topic: dict[int, TopicDuplicates] = {}

    def of(self, topic: int) -> TopicDuplicates:
        """Return the duplicates of a topic among the documents of the reviews, which are prepared first if needed."""
        return self._of(self._topic_of(topic))

    def _of(self, topic: Topic) -> TopicDuplicates:
        snapshot = self._reviews.snapshot
        with self._lock:
            duplicates = self._by_topic.get(topic.number)
            if duplicates is None or duplicates.engine is not snapshot:
                self._by_topic[topic.number] = duplicates = TopicDuplicates(snapshot, self._store, topic)
            return duplicates

    def groups(self, topic: int) -> Duplicates:
        """Return the groups of a topic, which are read once."""
        return self.of(topic).groups()

    def change(self, topic: int, action: str, doc_ids: Sequence[str], judge: str = "") -> None:
        """Separate or join documents, as :class:`~haybale.review.TopicDuplicates` describes."""
        duplicates = self.of(topic)
        (duplicates.separate if action == "separate" else duplicates.join)(doc_ids, judge)

    def representatives(self, topic: Topic) -> Mapping[str, str] | None:
        """Return the representatives of the documents that are in groups; None before the reviews are prepared."""
        return self._of(topic).groups().representatives if self._reviews.is_ready else None
