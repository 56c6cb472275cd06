"""Pool several runs of the same queries, and fuse them by reciprocal ranks.

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
from haybale.parameters import COUNT, NOT_NEGATIVE, check_parameters
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import DEPTH, Run, Scores


@dataclass(frozen=True)
class PooledRun:
    """The documents of one run in a pool, sorted by query and rank; each array is (k,)."""

    place: Ints  # positions in the pool
    query: Ints  # query rows, rising
    rank: Ints  # from 1
    score: Scores


@dataclass(frozen=True)
class Pool:
    """The union of the documents of several runs, sorted by query, then by document."""

    query_ids: Sequence[str]
    doc_ids: Strings  # table of document ids
    query: Ints  # (n,) query rows, rising
    document: Ints  # (n,) positions in ``doc_ids``
    listings: list[PooledRun]  # one for each run

    def __len__(self) -> int:
        """Return the number of (query, document) pairs."""
        return len(self.query)


def pooled(runs: Sequence[Run], query_ids: Sequence[str], k: int | None = None) -> Pool:
    """Return the union of the first ``k`` documents (default: all) of each run, for ``query_ids`` in this order.

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
    union, positions = np.unique(keys, return_inverse=True)
    ends = np.cumsum([len(codes) for codes in documents])
    listings = [
        PooledRun(positions_of_run, rows, ranks, scores)
        for positions_of_run, (rows, ranks, _, _, scores) in zip(np.split(positions, ends[:-1]), parts, strict=True)
    ]
    return Pool(query_ids, doc_ids, *np.divmod(union, max(1, len(doc_ids))), listings)


def same_queries(runs: Sequence[Run]) -> list[str]:
    """Return the query ids of the first run; raise InputError if another run has other queries, or without a run."""
    if not runs:
        raise InputError(f"fusion needs at least one run, found {len(runs)}")
    first = runs[0].query_ids
    for run in runs:
        if run.query_ids != first and (unshared := set(run.query_ids) ^ set(first)):
            raise InputError(f"fusion needs runs about the same queries, found {min(unshared)!r} in only some of them")
    return first


def completed(run: Run, runs: Sequence[Run], k: int) -> Run:
    """Fill the ranking of each query up to ``k`` documents with those of other runs, by their best rank there.

    If each of the other runs has at least ``k`` documents, a document's rank does not depend on ``k``.

    >>> from haybale.collections.ids import id_table
    >>> ids, lists = id_table(list("abcd")), ([2], [2, 1, 3], [0, 2])
    >>> short, *deep = [Run.from_numbers(["q"], ids, [0] * len(x), x, 4.0 - np.arange(len(x))) for x in lists]
    >>> completed(short, deep, 3)["q"]
    [('c', 4.0), ('a', 3.0), ('b', 2.0)]
    """
    pool = pooled([run, *runs], run.query_ids)
    listing_of_run, *other_listings = pool.listings
    rank, lowest = np.full(len(pool), np.inf), np.zeros(len(run))
    for listing in other_listings:
        rank[listing.place] = np.minimum(rank[listing.place], listing.rank)
    lowest[listing_of_run.query] = listing_of_run.score  # the last score written for a query is its lowest
    scores = lowest[pool.query] - rank
    scores[listing_of_run.place] = listing_of_run.score
    return Run.from_numbers(run.query_ids, pool.doc_ids, pool.query, pool.document, scores, k)


def reciprocal_rank_fusion(runs: Sequence[Run], *, rrf_k: float = 60, k: int = DEPTH) -> Run:
    """Fuse runs by reciprocal ranks: score(d) = Σ ``1 / (rrf_k + rank)`` over the runs that rank d, ranks from 1.

    The terms of a document are added in rising order, so the scores do not depend on the order of the runs.

    Parameters
    ----------
    runs : sequence of Run
        At least one run, all of the same queries (else InputError). The result has the query order of the first.
    rrf_k : float, default 60
        At least 0. A larger value makes the first ranks count less.
    k : int, default 1000
        Number of documents kept for each query.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]})
    >>> other = pd.DataFrame({"query_id": "q", "doc_id": ["b"], "score": [7.0]})
    >>> reciprocal_rank_fusion([Run.from_frame(frame), Run.from_frame(other)])["q"][0]
    ('b', 0.03252247488101534)
    """
    check_parameters("reciprocal_rank_fusion", {"rrf_k": rrf_k, "k": k}, {"rrf_k": NOT_NEGATIVE, "k": COUNT})
    query_ids = same_queries(runs)
    pool = pooled(runs, query_ids)
    terms = np.zeros((len(pool), len(runs)))
    for column, listing in enumerate(pool.listings):
        terms[listing.place, column] = 1 / (rrf_k + listing.rank)
    terms.sort(axis=1)
    total = np.zeros(len(pool))
    for term in terms.T:
        total += term
    return Run.from_numbers(query_ids, pool.doc_ids, pool.query, pool.document, total, k)
