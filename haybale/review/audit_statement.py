"""What an audit certifies, as a file: what was drawn, when, by which seed, and the bound after every draw."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haybale.errors import InputError
from haybale.folders import check_file, replaced
from haybale.review.audit_log import AuditSettings
from haybale.review.betting import FRACTIONS, SWITCHED, WEIGHTS, BettingTest
from haybale.review.draws import most_total
from haybale.review.judgement_store import Topic
from haybale.versions import __version__

if TYPE_CHECKING:
    from haybale.review.topic_ranking import TopicRanking

FORMAT = 1  # of the JSON file


@dataclass(frozen=True)
class AuditedDocument:
    """A document that was judged or drawn, in the order in which this first happened.

    Parameters
    ----------
    doc_id : str
    position : int
        Its position, from 0, among the sorted ids of all documents.
    draw : int
        The number of the draw, from 1; 0 if it was not drawn.
    relevant : bool or None
        Whether it is relevant, as the judgements say now; None if it is not judged.
    judges : list of str
        Who has judged it; the judge who judged last is last.
    time : str
        When it was drawn, or first judged: ISO 8601, in UTC.
    """

    doc_id: str
    position: int
    draw: int
    relevant: bool | None
    judges: list[str]
    time: str


@dataclass(frozen=True)
class Look:
    """The bound after some draws, with the judgements of today.

    Parameters
    ----------
    n_draws : int
        Number of draws that count.
    n_found, n_unread : int
        Number of relevant documents among those that were judged by then, and of documents that were not judged.
    largest_total : int
        The largest number of relevant documents that the draws do not exclude.
    low : float
        ``n_found / largest_total``: the recall is at least this.
    """

    n_draws: int
    n_found: int
    n_unread: int
    largest_total: int
    low: float

    @classmethod
    def of(cls, test: BettingTest, n_draws: int, n_found: int, n_unread: int) -> Look:
        """Return the bound that a test gives."""
        total = test.largest_total(n_found, n_unread)
        return cls(n_draws, n_found, n_unread, total, n_found / total if total else 0.0)


@dataclass(frozen=True)
class AuditStatement:
    """What an audit certifies, and all that is needed to compute it anew.

    Parameters
    ----------
    topic, text : str
        The name of the topic, and what is looked for.
    collection : str
        The name of the collection.
    settings : AuditSettings
    earlier : list of str
        When earlier audits of the topic were begun; each has its own probability of being wrong.
    judgements : list of AuditedDocument
        All documents that were judged or drawn, in order.
    looks : list of Look
        The bound after each draw that counts.
    bound : Look
        The bound now.
    gap : str
        Why later draws, or all, do not count; empty if all judged draws count.
    """

    topic: str
    text: str
    collection: str
    settings: AuditSettings
    earlier: list[str]
    judgements: list[AuditedDocument]
    looks: list[Look]
    bound: Look
    gap: str

    @classmethod
    def of(
        cls, topic: Topic, ranking: TopicRanking, settings: AuditSettings, audits: list[AuditSettings]
    ) -> AuditStatement:
        """Return the statement about an audit of a topic; ``audits`` are all that were begun."""
        log, state = ranking.audit_log, ranking.state
        positions = {int(number): position for position, number in enumerate(ranking.in_id_order.tolist())}
        drawn = {doc_id: number for number, doc_id in enumerate(log.drawn(settings.number), 1)}
        labels: list[bool | None] = [None if label < 0 else bool(label) for label in log.labels.tolist()]
        judgements = [
            AuditedDocument(
                doc_id, positions[ranking.number(doc_id) or 0], drawn.get(doc_id, 0), label, [*state.grades(doc_id)],
                log.taken[doc_id].row.time,
            )
            for doc_id, label in zip(log.taken, labels, strict=True)
        ]  # fmt: skip
        looks, bound = _looks(judgements if not ranking.audit_gap else [], settings, judgements)
        gap = ranking.screening().draws.gap
        earlier = [audit.time for audit in audits if audit.number != settings.number]
        name = ranking.collection.name
        return cls(topic.name, topic.text, name, settings, earlier, judgements, looks, bound, gap)

    @property
    def is_reached(self) -> bool:
        """Whether the bound is at least the target."""
        return 0 < self.bound.largest_total <= most_total(self.bound.n_found, self.settings.target)

    @property
    def sentence(self) -> str:
        """What is certified, in a sentence."""
        if not self.looks:
            return f"Nothing is certified: {self.gap or 'no document that was drawn has been judged'}."
        return (
            f"At least {floored_percent(self.bound.low)} of the relevant documents were found, with "
            f"{100 * self.settings.confidence:g} % confidence."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "format": FORMAT,
            "haybale": __version__,
            "statement": self.sentence,
            "topic": self.topic,
            "text": self.text,
            "collection": self.collection,
            "n_documents": self.settings.n_documents,
            "documents": self.settings.documents,
            "target": self.settings.target,
            "confidence": self.settings.confidence,
            "seed": self.settings.seed,
            "begun": self.settings.time,
            "begun_by": self.settings.judge,
            "earlier_audits": self.earlier,
            "fractions": list(FRACTIONS),
            "weights": list(WEIGHTS),
            "switched": SWITCHED,
            "judgements": [asdict(document) for document in self.judgements],
            "looks": [asdict(look) for look in self.looks],
            "bound": asdict(self.bound),
            "gap": self.gap,
        }

    def to_json(self) -> str:
        """Return all as JSON, which the program of :meth:`check_program` reads."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    def to_html(self) -> str:
        """Return one self-contained page, for reading and printing. Needs the extra ``reports``."""
        from haybale.reports.page import render_page

        drawn = [document for document in self.judgements if document.draw]
        rows = [(drawn[look.n_draws - 1], look) for look in self.looks]
        head = [
            ("topic", self.topic),
            ("collection", self.collection),
            ("documents", f"{self.settings.n_documents:,}"),
            ("begun", f"{self.settings.time[:16].replace('T', ' ')} UTC"),
            ("by", self.settings.judge or "nobody was named"),
            ("seed", str(self.settings.seed)),
            ("target", f"recall {self.settings.target:g}"),
            ("confidence", f"{self.settings.confidence:g}"),
        ]
        content = {"statement": self, "rows": rows, "n_drawn": len(drawn), "program": check_program(), "head": head}
        return render_page(files("haybale.review") / "audit_statement.html", content)

    def write(self, path: str | Path) -> None:
        """Write the statement to a file that ends in ``.html`` or ``.json``; an existing one is replaced.

        Raises
        ------
        InputError
            If the file ends otherwise.
        """
        path = Path(path)
        if path.suffix not in (".html", ".json"):
            raise InputError(f"expected a file that ends in .html or .json, found {path.name!r}; choose another name")
        check_file(path)
        text = self.to_html() if path.suffix == ".html" else self.to_json()
        with replaced(path) as aside:
            aside.write_text(text, encoding="utf-8")


def check_program() -> str:
    """Return a program in plain Python that computes draws and bound from the JSON file of a statement."""
    return (files("haybale.review") / "audit_check.txt").read_text(encoding="utf-8")


def floored_percent(share: float) -> str:
    """Return a share in per cent, rounded down, so that a bound is not overstated.

    >>> floored_percent(0.8499)
    '84 %'
    """
    return f"{int(100 * share + 1e-9)} %"


def _looks(
    counting: list[AuditedDocument], settings: AuditSettings, judgements: list[AuditedDocument]
) -> tuple[list[Look], Look]:
    """Return the bound after each draw of the documents that count, and now."""
    test, looks, n_found = BettingTest(settings.n_documents, settings.confidence), list[Look](), 0
    for n_taken, document in enumerate(counting):
        if document.relevant is None:
            break
        n_unread = settings.n_documents - n_taken
        if document.draw:
            test.draw(document.relevant, n_found, n_unread)
        n_found += document.relevant
        if document.draw:
            looks.append(Look.of(test, len(looks) + 1, n_found, n_unread - 1))
    judged = [document.relevant for document in judgements if document.relevant is not None]
    return looks, Look.of(test, len(looks), sum(judged), settings.n_documents - len(judged))
