"""Twins: training queries that are the same question under several ids, from which rankers learn as from one query.

A query log holds popular questions many times. If each copy counted, they would outweigh others in every loss, fill the
nearest neighbours, and make each other look answered. So twins are one training query, with the documents of all.

Two queries are twins if they have the same words, or if they differ in few words and share a relevant document. Queries
that were taken from different documents are not, because their rankings exclude different documents; those that are
nearly the same only share a group (:mod:`~haybale.collections.query_groups`). So do similar queries that a chain of
twins links, unless the chain is so long that no fold could leave it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from haybale.collections.query_groups import have_other_numbers, joined_groups, term_counts
from haybale.retrieval.hits import Ints
from haybale.search.query_batch import QueryBatch
from haybale.vectors import normalized_sparse

SIMILAR = 0.88  # the least cosine of the term counts of twins; a question of four terms with a fifth one has .894
LIKE_FIRST = 0.7  # the least cosine of a twin and the query that stands for it
MIN_CHAIN = 10  # queries of a group, after twins are merged, that may be a chain


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
        return {
            "twins": dict(self.representatives),
            "contradictions": [list(contradiction) for contradiction in self.contradictions],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Twins:
        """Read what :meth:`to_dict` returned; none without twins."""
        contradictions = [Contradiction(*map(str, saved)) for saved in values.get("contradictions", ())]
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
        The queries (m,). Those that are twins, or nearly, share a group of the batch then.
    relevant, irrelevant : (m,) list of list of str
        The ids of the documents that each query judges relevant and irrelevant.
    """
    if len(pairs := _similar_pairs(batch, relevant)):
        batch.groups = joined_groups(batch.groups, pairs=pairs)
    members, contradictions = _members(batch, relevant), list[Contradiction]()
    twins_of = {rows[0]: rows for rows in members if len(rows) > 1}
    merged = [list(ids) for ids in relevant]
    for row, rows in twins_of.items():
        merged[row] = _merged(batch.ids, rows, relevant, irrelevant, contradictions)
    stay = np.sort(np.array([rows[0] for rows in members], dtype=np.int64))
    representatives = {batch.ids[twin]: batch.ids[row] for row, rows in twins_of.items() for twin in rows[1:]}
    return stay, [merged[row] for row in stay.tolist()], Twins(representatives, contradictions)


def without_chains(batch: QueryBatch) -> Ints:
    """Return the groups (m,) of merged queries; those of a long chain share one only if they share words or a document.

    A chain of similar queries can link questions that have nothing in common. One that is longer than a fold leaves
    folds and bags without queries to learn from.
    """
    groups = batch.groups
    is_long = np.bincount(groups, minlength=1) > max(MIN_CHAIN, len(batch) / 5)
    if not is_long.any():
        return groups
    strict = batch.queries.groups_by_document_id(batch.engine.collection.doc_ids)
    separated: Ints = np.unique(np.where(is_long[groups], strict + len(groups), groups), return_inverse=True)[1]
    return separated


def _similar_pairs(batch: QueryBatch, relevant: Sequence[Sequence[str]]) -> Ints:
    """Return the pairs (n, 2) of similar queries that share a relevant document and may be from the same document."""
    words, pairs = batch.queries.same_words, batch.near_pairs(SIMILAR)
    if not len(pairs):
        return pairs
    documents, own_documents = {word: set[str]() for word in words[pairs].ravel().tolist()}, dict[int, set[int]]()
    for word, ids, number in zip(words.tolist(), relevant, batch.own.tolist(), strict=True):
        if word in documents:
            documents[word].update(ids)
            own_documents.setdefault(word, set()).add(number)
    may_be_twins = [
        not documents[one].isdisjoint(documents[other])
        and bool(-1 in own_documents[one] | own_documents[other] or own_documents[one] & own_documents[other])
        for one, other in words[pairs].tolist()
    ]
    candidate_pairs: Ints = pairs[np.array(may_be_twins)]
    return candidate_pairs


def _members(batch: QueryBatch, relevant: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return the rows of each set of twins, the row that stands for them first.

    In each group, the first query takes its twins, then the first of those that remain, and so on. So all twins are
    similar to the one that stands for them, however long a chain links them.
    """
    groups, words, own_documents, numbers = batch.groups, batch.queries.same_words, batch.own, batch.numbers
    order = np.array(
        sorted(range(len(batch)), key=lambda row: (own_documents[row] < 0, batch.ids[row])), dtype=np.int64
    )
    order = order[np.argsort(groups[order], kind="stable")]
    members = []
    for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        if len(rows) < 2:
            members += [[row] for row in rows.tolist()]
            continue
        counts = normalized_sparse(batch.term_counts[rows])
        documents = term_counts(_numbered([relevant[row] for row in rows.tolist()]))
        left = np.arange(len(rows))
        while len(left):
            first = left[0]
            cosines = (counts[left] @ counts[first].T).toarray()[:, 0]
            shares = (documents[left] @ documents[first].T).toarray()[:, 0] > 0
            shares &= [not have_other_numbers(numbers[row], numbers[rows[first]]) for row in rows[left].tolist()]
            is_twin = (words[rows[left]] == words[rows[first]]) | (shares & (cosines >= LIKE_FIRST))
            is_twin &= np.isin(own_documents[rows[left]], [-1, own_documents[rows[first]]])
            members.append(rows[left[is_twin]].tolist())
            left = left[~is_twin]
    return members


def _numbered(ids: Sequence[Sequence[str]]) -> list[list[int]]:
    numbers: dict[str, int] = {}
    return [[numbers.setdefault(name, len(numbers)) for name in names] for names in ids]


def _merged(
    ids: Sequence[str],
    rows: Sequence[int],
    relevant: Sequence[Sequence[str]],
    irrelevant: Sequence[Sequence[str]],
    contradictions: list[Contradiction],
) -> list[str]:
    """Return the relevant documents of twins, and add what they judge differently to ``contradictions``."""
    in_favour = Counter(document for row in rows for document in dict.fromkeys(relevant[row]))
    against = Counter(document for row in rows for document in dict.fromkeys(irrelevant[row]))
    for document in sorted(in_favour.keys() & against.keys()):
        one, other = (next(ids[row] for row in rows if document in judged[row]) for judged in (relevant, irrelevant))
        contradictions.append(Contradiction(one, other, document))
    return [document for document, n in in_favour.items() if n >= against[document]]
