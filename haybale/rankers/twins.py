"""Twins: training queries that are the same question under several ids, from which rankers learn as from one query.

A query log holds popular questions many times. If each copy counted, they would outweigh others in every loss, fill the
nearest neighbours, and make each other look answered. So twins are one training query, with the documents of all.

Two queries are twins if they have the same words, or if they are nearly the same
(:mod:`~haybale.collections.query_groups`) and share a relevant document. Queries that were taken from different documents
are not, because their rankings exclude different documents; they only share a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from haybale.rankers.query_batch import QueryBatch
from haybale.retrieval.hits import Ints


class ContradictoryTwinsWarning(UserWarning):
    """Twins judge the same document differently; the message says how many, and how such judgements count."""


class Contradiction(NamedTuple):
    """A document that some twins judge relevant and others not."""

    relevant: str  # the id of a query that judges the document relevant
    irrelevant: str  # the id of a query that does not
    document: str


@dataclass(frozen=True, eq=False)
class Twins:
    """Which training queries are twins of which.

    Attributes
    ----------
    representatives : dict of str to str
        For the id of each query that is not learned from itself, the id of the twin that stands for it.
    contradictions : list of Contradiction
        One for each document about which twins disagree.
    """

    representatives: Mapping[str, str] = field(default_factory=dict)
    contradictions: Sequence[Contradiction] = ()

    def representative(self, query_id: str) -> str:
        """Return the id of the query that stands for a query in training, the query's own id if it has no twin."""
        return self.representatives.get(query_id, query_id)

    def with_twins(self, query_ids: frozenset[str] | set[str]) -> frozenset[str]:
        """Return the ids with those of all of their twins."""
        if not self.representatives or not query_ids:
            return frozenset(query_ids)
        of_ids = {self.representative(query) for query in query_ids}
        twins = (query for query, other in self.representatives.items() if other in of_ids)
        return frozenset(query_ids).union(of_ids, twins)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which :meth:`from_dict` reads; none without twins."""
        if not self.representatives:
            return {}
        return {"twins": dict(self.representatives), "contradictions": [list(each) for each in self.contradictions]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Twins:
        """Read what :meth:`to_dict` returned; rankers of earlier builds have no twins."""
        contradictions = [Contradiction(*map(str, each)) for each in values.get("contradictions", ())]
        return cls({str(twin): str(query) for twin, query in values.get("twins", {}).items()}, contradictions)

    @property
    def report(self) -> dict[str, Any]:
        """The number of twins and of contradictions with an example, for a fit report; empty without twins."""
        if not self.representatives:
            return {}
        report: dict[str, Any] = {"twins of training queries": len(self.representatives)}
        if self.contradictions:
            report["documents that twins judge differently"] = len(self.contradictions)
            report["the first of them"] = self.contradictions[0]._asdict()
        return report


def merged_twins(
    batch: QueryBatch, relevant: Sequence[Sequence[str]], irrelevant: Sequence[Sequence[str]]
) -> tuple[Ints, list[list[str]], Twins]:
    """Merge twins, and return the rows that stay, their relevant documents, and which query stands for which.

    The query with the smallest id stands for its twins; among them, one that was taken from a document comes before
    others. All documents that a twin judges relevant are relevant. Of a document that others judge irrelevant, the
    majority decides; it is relevant if there are as many of both.

    Parameters
    ----------
    batch : QueryBatch
        The queries (m,).
    relevant, irrelevant : (m,) list of list of str
        The ids of the documents that each query judges relevant and irrelevant.
    """
    members, contradictions = _members(batch, relevant), list[Contradiction]()
    twins_of = {rows[0]: rows for rows in members if len(rows) > 1}
    merged = [list(ids) for ids in relevant]
    for row, rows in twins_of.items():
        merged[row] = _merged(batch.ids, rows, relevant, irrelevant, contradictions)
    stay = np.sort(np.array([rows[0] for rows in members], dtype=np.int64))
    representatives = {batch.ids[twin]: batch.ids[row] for row, rows in twins_of.items() for twin in rows[1:]}
    return stay, [merged[row] for row in stay.tolist()], Twins(representatives, contradictions)


def _members(batch: QueryBatch, relevant: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return the rows of each set of twins, the row that stands for them first."""
    ids, own, words = batch.ids, batch.own.tolist(), batch.queries.same_words.tolist()
    order = sorted(range(len(ids)), key=lambda row: (own[row] < 0, ids[row]))
    near = _neighbours(batch)
    members: dict[int, list[int]] = {}
    by_words: dict[int, list[int]] = {}  # the rows that stand for others, by their words
    for row in order:
        documents = set(relevant[row])
        leaders = by_words.setdefault(words[row], [])
        others = [leader for number in near.get(words[row], ()) for leader in by_words.get(number, ())]
        candidates = [*leaders, *sorted(other for other in others if not documents.isdisjoint(relevant[other]))]
        leader = next((each for each in candidates if own[row] in (-1, own[each])), None)
        if leader is None:
            leaders.append(row)
            members[row] = []
        members[row if leader is None else leader].append(row)
    return list(members.values())


def _neighbours(batch: QueryBatch) -> dict[int, list[int]]:
    """Return the numbers of the words of queries that are nearly the same, by the number of the words of a query."""
    words, near = batch.queries.same_words, dict[int, list[int]]()
    for one, other in words[batch.near_pairs].tolist():
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    return near


def _merged(
    ids: Sequence[str],
    rows: Sequence[int],
    relevant: Sequence[Sequence[str]],
    irrelevant: Sequence[Sequence[str]],
    contradictions: list[Contradiction],
) -> list[str]:
    """Return the relevant documents of twins, and add what they contradict each other about."""
    in_favour = Counter(document for row in rows for document in dict.fromkeys(relevant[row]))
    against = Counter(document for row in rows for document in dict.fromkeys(irrelevant[row]))
    for document in sorted(in_favour.keys() & against.keys()):
        one, other = (next(ids[row] for row in rows if document in judged[row]) for judged in (relevant, irrelevant))
        contradictions.append(Contradiction(one, other, document))
    return [document for document, n in in_favour.items() if n >= against[document]]
