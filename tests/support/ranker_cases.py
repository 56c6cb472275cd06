"""Rankers for tests of general properties, by name and encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from haybale import Engine
from haybale.collections import Queries
from haybale.rankers import QueryBatch, Ranker
from support.topics import RANKERS, SVR

ENCODERS: dict[str, dict[str, Any]] = {"tfidf": {}, "lsa": {"encoder": "lsa(n_components=12)"}}
PAPER = "svr-paper(n_bags=20,n_train=8,n_candidates=9,n_jobs=1)"  # standardises features, so not for sparse vectors
Fitted = Callable[..., Ranker]  # called with the names of a ranker and an encoder
CASES = [*((name, encoder) for encoder in ENCODERS for name in RANKERS), (PAPER, "lsa")]

every_ranker = pytest.mark.parametrize(("name", "encoder"), CASES)
PASSAGE_SVR = f"svr(evidence=[],candidates=[bm25,knn],unit=passage,{SVR})"


def batch_of(engine: Engine, split: str = "dev") -> QueryBatch:
    """Return the queries of a split."""
    return QueryBatch(engine, engine.collection.queries.take(engine.collection.split(split).queries))


def queries_of(ranker: Ranker, *ids: str) -> Queries:
    collection = ranker.engine_.collection
    return collection.queries.take(collection.query_numbers(ids))
