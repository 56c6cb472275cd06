"""Training: few queries, none, judgements in any form, and what is refused before anything is searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from support.engines import assert_same
from support.ranker_cases import Fitted
from support.topics import LEARNED, LEARNING, SVR

from haybale import Engine
from haybale.collections import Collection, CollectionBuilder
from haybale.errors import InputError, NotFittedError, UnknownNameError
from haybale.rankers import SimilarQueries, parse
from haybale.timing import record_timings

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


def few(topics: Collection, n: int) -> tuple[dict[str, list[str]], pd.DataFrame]:
    """The first n training queries, with their judgements."""
    frame = topics.qrels_frame("train")
    ids = list(dict.fromkeys(frame["query_id"]))[:n]
    asked = {query: topics.queries.paragraphs_of(int(topics.query_numbers([query])[0])) for query in ids}
    return asked, frame[frame["query_id"].isin(ids)]


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("name", ["svr", "learned(bm25,knn-queries,svr(unit=passage))"])
def test_fewer_training_queries_than_bags(topics: Collection, name: str, n: int) -> None:
    asked, qrels = few(topics, n)
    with pytest.warns(UserWarning, match=rf"svr.*: {n} training queries for 24 bags; {n} bags are trained"):
        ranker: Any = parse(name).fit(Engine(topics), asked, qrels)
    ensemble = ranker.rankers_[2].ensemble_ if name.startswith("learned") else ranker.ensemble_
    assert ensemble.n_bags == n
    assert len(ranker.rank("dev").flat()[0]) > 30
    assert ranker.out_of_fold(asked).query_ids == list(asked)
    assert ranker.learned_from() == set(asked)


def test_one_training_query(topics: Collection) -> None:
    """Similar queries need no more; an ensemble does, and says so before anything is searched."""
    asked, qrels = few(topics, 1)
    engine = Engine(topics)
    ranker = parse("learned(bm25,knn-queries)").fit(engine, asked, qrels)
    assert len(ranker.rank("dev").flat()[0]) > 30
    with pytest.raises(InputError, match="without 'train0' there are too few queries to learn weights from"):
        ranker.out_of_fold(asked)
    for name in ("svr", "svr-memory"):
        with pytest.raises(InputError, match="learns from at least 2 judged queries, found 1"), record_timings(refuse):
            parse(name).fit(engine, asked, qrels)


def refuse(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} was done first")


@pytest.mark.parametrize("name", [*LEARNING, "learned", "learned(bm25,knn)"])
def test_without_training_queries_nothing_is_begun(name: str) -> None:
    builder = CollectionBuilder("no train")
    builder.add_document("d", ["a dog barks", "a dog sleeps"])
    builder.add_query("q", ["dog"], split="test")
    builder.add_query("r", ["cat"], split="unjudged")
    builder.add_judgement("test", "q", "d")
    builder.add_judgement("unjudged", "r", "d", 0)
    engine, ranker = Engine(builder.build()), parse(name)
    for queries, message in [
        (None, "no train has no split 'train' .splits: test, unjudged.; name the split"),
        ("unjudged", "no query has a relevant document, so there is nothing to learn"),
        ({"q": "dog"}, "need their judgements: give qrels, or the name of a split"),
    ]:
        with pytest.raises(InputError, match=message), record_timings(refuse):
            ranker.fit(engine, queries)
    with pytest.raises(UnknownNameError, match="unknown split of no train 'tain'; known: test, unjudged"):
        ranker.fit(engine, "tain")
    assert engine.made == set()
    with pytest.raises(NotFittedError):
        ranker.rank({"q": "dog"})


def test_judgements_as_frames(fitted: Fitted, topics: Collection) -> None:
    name = f"learned(bm25,svr-memory({SVR}))"
    engine, expected = fitted(name, "tfidf").engine_, fitted(name, "tfidf").rank("dev")
    frame = topics.qrels_frame("train")
    for given in (pa.Table.from_pandas(frame), frame.assign(more=1, relevance=frame["relevance"].astype(float))):
        for queries in ("train", topics.queries.take(topics.split("train").queries)):
            assert_same(parse(name).fit(engine, queries, given).rank("dev"), expected)
    names = few(topics, 60)[0]
    assert parse(name).fit(engine, None, frame).learned_from() <= set(names)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query_id": "nobody"}, "unknown query id 'nobody'"),
        ({"doc_id": "nothing"}, "unknown document id 'nothing'"),
        ({"relevance": "high"}, "relevance"),
        ({"relevance": 0}, "nothing to learn"),
        ({"doc_id": None}, "doc_id"),
        (None, "are judged twice, with different grades"),
    ],
)
def test_judgements_that_are_refused(topics: Collection, changed: Any, message: str) -> None:
    asked, frame = few(topics, 5)
    judged = pd.concat([frame, frame.assign(relevance=9)]) if changed is None else frame.assign(**changed)
    with pytest.raises(InputError, match=message), record_timings(refuse):
        SimilarQueries().fit(Engine(topics), asked, judged)


def test_what_is_not_fitted_says_so(tmp_path: Path) -> None:
    ranker = parse(LEARNED)
    for use in (ranker.rank, ranker.out_of_fold, lambda text: ranker.explain(text, "d01"), ranker.save):
        with pytest.raises(NotFittedError, match=r"is not fitted: call fit\(engine\) first"):
            use(str(tmp_path / "text"))
    assert list(tmp_path.iterdir()) == []
