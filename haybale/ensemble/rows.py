"""Candidate rows: what an SVR learns from, as index triples (query row, passage, label), never as features.

The paper's feature matrix of 5 034 360 × 1 536 numbers is 60 MB as triples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haybale.device import device_of, is_sparse, placed, to_numpy
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.hits import NO_PASSAGE
from haybale.retrieval.passages import Exclude
from haybale.vectors import Matrix

Ints = NDArray[np.int64]
PROTOCOLS = ("end-to-end", "injected")


@dataclass(frozen=True)
class CandidateRows:
    """(n,) each, sorted by query: training pairs and whether the passage is relevant to the query; 13 bytes a row.

    ``place`` is where the row stands in the flattened candidates, -1 if no search found it and it was added because it
    is relevant; without it, all rows count as found.
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
    protocol: str,
    hits: Hits,
    relevant: Sequence[Sequence[str]],
    index: PassageIndex,
    queries: Matrix,
    exclude: Exclude | None = None,
) -> CandidateRows:
    """Label the candidates of each query.

    ``end-to-end``: a candidate is positive if its document is relevant; a relevant document that no candidate
    belongs to is represented by its passage nearest to the query.

    ``injected``, the protocol behind the 0.849 of Bönisch & Mehler 2024, as their code has it: every nearest
    passage is a negative, relevant or not, and the *last* passage of each relevant document is the positive.
    The label can be told from the position in the document, and the passage is there because of the label:
    good for repeating the paper's table, not for ranking.

    Parameters
    ----------
    protocol : {"end-to-end", "injected"}
    hits : Hits (m, k)
        The candidates; these and the vectors may be on a device.
    relevant : list of list of str
        The ids of each query's relevant documents.
    index : PassageIndex
    queries : (m, d)
        The queries' vectors, which decide what is nearest.
    exclude : optional
        Each query's own document, by id or number, which is no positive.
    """
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    hits = hits.to_numpy()
    query, _, passage, _ = hits.flat()
    relevant_query, relevant_doc = _relevant_pairs(index, relevant, exclude)
    has_passages = np.diff(index.doc_offsets)[relevant_doc] > 0
    relevant_query, relevant_doc = relevant_query[has_passages], relevant_doc[has_passages]
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
    place = np.append(np.flatnonzero(hits.passages.ravel() != NO_PASSAGE), np.full(len(added_query), -1))
    query = np.concatenate((query, added_query))
    passage = np.concatenate((passage, added_passage))
    label = np.concatenate((label, np.ones(len(added_query), dtype=np.int8)))
    if not len(query):
        raise InputError("no query has a candidate passage")
    order = np.argsort(query, kind="stable")
    columns = [column[order].astype(np.int32) for column in (query, passage, place)]
    return CandidateRows(columns[0], columns[1], label[order], columns[2])


def _relevant_pairs(
    index: PassageIndex, relevant: Sequence[Sequence[str]], exclude: Exclude | None
) -> tuple[Ints, Ints]:
    """``(query rows, document numbers)`` of the relevant documents but the excluded ones, each pair once."""
    rows = np.repeat(np.arange(len(relevant)), [len(set(ids)) for ids in relevant])
    documents = index.document_numbers([doc for ids in relevant for doc in dict.fromkeys(ids)])
    allowed = documents != index.excluded(exclude, len(relevant))[rows]
    return rows[allowed], documents[allowed]


def _nearest(index: PassageIndex, queries: Matrix, rows: Ints, documents: Ints) -> Ints:
    """(n,) for each (query row, document) the document's passage nearest to the query."""
    where = device_of(index.vectors)
    best = []
    with where.current():
        queries = placed(queries, where, "queries")
        for row, document in zip(rows.tolist(), documents.tolist(), strict=True):
            passages = index.vectors[int(index.doc_offsets[document]) : int(index.doc_offsets[document + 1])]
            similarity = passages @ queries[row].T
            best.append((similarity.toarray() if is_sparse(similarity) else similarity).argmax())
        # Fetched together: each alone would wait for the device.
        places = to_numpy(where.xp.stack(best)) if best else np.zeros(0, dtype=np.int64)
    return np.asarray(index.doc_offsets[documents] + places)
