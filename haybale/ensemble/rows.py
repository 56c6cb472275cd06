"""Candidate rows: the training set of the SVRs, as triples (query number, passage number, label).

Feature vectors are never built. Triples take 60 MB where the paper has a feature matrix of 5 034 360 × 1 536 numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import to_numpy
from haybale.errors import InputError
from haybale.parameters import check_parameters, one_of
from haybale.retrieval import AnyPassageIndex, Hits
from haybale.retrieval.hits import NO_PASSAGE
from haybale.retrieval.passages import Exclude
from haybale.vectors import Matrix

Ints = NDArray[np.int64]
PROTOCOLS = ("end-to-end", "injected")


def distinct_numbers(numbers: NDArray[Any], n: int) -> tuple[NDArray[Any], Ints]:
    """Return the distinct numbers, ascending, and the position of each number among them; they are in 0..n - 1.

    For many numbers, this takes a tenth of the time of ``np.unique``, which sorts them.

    >>> distinct_numbers(np.array([7, 2, 7]), n=9)
    (array([2, 7]), array([1, 0, 1]))
    """
    occurs = np.zeros(n, dtype=bool)
    occurs[numbers] = True
    return np.flatnonzero(occurs).astype(numbers.dtype), (np.cumsum(occurs) - 1)[numbers]


@dataclass(frozen=True)
class CandidateRows:
    """Training pairs (n,), sorted by query, labelled 1 if the passage is relevant to the query and 0 if not.

    ``place`` is the position of the row in the flattened candidates. It is -1 if the passage was not a candidate and
    was added because it is relevant; None means that no row was added. Raises :class:`InputError` for columns of
    different lengths, other labels, and rows that are not sorted by query.
    """

    query: NDArray[np.int32]
    passage: NDArray[np.int32]
    label: NDArray[np.int8]
    place: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in vars(self).items() if column is not None}
        if len(set(lengths.values())) > 1:
            raise InputError(f"candidate rows: all columns must have the same length, found {lengths}")
        if len(wrong := np.setdiff1d(self.label, (0, 1))):
            raise InputError(f"candidate rows: label must be 0 or 1, found {wrong[0]}")
        if (self.query[1:] < self.query[:-1]).any():
            raise InputError("candidate rows must be sorted by 'query'; give them in ascending order")

    def __len__(self) -> int:
        return len(self.query)

    def take(self, chosen: Ints) -> CandidateRows:
        """Return some of the rows, which must stay sorted."""
        columns = {name: column[chosen] for name, column in vars(self).items() if column is not None}
        return CandidateRows(**columns)

    def check_trainable(self, n_queries: int, n_passages: int) -> None:
        """Raise :class:`InputError` if no row is relevant, or a number is not one of the queries or passages."""
        if not self.label.any():
            raise InputError(f"at least one of {len(self)} candidate rows must be relevant; check 'relevant'")
        for name, numbers, size in (("query", self.query, n_queries), ("passage", self.passage, n_passages)):
            if numbers.min() < 0 or numbers.max() >= size:
                bounds = f"{numbers.min()}..{numbers.max()}"
                raise InputError(f"candidate rows: {name} numbers must lie in 0..{size - 1}, found {bounds}")


def candidate_rows(
    protocol: str,
    hits: Hits,
    relevant: Sequence[Sequence[str]],
    index: AnyPassageIndex,
    queries: Matrix,
    exclude: Exclude | None = None,
) -> CandidateRows:
    """Return the labelled candidates of each query.

    Raises :class:`InputError` if no query has a candidate, and for unknown document ids.

    Parameters
    ----------
    protocol : {"end-to-end", "injected"}
        With ``"end-to-end"``, a candidate is positive if its document is relevant. A relevant document without a
        candidate adds one positive, its passage nearest to the query.

        ``"injected"`` reproduces the 0.849 of Bönisch & Mehler (2024), following their code: every candidate is a
        negative, even if it is relevant, and the *last* passage of each relevant document is added as a positive. The
        position in the document then reveals the label, so this protocol reproduces the paper's table but cannot be
        used for ranking.
    hits : Hits (m, k)
        The candidates.
    relevant : list of list of str
        The ids of each query's relevant documents.
    index : PassageIndex
    queries : (m, d)
        Query vectors, which decide which passage is nearest.
    exclude : optional
        Id or number of each query's own document, which is never a positive.
    """
    check_parameters("candidate_rows", {"protocol": protocol}, {"protocol": one_of(PROTOCOLS)})
    hits = hits.to_numpy()
    query, _, passage, _ = hits.flat()
    # Distinct pairs of a query and a relevant document that is not excluded and has a passage.
    relevant_query = np.repeat(np.arange(len(relevant)), [len(set(ids)) for ids in relevant])
    relevant_doc = index.document_numbers([doc for ids in relevant for doc in dict.fromkeys(ids)])
    usable = relevant_doc != index.excluded(exclude, len(relevant))[relevant_query]
    usable &= np.diff(index.doc_offsets)[relevant_doc] > 0
    relevant_query, relevant_doc = relevant_query[usable], relevant_doc[usable]
    if protocol == "injected":
        label = np.zeros(len(query), dtype=np.int8)
        added_query, added_passage = relevant_query, index.doc_offsets[relevant_doc + 1] - 1
    else:
        n_documents = len(index.doc_ids)
        candidate_pairs = query * n_documents + index.doc_of[passage]
        relevant_pairs = relevant_query * n_documents + relevant_doc
        label = np.isin(candidate_pairs, relevant_pairs).astype(np.int8)
        missing = ~np.isin(relevant_pairs, candidate_pairs)
        added_query = relevant_query[missing]
        added_passage = _nearest(index, queries, added_query, relevant_doc[missing])
    if not len(query) + len(added_query):
        raise InputError(f"none of the {len(hits)} queries has a candidate; check that their vectors are not all zero")
    positions = np.append(np.flatnonzero(hits.passages.ravel() != NO_PASSAGE), np.full(len(added_query), -1))
    query, passage = np.append(query, added_query), np.append(passage, added_passage)
    label = np.append(label, np.ones(len(added_query), dtype=np.int8))
    order = np.argsort(query, kind="stable")
    columns = [column[order].astype(np.int32) for column in (query, passage, positions)]
    return CandidateRows(columns[0], columns[1], label[order], columns[2])


def _nearest(index: AnyPassageIndex, queries: Matrix, rows: Ints, documents: Ints) -> Ints:
    """Return (n,) the document's passage nearest to the query, for each pair (query row, document)."""
    queries, nearest = to_numpy(queries), np.zeros(len(rows), dtype=np.int64)
    for pair, (row, document) in enumerate(zip(rows.tolist(), documents.tolist(), strict=True)):
        # The few passages of a document are multiplied on the CPU, which takes less time than to ask a device.
        passages = to_numpy(index.vectors[int(index.doc_offsets[document]) : int(index.doc_offsets[document + 1])])
        similarity = passages @ queries[row].T
        nearest[pair] = (similarity.toarray() if index.is_sparse else similarity).argmax()
    return np.asarray(index.doc_offsets[documents] + nearest)
