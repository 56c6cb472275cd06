"""Which documents of a topic judges have open, so that no more judges read a document than it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from haybale.review import ReviewDocument

_OFFER_SECONDS = 600.0  # for which a document that one judge got is held from others
_LAST_OFFER_SECONDS = 120.0  # the same, if nothing else is left to judge


class _Offer(NamedTuple):
    """When a judge first got a document, and last asked for it, in seconds of the clock."""

    since: float
    renewed: float


class Offers:
    """The documents of one topic that judges have open. Several threads may use it.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    n_places : callable
        Returns how many judges a document still needs, by its id and the judge who asks; 0 if this one has judged it.
    """

    def __init__(self, clock: Callable[[], float], n_places: Callable[[str, str], int]) -> None:
        self._clock, self._n_places = clock, n_places
        self._offers: dict[tuple[str, str], _Offer] = {}  # by document and judge
        self._lock = threading.RLock()

    def next(self, n: int, judge: str, propose: Callable[[int], list[ReviewDocument]]) -> list[ReviewDocument]:
        """Return the first n proposed documents that other judges do not hold; if there are none, those held longest.

        ``propose`` returns so many documents that can be proposed to the judge, in their order.
        """
        with self._lock:  # so that two judges who ask at once get different documents
            now = self._clock()
            self._forget(now)
            held = self._held(judge)
            proposed = propose(n + len(held))
            chosen = [document for document in proposed if document.doc_id not in held][:n]
            if not chosen:
                late = [document for document in proposed if now - held[document.doc_id] >= _LAST_OFFER_SECONDS]
                chosen = sorted(late, key=lambda document: held[document.doc_id])[:n]
            for document in chosen:
                self._take_over(document.doc_id, judge)
                before = self._offers.get((document.doc_id, judge))
                self._offers[document.doc_id, judge] = _Offer(now if before is None else before.since, now)
            return chosen

    def _take_over(self, doc_id: str, judge: str) -> None:
        """Forget the oldest offers of a document, so that there is a place for a judge."""
        holders = [holder for offered, holder in self._offers if offered == doc_id and holder != judge]
        holders.sort(key=lambda holder: self._offers[doc_id, holder].since)
        for holder in holders[: max(0, len(holders) - self._n_places(doc_id, judge) + 1)]:
            del self._offers[doc_id, holder]

    def n_held(self, judge: str) -> int:
        """Return the number of documents that the judge could judge, and that others hold."""
        with self._lock:
            self._forget(self._clock())
            return len(self._held(judge))

    @property
    def n_open(self) -> int:
        """The number of documents that judges have open."""
        with self._lock:
            self._forget(self._clock())
            return len(self._offers)

    def withdraw(self, doc_id: str, judge: str) -> None:
        """Forget that a judge holds a document; if it needs nobody else, forget that anybody does."""
        with self._lock:
            self._offers.pop((doc_id, judge), None)
            for holder in [name for offered, name in self._offers if offered == doc_id]:
                if not self._n_places(doc_id, holder):
                    del self._offers[doc_id, holder]

    def _held(self, judge: str) -> dict[str, float]:
        """Return the documents that a judge does not get, because enough others hold them, and since when."""
        held, since = dict[str, float](), dict[str, list[float]]()
        for (doc_id, holder), offer in self._offers.items():
            if holder != judge:
                since.setdefault(doc_id, []).append(offer.since)
        for doc_id, times in since.items():
            n_places = self._n_places(doc_id, judge)
            if 0 < n_places <= len(times):
                held[doc_id] = min(times)
        return held

    def _forget(self, now: float) -> None:
        """Forget offers that are too old."""
        old = [key for key, offer in self._offers.items() if now - offer.renewed >= _OFFER_SECONDS]
        for key in old:
            del self._offers[key]
