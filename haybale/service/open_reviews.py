"""The reviews of a workspace, which go on with the documents that they had until new ones are prepared for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from haybale.engine import Engine
from haybale.errors import HaybaleError, InputError
from haybale.review import JudgementStore, Review, Topic, TopicFeatures
from haybale.review.reattachment import ensure_attached
from haybale.review.topic_lifecycle import topic_status
from haybale.service.released_memory import trim_memory

MAX_WAIT_SECONDS = 1.5  # for a review to open, until a page says that it is being opened


class OpenReviews:
    """The review of each topic, on a snapshot of the engine whose features were made before.

    Making the features of many documents takes long (about 20 seconds for 150,000 passages), and a review that finds
    other documents makes them anew. So that no judge waits for that, :meth:`prepare` makes them in another thread, and
    then gives each review to the new snapshot. Several threads may use the reviews.

    Parameters
    ----------
    engine : Engine
        Its documents may change.
    store : JudgementStore
    """

    def __init__(self, engine: Engine, store: JudgementStore) -> None:
        self.engine, self.store = engine, store
        self._lock, self._preparing = threading.Lock(), threading.Lock()
        self._reviews: dict[int, Review] = {}
        self._of: Engine | None = None  # the snapshot of the engine that was prepared last
        self._snapshot: Engine | None = None  # a copy of that snapshot with its own locks, for the reviews
        self._opening: dict[int, threading.Thread] = {}
        self._work = ""  # what prepare() is doing

    @property
    def is_ready(self) -> bool:
        """Whether a review can begin without waiting."""
        return self._snapshot is not None

    def wait_until_ready(self) -> bool:
        """Return whether a review can begin, after at most :data:`MAX_WAIT_SECONDS` in which reviews are prepared."""
        if not self.is_ready:
            thread = threading.Thread(target=self._prepare, daemon=True)
            thread.start()
            thread.join(MAX_WAIT_SECONDS)
        return self.is_ready

    def _prepare(self) -> None:
        with suppress(HaybaleError, OSError):  # whoever opens a review gets the error
            self.prepare()

    @property
    def is_at_work(self) -> bool:
        """Whether documents are being prepared for reviews, or a review is being opened."""
        with self._lock:
            return self._preparing.locked() or any(thread.is_alive() for thread in self._opening.values())

    @property
    def snapshot(self) -> Engine:
        """The documents that reviews use; they are prepared first if none were."""
        if self._snapshot is None:
            self.prepare()
        assert self._snapshot is not None
        return self._snapshot

    def get(self, topic: Topic) -> Review:
        """Return the review of a topic of the store."""
        review = self._reviews.get(topic.number)
        return review or self._keep(self._opened(self.snapshot, topic))

    def _opened(self, snapshot: Engine, topic: Topic) -> Review:
        """Open the review of a topic, which may have got another name, on a snapshot."""
        return Review(snapshot, topic=self.store.current(topic).name, judgements=self.store)

    def opening(self, topic: Topic) -> str | None:
        """Return what is still to be done until the review of a topic is open; None if it is.

        A review that is not open is opened by a thread, for which this waits at most :data:`MAX_WAIT_SECONDS`. If that
        thread has met an error, None is returned, and :meth:`get` raises the error.
        """
        with self._lock:
            thread = self._opening.get(topic.number)
            if topic.number not in self._reviews and thread is None:
                thread = threading.Thread(target=self._open, args=(topic,), daemon=True)
                self._opening[topic.number] = thread
                thread.start()
        if thread is None:
            return None
        thread.join(MAX_WAIT_SECONDS)
        if thread.is_alive():
            return self._work or "learning from the judgements of this topic"
        with self._lock:
            self._opening.pop(topic.number, None)
        return None

    def _open(self, topic: Topic) -> None:
        with suppress(HaybaleError, OSError):
            self.get(topic)

    def begin(self, text: str | None, name: str | None, known: Mapping[str, int]) -> Review:
        """Add a topic, or find the one of that name, and return its review.

        InputError is raised for the name of a topic that was deleted.
        """
        called = (name or text or "").strip()
        stored_topic = next((topic for topic in self.store.topics() if topic.name == called), None)
        if stored_topic is not None and topic_status(self.store, stored_topic).is_deleted:
            raise InputError(
                f"the name of a topic must not be that of a deleted one, found {called!r:.100}; restore it"
            )
        return self._keep(Review(self.snapshot, text, topic=name, known=known, judgements=self.store))

    def _keep(self, review: Review) -> Review:
        with self._lock:
            return self._reviews.setdefault(review.topic.number, review)

    def prepare(self) -> bool:
        """Let reviews go on with the documents that the engine has now; return whether these have changed."""
        with self._preparing:
            latest = self.engine.snapshot()
            if latest is self._of:
                return False
            snapshot = latest.independent()
            try:
                self._work = f"finding duplicates among {snapshot.collection.n_documents:,} documents"
                snapshot.duplicates()
                self._work = f"counting the words of {snapshot.collection.n_passages:,} passages"
                TopicFeatures.of(snapshot)
                self._work = "looking for the texts that were judged"
                ensure_attached(self.store, snapshot)  # also for topics without an open review
                trim_memory()  # since counting words has taken, and freed, as much again as it keeps
            finally:
                self._work = ""
            self._of, self._snapshot = latest, snapshot  # reviews that begin from now on use these
            for number, review in list(self._reviews.items()):
                if review.engine is not snapshot:
                    fresh = self._opened(snapshot, review.topic)
                    fresh.next()  # learns what was judged
                    with self._lock:
                        fresh.remember(review)
                        self._reviews[number] = fresh
            return True
