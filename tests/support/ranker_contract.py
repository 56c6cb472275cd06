"""The contract of rankers, checked on one fitted ranker: rankings, explanations and saved folders."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from haybale import Engine, Explanation, Ranker, Run, load
from haybale.collections import Collection, Queries
from haybale.rankers import from_spec, parse
from haybale.rankers.reranker import Reranker
from support.engines import assert_same


def queries_of(collection: Collection, names: str | Sequence[str]) -> Queries:
    """Return the queries of a split, or those with these ids."""
    numbers = collection.split(names).queries if isinstance(names, str) else collection.query_numbers(names)
    return collection.queries.take(numbers)


def check_ranking(
    ranker: Ranker, names: str | Sequence[str] = "dev", *, depths: Sequence[int] = (1, 3, 7, 12), exact: bool = False
) -> Run:
    """Check depth, queries alone or together, ``within`` and out-of-fold runs of unseen queries; return the run.

    Scores are ``exact`` if they do not depend on the other queries of a batch.
    """
    collection = ranker.engine_.collection
    queries = queries_of(collection, names)
    whole = ranker.rank(queries)
    for depth in depths:
        assert_same(ranker.rank(queries, depth=depth), whole.top(depth))
    backwards = ranker.rank(queries.take(np.arange(len(queries))[::-1]))
    for row, query in list(enumerate(whole.query_ids))[:5]:
        for run in (ranker.rank(queries.take([row])), backwards):
            expected = dict(whole[query])
            assert dict(run[query]) == (expected if exact else pytest.approx(expected, rel=1e-5, abs=1e-5))
    ids = collection.doc_ids.to_pylist()
    assert set(ranker.rank(queries, within=ids[::2]).flat()[2].to_pylist()) <= set(ids[::2])
    assert_same(ranker.rank(queries, within=ids), whole)
    for query, own in zip(whole.query_ids, queries.own.tolist(), strict=True):
        assert own < 0 or ids[own] not in dict(whole[query])
    if isinstance(ranker, Reranker):
        first = ranker.rankers_[0].rank(queries)
        assert [set(dict(whole[query])) for query in whole.query_ids] == [set(dict(first[q])) for q in whole.query_ids]
    assert_same(ranker.out_of_fold(queries), whole)
    assert bool(ranker.learned_from()) == ranker.needs_training
    return whole


def check_explanations(ranker: Ranker, *query_ids: str, n: int = 1000) -> Iterator[Explanation]:
    """Yield the explanations of the first n documents of each query, whose shares must sum to their scores."""
    for query in query_ids:
        one = queries_of(ranker.engine_.collection, [query])
        for rank, (doc, score) in enumerate(ranker.rank(one)[query][:n], 1):
            found = ranker.explain(one, doc)
            assert (found.rank, found.score) == (rank, pytest.approx(score, abs=1e-5))
            size = max(abs(score), math.fsum(abs(share.share) for share in found.shares), 1)
            for shares in ((share.share for share in found.shares), found.to_frame()["share"]):
                assert math.fsum(shares) == pytest.approx(score, abs=1e-5 * size)
            json.dumps(found.to_dict())
            yield found


def check_saved(ranker: Ranker, engine: Engine, folder: Path) -> Ranker:
    """Save and load a ranker, which must rank and report the same; check its specification and its text."""
    assert from_spec(json.loads(json.dumps(ranker.to_dict()))) == ranker == parse(str(ranker))
    ranker.save(folder)
    again = load(folder, engine)
    assert (again, again.fit_report_, again.learned_from()) == (ranker, ranker.fit_report_, ranker.learned_from())
    for found, expected in ((again.rank("dev"), ranker.rank("dev")), (again.out_of_fold(), ranker.out_of_fold())):
        for query in expected.query_ids:
            assert dict(found[query]) == pytest.approx(dict(expected[query]), abs=1e-6)
    return again
