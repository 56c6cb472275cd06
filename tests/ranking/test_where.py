"""A condition on metadata gives exactly the ranking within the documents that fulfil it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.topics import RANKERS

from haybale import Engine, compare, parse
from haybale.collections import Collection
from haybale.collections.metadata import metadata_table
from haybale.errors import InputError
from haybale.rankers import Training

pytest.importorskip("duckdb")
pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
COURTS = ["BGH", "BAG", "BSG"]


@pytest.fixture(scope="module")
def engine(topics: Collection) -> Engine:
    rows = [{"court": COURTS[number % 3], "year": 2000 + number % 20} for number in range(topics.n_documents)]
    return Engine(replace(topics, metadata=metadata_table(rows)))


@pytest.fixture(scope="module")
def training(engine: Engine) -> Training:
    return Training.of(engine)


@pytest.mark.parametrize("name", RANKERS)
@given(court=st.sampled_from(COURTS), year=st.integers(2000, 2019), joined=st.sampled_from(["and", "or"]))
@settings(max_examples=5, deadline=None)
def test_a_condition_ranks_as_within_its_documents(
    engine: Engine, training: Training, name: str, court: str, year: int, joined: str
) -> None:
    ranker = parse(name)._fitted_copy(training)
    where = f"court = '{court}' {joined} year >= {year}"
    rows = engine.documents_table().to_pylist()
    chosen = [
        row["id"] for row in rows if (all if joined == "and" else any)((row["court"] == court, row["year"] >= year))
    ]
    assert [rows[number]["id"] for number in engine.documents_where(where)] == chosen
    if not chosen:
        with pytest.raises(InputError):
            ranker.rank("dev", where=where)
        return
    found = ranker.rank("dev", where=where)
    assert found == ranker.rank("dev", within=chosen)
    half = chosen[: len(chosen) // 2 + 1]
    assert ranker.rank("dev", within=half, where=where) == ranker.rank("dev", within=half)


@pytest.mark.parametrize("name", ["bm25", "rrf(bm25,knn)", "parm-vrrf"])
def test_explanations_are_of_the_filtered_ranking(engine: Engine, training: Training, name: str) -> None:
    ranker, where = parse(name)._fitted_copy(training), "court = 'BAG'"
    [query] = engine.collection.queries.take([0]).ids.to_pylist()
    asked = engine.collection.queries.take([0])
    run = ranker.rank(asked, where=where)
    for place, (doc_id, score) in enumerate(run[query][:3], 1):
        explained = ranker.explain(asked, doc_id, where=where)
        assert (explained.rank, explained.score) == (place, score)
        assert sum(share.share for share in explained.shares) == pytest.approx(score)
    outside = next(row["id"] for row in engine.documents_table().to_pylist() if row["court"] != "BAG")
    with pytest.raises(InputError, match=outside):
        ranker.explain(asked, outside, where=where)


def test_a_comparison_ranks_and_judges_the_documents_that_fulfil_it(engine: Engine) -> None:
    where = "court <> 'BSG'"
    outcome = compare(engine, "bm25,knn", where=where)
    kept = set(np.array(engine.collection.doc_ids.to_pylist())[engine.documents_where(where)])
    assert outcome.settings_dict()["where"] == where
    for name, run in outcome.runs.items():
        assert run == parse(name).fit(engine).rank("dev", where=where)
        assert {doc_id for query in run.query_ids for doc_id, _ in run[query]} <= kept
    judged = [kept.intersection(ids) for ids in engine.collection.relevant_ids("dev")]
    assert outcome.results.n_queries == sum(map(bool, judged))
