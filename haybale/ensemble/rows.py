"""Candidate rows: what an SVR learns from, as index triples (query row, passage, label), never as features.

The paper's feature matrix of 5 034 360 × 1 536 numbers is 60 MB as triples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, placed, to_numpy
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.hits import NO_PASSAGE
from haybale.vectors import Matrix

Ints = NDArray[np.int64]
PROTOCOLS = ("end-to-end", "injected")


@dataclass(frozen=True)
class CandidateRows:
    """(n,) each, sorted by query: training pairs and whether the passage is relevant to the query.

    13 bytes a row. ``place`` is where the row stands in the flattened candidates, -1 if no search found it and it
    was added because it is relevant; without it, all rows count as found.
    """

    query: NDArray[np.int32]
    passage: NDArray[np.int32]
    label: NDArray[np.int8]
    place: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        for name in ("passage", "label", "place"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.query):
                raise InputError(f"candidate rows: {len(column)} numbers of {name} for {len(self.query)} of query")
        wrong = np.flatnonzero((self.label != 0) & (self.label != 1))
        if len(wrong):
            raise InputError(f"candidate rows: label must be 0 or 1, found {self.label[wrong[0]]} in row {wrong[0]}")
        if (self.query[1:] < self.query[:-1]).any():
            raise InputError("candidate rows must be sorted by query")

    def __len__(self) -> int:
        return len(self.query)

    def take(self, chosen: Ints) -> CandidateRows:
        """Some of the rows, which must stay sorted."""
        place = None if self.place is None else self.place[chosen]
        return CandidateRows(self.query[chosen], self.passage[chosen], self.label[chosen], place)


def candidate_rows(
    protocol: str, hits: Hits, relevant: tuple[Ints, Ints], index: PassageIndex, queries: Matrix
) -> CandidateRows:
    """Label the candidates of each query.

    ``hits`` (m, k) the candidates; ``relevant`` the relevant pairs as (query rows, document numbers);
    ``queries`` (m, d) their vectors, which decide what is nearest. Hits and vectors may be on a device; rows are NumPy.

    ``end-to-end``: a candidate is positive if its document is relevant; a relevant document that no candidate
    belongs to is represented by its passage nearest to the query.

    ``injected``, the protocol behind the 0.849 of Bönisch & Mehler 2024, as their code has it: every nearest
    passage is a negative, relevant or not, and the *last* passage of each relevant document is the positive.
    The label can be told from the position in the document, and the passage is there because of the label:
    good for repeating the paper's table, not for ranking.
    """
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    hits = hits.to_numpy()
    query, _, passage, _ = hits.flat()
    has_passages = np.diff(index.doc_offsets)[relevant[1]] > 0
    relevant_query, relevant_doc = relevant[0][has_passages], relevant[1][has_passages]
    if protocol == "injected":
        label = np.zeros(len(query), dtype=np.int8)
        added_query, added_passage = relevant_query, index.doc_offsets[relevant_doc + 1] - 1
    else:
        n_documents = len(index.doc_ids)
        found = query * n_documents + index.doc_of[passage]
        wanted = relevant_query * n_documents + relevant_doc
        label = np.isin(found, wanted).astype(np.int8)
        absent = ~np.isin(wanted, found)
        added_query = relevant_query[absent]
        added_passage = _nearest(index, queries, added_query, relevant_doc[absent])
    place = _places(hits, len(added_query))
    query = np.concatenate((query, added_query))
    passage = np.concatenate((passage, added_passage))
    label = np.concatenate((label, np.ones(len(added_query), dtype=np.int8)))
    if not len(query):
        raise InputError("no query has a candidate passage")
    order = np.argsort(query, kind="stable")
    return CandidateRows(query[order].astype(np.int32), passage[order].astype(np.int32), label[order], place[order])


def _places(hits: Hits, n_added: int) -> NDArray[np.int32]:
    """Where each row stands in the flattened candidates, -1 for those added."""
    found = np.flatnonzero(hits.passages.ravel() != NO_PASSAGE)
    return np.concatenate((found, np.full(n_added, -1))).astype(np.int32)


def _nearest(index: PassageIndex, queries: Matrix, rows: Ints, documents: Ints) -> Ints:
    """(n,) for each (query row, document) the document's passage nearest to the query."""
    where = device_of(index.vectors)
    nearest = np.empty(len(rows), dtype=np.int64)
    best = []
    with where.current():
        queries = placed(queries, where, "queries")
        for i, (row, document) in enumerate(zip(rows, documents, strict=True)):
            start, end = index.doc_offsets[document], index.doc_offsets[document + 1]
            passages = index.vectors[start:end]
            if where.is_cpu:
                wide = sparse.issparse(passages)
                similarity = (passages @ queries[row].T).toarray() if wide else passages @ queries[row]
                nearest[i] = start + int(np.argmax(similarity))
            else:
                best.append((passages.astype(np.float32) @ queries[int(row)]).argmax())
        if best:  # fetched together: each alone would wait for the device
            nearest = index.doc_offsets[documents] + to_numpy(where.xp.stack(best))
    return nearest
