"""What bench_protocols.py counts: candidates by choice of the injected passage, decisions, and rules that know nothing.

Bönisch & Mehler (LIRAI 2024) judge a candidate, a (query, passage) row, right or wrong. Rows are
:class:`haybale.ensemble.CandidateRows` here as well, so that training and test are made by the same function.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.ensemble import CandidateRows, SVREnsemble
from haybale.evaluation import classify
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.hits import from_flat

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Pairs = tuple[Ints, Ints]  # (query rows, document numbers) of the relevant documents
CHOICES = ("last", "random", "nearest")
VOTES = (1, 2, 5, 10, 18)


def representatives(choice: str, index: PassageIndex, vectors: Any, pairs: Pairs, seed: int = 0) -> Ints:
    """(n_pairs,) one passage of each relevant document: its last, a random one, or the nearest to the query."""
    starts, ends = index.doc_offsets[pairs[1]], index.doc_offsets[pairs[1] + 1]
    if choice == "last":
        return ends - 1
    if choice == "random":
        return starts + np.random.default_rng(seed).integers(ends - starts)
    if choice != "nearest":
        raise ValueError(f"expected one of {', '.join(CHOICES)}, found {choice!r}")
    found = [
        start + int(np.argmax(index.vectors[start:end] @ vectors[row]))
        for row, start, end in zip(pairs[0], starts, ends, strict=True)
    ]
    return np.array(found, dtype=np.int64)


def candidates(
    near: Hits, pairs: Pairs, injected: Ints, index: PassageIndex, true_labels: bool = False
) -> CandidateRows:
    """The neighbours of each query, labelled 0, and the injected passages, labelled 1, whether neighbours or not.

    ``true_labels``: neighbours that belong to a relevant document are labelled 1 as well.
    """
    query, _, passage, _ = near.flat()
    label = relevant_rows(query, passage, pairs, index) if true_labels else np.zeros(len(query), dtype=bool)
    place = np.concatenate((np.flatnonzero(near.passages.ravel() >= 0), np.full(len(injected), -1)))
    query, passage = np.concatenate((query, pairs[0])), np.concatenate((passage, injected))
    label = np.concatenate((label, np.ones(len(injected), dtype=bool)))
    order = np.argsort(query, kind="stable")
    return CandidateRows(
        query[order].astype(np.int32),
        passage[order].astype(np.int32),
        label[order].astype(np.int8),
        place[order].astype(np.int32),
    )


def relevant_rows(query: Ints, passage: Ints, pairs: Pairs, index: PassageIndex) -> Flags:
    """(n,) whether a passage belongs to a document that is relevant to the query."""
    n = len(index.doc_ids)
    return np.isin(query * n + index.doc_of[passage], pairs[0] * n + pairs[1])


def keys(query: NDArray[Any], passage: NDArray[Any], index: PassageIndex) -> Ints:
    """(n,) one number for each (query, passage)."""
    return query.astype(np.int64) * len(index) + passage


def neighbour_keys(near: Hits, index: PassageIndex) -> Ints:
    query, _, passage, _ = near.flat()
    return keys(query, passage, index)


class Votes:
    """How many bags of an ensemble vote for each of some (query, passage) pairs, each asked for once."""

    def __init__(self, ensemble: SVREnsemble, vectors: Any, wanted: Ints) -> None:
        index = ensemble.index_
        self._keys = np.unique(wanted)
        query, passage = np.divmod(self._keys, len(index))
        table = from_flat(len(vectors), query, passage, np.zeros(len(query), dtype=np.float32))
        self._votes = ensemble.votes(vectors, table.passages)[table.passages >= 0]

    def __getitem__(self, wanted: Ints) -> Ints:
        return np.asarray(self._votes[np.searchsorted(self._keys, wanted)])


def curve(votes: Ints, label: Flags) -> list[dict[str, Any]]:
    """Figures of the positive class at each number of votes."""
    return [{"votes": least} | asdict(classify(votes >= least, label)) for least in VOTES]


def absent(rows: CandidateRows, near: Hits, index: PassageIndex) -> Flags:
    """(n,) whether a candidate is none of the query's neighbours: its cosine is below that of the last of them."""
    return ~np.isin(keys(rows.query, rows.passage, index), neighbour_keys(near, index))


def rules(rows: CandidateRows, near: Hits, index: PassageIndex, seen: CandidateRows) -> dict[str, Flags]:
    """What rules say of candidates that do not ask whether the passage answers the query.

    ``seen``: the candidates of training queries, for the one rule that learns: it knows passages, but no query.
    """
    _, place, count = np.unique(keys(rows.query, rows.passage, index), return_inverse=True, return_counts=True)
    last = index.doc_offsets[index.doc_of[rows.passage] + 1] - 1 == rows.passage
    injected = np.bincount(seen.passage[seen.label > 0], minlength=len(index))
    neighbour = np.bincount(seen.passage[seen.label == 0], minlength=len(index))
    put = absent(rows, near, index)
    return {
        "everything": np.ones(len(rows), dtype=bool),
        "last": last,
        "seen": (injected > neighbour)[rows.passage],
        "absent": put,
        "absent or twice": put | (count[place] > 1),
    }


def decisions(said: Flags, near: Hits, pairs: Pairs, index: PassageIndex) -> dict[str, float]:
    """Real neighbours that are said to be relevant, (n_neighbours,), against the judgements of all documents.

    ``precision`` is the share of said passages whose document is relevant; ``recall`` the share of all relevant
    documents, neighbours or not, of which a passage was said.
    """
    query, _, passage, _ = near.flat()
    right = relevant_rows(query, passage, pairs, index)
    n = len(index.doc_ids)
    found = np.unique((query * n + index.doc_of[passage])[said & right])
    precision = float(right[said].mean()) if said.any() else 0.0
    recall = len(found) / len(pairs[0])
    both = precision + recall
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / both if both else 0.0,
        "said a query": float(said.sum() / len(near)),
        "queries answered": float(len(np.unique(query[said])) / len(near)),
    }


def held_back(rows: CandidateRows, share: float, seed: int = 0) -> tuple[CandidateRows, CandidateRows]:
    """Rows to train on and a random share of them held back: a query has rows on both sides."""
    drawn = np.random.default_rng(seed).random(len(rows)) < share
    return rows.take(np.flatnonzero(~drawn)), rows.take(np.flatnonzero(drawn))
