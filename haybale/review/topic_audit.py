"""The audit of a review: begin it, draw documents for it, and say what it certifies."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from haybale.errors import InputError
from haybale.parameters import FROM_0, check_parameters
from haybale.review.audit_log import AUDIT, AuditSettings, audits_of, draw_details
from haybale.review.draws import draw_position
from haybale.review.judgement_store import Judgement, JudgementStore, Topic
from haybale.review.stopping.audit import Audit
from haybale.review.topic_ranking import Proposal, TopicRanking, with_digest

if TYPE_CHECKING:
    from haybale.review.audit_statement import AuditStatement

_SEED_BITS = 53  # every reader of JSON has such a number whole


class TopicAudit:
    """The audit of a review, by which :class:`~haybale.review.Audit` bounds the recall at every look.

    From some point on, the review proposes documents that are drawn at random from all that nobody has judged. A draw
    is in the store before it is shown, so that nobody can repeat it. A draw that was skipped, or whose judgement was
    taken back, stops the count of draws until it is judged; :meth:`Review.next` proposes it again. Judgements may be
    changed: the bound is computed from those of today, and takes them to be the same whether a document was drawn or
    not. A group of duplicates counts as one document, and a document that waits for a second judge as not judged. If
    documents are added, removed, replaced or grouped, the draws certify nothing about the documents that there are now,
    and another audit must be begun.

    Parameters
    ----------
    store : JudgementStore
    topic : Topic
    synced : callable
        Returns the ranking of the topic, with all rows of the store.
    lock : context manager
        Held while the audit is begun, drawn for or stated.
    """

    def __init__(
        self,
        store: JudgementStore,
        topic: Topic,
        synced: Callable[[], TopicRanking],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._store, self._topic, self._synced, self._lock = store, topic, synced, lock

    def begin(
        self, target: float = 0.8, confidence: float = 0.95, *, seed: int | None = None, judge: str = ""
    ) -> AuditSettings:
        """Begin an audit. What was judged before counts as found; draws of an earlier audit do not count as draws.

        Parameters
        ----------
        target : float, default 0.8
            The share of the relevant documents to find. It decides when documents are drawn.
        confidence : float, default 0.95
            The probability with which no bound that is ever shown exceeds the recall.
        seed : int, optional
            The seed of the draws, such as one that was thrown with dice before witnesses. Default: a random number of
            the operating system. The store keeps it.
        judge : str, default ""
            Who begins it.

        Raises
        ------
        InputError
            If a parameter is out of range.
        """
        check_parameters("begin", {"seed": seed, "judge": judge}, {"seed": [*FROM_0, None], "judge": [str]})
        rule = Audit(target, confidence)
        with self._lock:
            ranking = self._synced()
            value = {
                "target": rule.target,
                "confidence": rule.confidence,
                "seed": secrets.randbits(_SEED_BITS) if seed is None else int(seed),
                "n_documents": int(ranking.has_passage.sum()),
                "documents": ranking.documents_digest,
                "version": ranking.documents_version,
            }
            self._store.record(self._topic, AUDIT, value, judge)
            settings = self.settings
        assert settings is not None
        return settings

    @property
    def settings(self) -> AuditSettings | None:
        """The settings of the audit that was begun last; None if none was."""
        audits = self.all_settings()
        return audits[-1] if audits else None

    def all_settings(self) -> list[AuditSettings]:
        """Return the settings of all audits of the topic, in the order in which they were begun."""
        return audits_of(self._store.events(self._topic, AUDIT))

    def statement(self) -> AuditStatement:
        """Return what was drawn and judged, and the bound after every draw, as a file that others can check.

        Raises
        ------
        InputError
            If no audit was begun.
        """
        from haybale.review.audit_statement import AuditStatement

        with self._lock:
            ranking, settings = self._synced(), self.settings
            if settings is None:
                raise InputError("a statement needs an audit, found none; call audit.begin() and judge what is drawn")
            return AuditStatement.of(self._topic, ranking, settings, self.all_settings())

    def draw(self, n: int) -> list[Proposal]:
        """Draw up to n documents while draws are due, and return them. A draw is on disk when this returns."""
        proposals: list[Proposal] = []
        while len(proposals) < n:
            ranking = self._synced()
            settings, log = ranking.audit, ranking.audit_log
            if settings is None or ranking.audit_gap or not log.is_due(settings):
                break
            if len(log.taken) == settings.n_documents:
                break
            drawn, number = _drawn(ranking, settings)
            if self._store.add(self._topic, with_digest(drawn, ranking.snapshot), last=ranking.state.last):
                proposals.append(Proposal(number, None, AUDIT))
        return proposals


def _drawn(ranking: TopicRanking, settings: AuditSettings) -> tuple[Judgement, int]:
    """Return the row of the next draw, and the number of the document."""
    log, order = ranking.audit_log, ranking.in_id_order
    which = len(log.drawn(settings.number)) + 1
    position = draw_position(settings.seed, which, len(order), lambda i: ranking.doc_id(int(order[i])) in log.taken)
    number = int(order[position])
    details = draw_details(settings, which, position, settings.n_documents - len(log.taken))
    return Judgement(ranking.doc_id(number), "drawn", model=AUDIT, details=details), number
