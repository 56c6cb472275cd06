"""Pool several runs about the same queries, and fuse them by the sum of reciprocal ranks.

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
class Listing:
    """The documents of one run in a pool, by query, best first; each array is (k,)."""

    place: Ints  # row in the pool
    query: Ints  # rising
    rank: Ints  # from 1
    score: Scores


@dataclass(frozen=True)
class Pool:
    """The documents of several runs, sorted by query, then by document."""

    query_ids: Sequence[str]
    doc_ids: Strings  # the table of ids that documents are codes into
    query: Ints  # (n,) rising
    document: Ints  # (n,)
    listings: list[Listing]  # one for each run

    def __len__(self) -> int:
        """Return the number of pairs of query and document."""
        return len(self.query)


def pooled(runs: Sequence[Run], query_ids: Sequence[str], k: int | None = None) -> Pool:
    """Return the union of the first ``k`` documents (default: all) of each run for ``query_ids``, in their order.

    Runs that share a table of ids are pooled by codes.

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
    union, place = np.unique(keys, return_inverse=True)
    ends = np.cumsum([len(codes) for codes in documents])
    listings = [
        Listing(places, rows, ranks, scores)
        for places, (rows, ranks, _, _, scores) in zip(np.split(place, ends[:-1]), parts, strict=True)
    ]
    return Pool(query_ids, doc_ids, *np.divmod(union, max(1, len(doc_ids))), listings)


def same_queries(runs: Sequence[Run]) -> list[str]:
    """Return the queries of the first run; raise if there is no run, or if runs have different queries."""
    if not runs:
        raise InputError("fusion needs at least one run")
    first = runs[0].query_ids
    if any(run.query_ids != first and set(run.query_ids) != set(first) for run in runs):
        raise InputError("fusion needs runs about the same queries")
    return first


def completed(run: Run, runs: Sequence[Run], k: int) -> Run:
    """Fill each query up to ``k`` documents: those of ``run``, then those of other runs by their best rank there.

    If the other runs have at least ``k`` documents, a document's rank does not depend on ``k``.

    >>> from haybale.collections.ids import id_table
    >>> ids, lists = id_table(list("abcd")), ([2], [2, 1, 3], [0, 2])
    >>> short, *deep = [Run.from_numbers(["q"], ids, [0] * len(x), x, 4.0 - np.arange(len(x))) for x in lists]
    >>> completed(short, deep, 3)["q"]
    [('c', 4.0), ('a', 3.0), ('b', 2.0)]
    """
    pool = pooled([run, *runs], run.query_ids)
    first, *others = pool.listings
    rank, lowest = np.full(len(pool), np.inf), np.zeros(len(run))
    for listing in others:
        rank[listing.place] = np.minimum(rank[listing.place], listing.rank)
    lowest[first.query] = first.score  # the last write for a query is its lowest score
    scores = lowest[pool.query] - rank
    scores[first.place] = first.score
    return Run.from_numbers(run.query_ids, pool.doc_ids, pool.query, pool.document, scores, k)


def reciprocal_rank_fusion(runs: Sequence[Run], *, rrf_k: float = 60, k: int = DEPTH) -> Run:
    """Fuse runs: score(d) = Σ over the runs with d of ``1 / (rrf_k + rank)``, ranks from 1.

    The terms of a document are summed from the smallest, so the order of the runs does not matter.

    Parameters
    ----------
    runs : sequence of Run
        At least one run; all have the same queries. The result has the order of the first.
    rrf_k : float, default 60
        At least 0; larger values reduce the weight of the first ranks.
    k : int, default 1000
        Documents kept for each query.

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
