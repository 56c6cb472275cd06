"""What the log of a matter says about each action, and which actions it leaves out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from haybale.engine.reattaching import digest_of
from haybale.rankers import Ranker
from haybale.review import Topic
from haybale.review.judgement_store import Judgement
from haybale.service.acting_user import acting_user
from haybale.service.document_list import DocumentList
from haybale.service.matter_log import MatterLog
from haybale.service.matter_store import MatterFile
from haybale.service.ranker_on_documents import digest_of_ranker

MAX_LOGGED = 100  # hits, or rows, that a line names
_SAME_SECONDS = 60.0  # within which an opening of the same thing by the same user is not logged again
_MAX_REMEMBERED = 1000  # openings
_AUTOMATIC = ("drawn", "reached")  # kinds of rows that no judge decides on


class LoggedActions:
    """Writes lines about searches, openings, judgements, exports and trainings, if the log is on.

    Parameters
    ----------
    log : MatterLog
    file : MatterFile
    ranker : callable
        Returns a ranker by its name.
    """

    def __init__(self, log: MatterLog, file: MatterFile, ranker: Callable[[str], Ranker]) -> None:
        self._log, self._file, self._ranker = log, file, ranker
        self._lock, self._digest_lock = threading.Lock(), threading.Lock()
        self._digests: dict[str, tuple[Ranker, str]] = {}  # by the names of rankers
        self._opened: dict[tuple[Any, ...], float] = {}  # when something was opened, by time.monotonic

    def documents(self) -> str:
        """Return the digest of the documents that the engine has now, which are kept; empty if the log is off."""
        if not self._log.is_on:
            return ""
        return self._file.store.keep_state(self._file.states.state(self._file.engine.snapshot()))

    def digest_of(self, name: str) -> str:
        """Return the digest of a ranker (:func:`~haybale.service.ranker_on_documents.digest_of_ranker`)."""
        ranker = self._ranker(name)
        with self._digest_lock:
            if name not in self._digests or self._digests[name][0] is not ranker:
                self._digests[name] = ranker, digest_of_ranker(ranker)
            return self._digests[name][1]

    def searched(
        self, text: str, doc_ids: Sequence[str], ranker: str, documents: Sequence[str], judge: str = "", **more: Any
    ) -> None:
        """Log a search.

        Parameters
        ----------
        text : str
        doc_ids : sequence of str
            The hits, the best first.
        ranker : str
            The name of the ranker.
        documents : sequence of str
            The digest of the documents that were searched; or those before and after the search, from
            :meth:`documents`, which are empty if the log is off.
        judge : str, default ""
            Who searched, outside of requests.
        **more
            The other parameters of the search; those that are None are left out.
        """
        if not all(documents) or not self._log.is_on:
            return
        details = {
            "text": text,
            "ranker": ranker,
            "ranker_digest": self.digest_of(ranker),
            **{name: value for name, value in more.items() if value is not None},
            "n_hits": len(doc_ids),
            "hits": list(doc_ids[:MAX_LOGGED]),
            "documents": documents[-1],
        }
        if documents[0] != documents[-1]:  # they have changed meanwhile, and either may have been searched
            details["documents_before"] = documents[0]
        self._log.record("search", details, acting_user() or judge)

    def listed(self, where: str | None, order: tuple[str, bool], offset: int, listed: DocumentList) -> None:
        """Log a list of documents without a query."""
        if self._log.is_on:
            doc_ids = [document.doc_id for document in listed.documents[:MAX_LOGGED]]
            about = {"where": where, "sort": order[0], "descending": order[1], "offset": offset}
            self._log.record("list", {**about, "n_documents": listed.n_documents, "hits": doc_ids})

    def opened(self, doc_id: str, part: str, judge: str = "", **more: Any) -> None:
        """Log that a document, a page or its file was opened, with the digest of its text; once a minute."""
        if not self._log.is_on:
            return
        user, at = acting_user() or judge, time.monotonic()
        key = (user, doc_id, part, *sorted(more.items()))
        with self._lock:
            if at - self._opened.get(key, -_SAME_SECONDS) < _SAME_SECONDS:
                return
            self._opened[key] = at
            if len(self._opened) > _MAX_REMEMBERED:
                del self._opened[next(iter(self._opened))]
        whole = self._file.engine.snapshot().whole
        (number,) = whole.find_documents([doc_id]).tolist()
        text = digest_of(whole, number) if number >= 0 else None
        values = {name: value for name, value in more.items() if value is not None}
        self._log.record("open", {"doc_id": doc_id, "text": text, "part": part, **values}, user)

    def judged(self, topic: Topic, rows: Sequence[Judgement], numbers: Sequence[int]) -> None:
        """Log rows that were added to the judgements of a topic, except those that no judge decides on."""
        decided = [(row, number) for row, number in zip(rows, numbers, strict=True) if row.kind not in _AUTOMATIC]
        if not decided:
            return
        named = [
            {"row": number, "kind": row.kind, "doc_id": row.doc_id, "grade": row.grade, "judge": row.judge}
            for row, number in decided[:MAX_LOGGED]
        ]
        details = {"topic": topic.number, "name": topic.name, "n_rows": len(decided), "rows": named}
        self._log.record("judge", details, acting_user() or rows[0].judge)

    def exported(self, what: str, n: int | None = None, judge: str = "", **more: Any) -> None:
        """Log an export: what it is of, such as ``"topic 3"``, how long it is, and its parameters."""
        values = {"of": what, "size": n, **more}
        kept = {name: value for name, value in values.items() if value is not None}
        self._log.record("export", kept, acting_user() or judge)

    def trained(self, what: str, ranker: str | None = None, **more: Any) -> None:
        """Log that a training was started, or which ranker is the default since."""
        if self._log.is_on:
            named = {} if ranker is None else {"ranker": ranker, "ranker_digest": self.digest_of(ranker)}
            self._log.record("train", {"what": what, **more, **named})

    def mailed(self, number: int, name: str, address: str, doc_ids: Sequence[str], user: str) -> None:
        """Log that new hits of a saved search were mailed to an address, or listed by the feed of a user."""
        details = {"saved": number, "name": name, "to": address, "n_hits": len(doc_ids), "hits": list(doc_ids)}
        self._log.record("mail", details, user)
