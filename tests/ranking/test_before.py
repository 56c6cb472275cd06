"""With dates, the ranking of each query is that within the documents that are certainly earlier than it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import assert_same
from support.topics import RANKERS, SVR

from haybale import Engine, parse
from haybale.collections import Collection
from haybale.collections.dates import UNDATED
from haybale.collections.metadata import metadata_table
from haybale.errors import InputError, UnknownNameError
from haybale.rankers import Ranker, Share, Training
from haybale.retrieval import Run
from haybale.retrieval.exclusion import NO_DATE
from haybale.search.cutoffs import cutoffs_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning"),
    pytest.mark.filterwarnings("ignore:.* bags"),
    pytest.mark.filterwarnings("ignore:.*training queries for n_bags"),
    pytest.mark.filterwarnings("ignore:before="),
]
CASES = (*RANKERS, f"svr(evidence=[],candidates=[bm25,knn],unit=passage,{SVR})", "length")


class Length(Ranker):
    """Rank documents by their number of passages; it knows nothing of dates."""

    name = "length"

    def rank_batch(self, batch: Any, depth: int) -> Run:
        sizes = np.diff(batch.engine.collection.passages.doc_offsets)
        rows, documents = (part.ravel() for part in np.indices((len(batch), len(sizes))))
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, sizes[documents], depth)

    def explain_document(self, batch: Any, document: int, base: Any) -> Any:
        size = np.diff(batch.engine.collection.passages.doc_offsets)[document]
        return replace(base, shares=[Share("passages", float(size))])


def dated(topics: Collection, seed: int, n_days: int = 9) -> Collection:
    """Return the collection with random dates: some documents and queries have none, or only a year or a month."""
    rng = np.random.default_rng(seed)

    def date_of() -> str | None:
        day = np.datetime64("2018-12-28") + int(rng.integers(n_days))
        return [str(day), str(day), str(day), str(day)[:7], str(day)[:4], None][int(rng.integers(6))]

    days = np.datetime64("2018-12-28").astype("datetime64[D]").astype(np.int64) + rng.integers(
        1, n_days + 4, size=len(topics.queries)
    )
    days[(rng.random(len(days)) < 0.3) & (topics.queries.own >= 0)] = UNDATED  # these have that of their own document
    metadata = metadata_table([{"date": date_of()} for _ in range(topics.n_documents)])
    return replace(topics, queries=replace(topics.queries, dates=days), metadata=metadata)


def days_of_queries(engine: Engine, split: str) -> dict[str, tuple[int, set[str]]]:
    """Return the day of each query with a date, and the ids of the earlier documents."""
    collection = engine.collection
    queries = collection.queries.take(collection.split(split).queries)
    cutoffs, ids = cutoffs_of(engine, queries, "date"), np.array(collection.doc_ids.to_pylist())
    return {
        query: (day, set(ids[cutoffs.documents < day].tolist()))
        for query, day in zip(queries.ids.to_pylist(), cutoffs.queries.tolist(), strict=True)
        if day != UNDATED
    }


def dated_queries(engine: Engine, split: str) -> Any:
    numbers = engine.collection.query_numbers(days_of_queries(engine, split))
    return engine.collection.queries.take(numbers)


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 1000), encoder=st.sampled_from(["tfidf", "lsa(n_components=12)"]))
@settings(max_examples=3, deadline=None)
def test_no_candidate_is_later_than_its_query(topics: Collection, name: str, seed: int, encoder: str) -> None:
    """Also out of fold, and the ranking is that within the earlier documents."""
    engine = Engine(dated(topics, seed), encoder=encoder)
    ranker = parse(name).fit(engine, before="date")
    for split, rank in (("dev", ranker.rank), ("train", ranker.out_of_fold)):
        earlier = days_of_queries(engine, split)
        run = rank(dated_queries(engine, split), before="date")
        assert run.query_ids == list(earlier)
        assert sum(len(run[query]) for query in run.query_ids) > 20
        for query in run.query_ids:
            assert {doc_id for doc_id, _ in run[query]} <= earlier[query][1]
    if "queries" in name or "svr" in name:
        return  # a training query that is later than the query is hidden, too, which `within` does not do
    for query, (_, ids) in days_of_queries(engine, "dev").items():
        one = engine.collection.queries.take(engine.collection.query_numbers([query]))
        has_text = {doc for doc in ids if doc != "blank"}
        part = ranker.rank(one, within=sorted(ids))[query] if has_text else []
        whole = ranker.rank(one, before="date")[query]
        assert [doc for doc, _ in whole] == [doc for doc, _ in part]
        assert [score for _, score in whole] == pytest.approx([score for _, score in part], rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_where_all_documents_are_earlier_nothing_changes(topics: Collection, name: str) -> None:
    rows = [{"date": 1990 + number % 9} for number in range(topics.n_documents)]
    days = np.full(len(topics.queries), 365 * 40)
    collection = replace(topics, metadata=metadata_table(rows), queries=replace(topics.queries, dates=days))
    engine = Engine(collection)
    plain, ranker = parse(name).fit(engine), parse(name).fit(engine, before="date")
    assert_same(ranker.rank("dev", before="date"), plain.rank("dev"))
    assert_same(ranker.out_of_fold("train", before="date"), plain.out_of_fold("train"))
