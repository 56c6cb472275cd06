"""Several runs about the same queries: their pool, and their fusion by reciprocal ranks, summed.

Cormack, Clarke & Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods", SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from haybale.collections.collection import Strings
from haybale.collections.ids import in_one_table
from haybale.errors import InputError
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import DEPTH, Run, Scores


@dataclass(frozen=True)
class Listing:
    """What one run has in a pool: its documents, queries in the pool's order, best first; each (k,)."""

    place: Ints  # row of the pool
    query: Ints  # rising
    rank: Ints  # from 1
    score: Scores


@dataclass(frozen=True)
class Pool:
    """The documents of some runs, query by query: rows sorted by query, then by document."""

    query_ids: Sequence[str]
    doc_ids: Strings  # the table the documents are codes into
    query: Ints  # (n,) rising
    document: Ints  # (n,)
    listings: list[Listing]  # one a run

    def __len__(self) -> int:
        """The number of documents, a document once for each query."""
        return len(self.query)


def pooled(runs: Sequence[Run], query_ids: Sequence[str], k: int | None = None) -> Pool:
    """The union of the first ``k`` documents (default all) of runs for ``query_ids``, in their order.

    Runs that share a table of ids are pooled by their codes; the ids of others are compared once a table.

    >>> from haybale.collections.ids import id_table
    >>> ids = id_table(["a", "b", "c"])
    >>> runs = [Run.from_numbers(["q"], ids, [0, 0], documents, [2.0, 1.0]) for documents in ([2, 1], [0, 2])]
    >>> pool = pooled(runs, ["q"])
    >>> pool.document.tolist(), [listing.place.tolist() for listing in pool.listings]
    ([0, 1, 2], [[2, 1], [0, 2]])
    """
    chosen = [run if run.query_ids == query_ids else run.take(query_ids) for run in runs]
    parts = [(run if k is None else run.top(k)).coded() for run in chosen]
    doc_ids, documents = in_one_table([table for *_, table, _ in parts], [codes for _, _, codes, *_ in parts])
    keys = np.concatenate([part[0] * len(doc_ids) + codes for part, codes in zip(parts, documents, strict=True)])
    union, place = _distinct(keys)
    ends = np.cumsum([len(codes) for codes in documents])
    listings = [
        Listing(places, rows, ranks, scores)
        for places, (rows, ranks, _, _, scores) in zip(np.split(place, ends[:-1]), parts, strict=True)
    ]
    return Pool(query_ids, doc_ids, *np.divmod(union, max(1, len(doc_ids))), listings)


def same_queries(runs: Sequence[Run]) -> list[str]:
    """The queries of the first run; without a run, and where another has others, :class:`InputError`."""
    if not runs:
        raise InputError("fusion needs at least one run")
    first = runs[0].query_ids
    if any(run.query_ids != first and set(run.query_ids) != set(first) for run in runs):
        raise InputError("fusion needs runs about the same queries")
    return first


def reciprocal_rank_fusion(
    runs: Sequence[Run], *, rrf_k: float = 60, weights: Sequence[float] | None = None, k: int = DEPTH
) -> Run:
    """Score of a document: Σ over the runs that have it of ``weight / (rrf_k + rank)``, ranks from 1.

    The result does not depend on the order of the runs: the terms of a document are summed from the smallest on, with
    Kahan's compensation.

    Parameters
    ----------
    runs : sequence of Run
        At least one, about the same queries, whose order is that of the first.
    rrf_k : float, default 60
        Above -1; the larger, the less the first ranks differ from those that follow.
    weights : sequence of float, optional
        One a run, default 1 each.
    k : int, default 1000
        Documents of a query that stay, the best ones.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]})
    >>> other = pd.DataFrame({"query_id": "q", "doc_id": ["b"], "score": [7.0]})
    >>> reciprocal_rank_fusion([Run.from_frame(frame), Run.from_frame(other)])["q"][0]
    ('b', 0.03252247488101534)
    """
    query_ids = same_queries(runs)
    weights = [1.0] * len(runs) if weights is None else weights
    if len(weights) != len(runs):
        raise InputError(f"{len(weights)} weights for {len(runs)} runs")
    if not (rrf_k > -1 and np.isfinite(weights).all()):
        raise InputError(f"rrf_k must be above -1 and weights finite, found rrf_k {rrf_k} and weights {list(weights)}")
    pool = pooled(runs, query_ids)
    terms = np.full((len(pool), len(runs)), np.inf)  # infinity: the run does not have the document
    for column, (listing, weight) in enumerate(zip(pool.listings, weights, strict=True)):
        terms[listing.place, column] = weight / (rrf_k + listing.rank)
    terms.sort(axis=1)
    total, lost = np.zeros(len(pool)), np.zeros(len(pool))
    for term in terms.T:
        there = np.flatnonzero(term < np.inf)
        exact = term[there] - lost[there]
        rounded = total[there] + exact
        total[there], lost[there] = rounded, rounded - total[there] - exact
    return Run.from_numbers(query_ids, pool.doc_ids, pool.query, pool.document, total, k)


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """The distinct keys, rising, and the place among them of each; keys are not negative."""
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)).bit_length() + bits < 64:  # key and place in one number: sorted much faster
        packed = keys << bits
        packed |= np.arange(len(keys))
        packed.sort()
        order, ordered = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
    new = np.append(np.ones(min(1, len(keys)), dtype=bool), ordered[1:] != ordered[:-1])
    place = np.empty_like(order)
    place[order] = np.cumsum(new) - 1
    return ordered[new], place
