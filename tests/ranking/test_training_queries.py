"""Training queries: few or none, judgements in any form, and errors before any search."""

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
    """Return the first n training queries with their judgements."""
    frame = topics.qrels_frame("train")
    ids = list(dict.fromkeys(frame["query_id"]))[:n]
    queries = {query: topics.queries.paragraphs_of(int(topics.query_numbers([query])[0])) for query in ids}
    return queries, frame[frame["query_id"].isin(ids)]


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("name", ["svr", "learned(bm25,knn-queries,svr(unit=passage))"])
def test_fewer_training_queries_than_bags(topics: Collection, name: str, n: int) -> None:
    queries, qrels = few(topics, n)
    with pytest.warns(UserWarning, match=rf"svr.*: {n} .*24, only {n} bags"):
        ranker: Any = parse(name).fit(Engine(topics), queries, qrels)
    ensemble = ranker.rankers_[2].ensemble_ if name.startswith("learned") else ranker.ensemble_
    assert ensemble.n_bags == n
    assert len(ranker.rank("dev").flat()[0]) > 30
    assert ranker.out_of_fold(queries).query_ids == list(queries)
    assert ranker.learned_from() == set(queries)


def test_one_training_query(topics: Collection) -> None:
    """One query is enough for similar queries; an ensemble needs more, and raises before any search."""
    queries, qrels = few(topics, 1)
    engine = Engine(topics)
    ranker = parse("learned(bm25,knn-queries)").fit(engine, queries, qrels)
    assert len(ranker.rank("dev").flat()[0]) > 30
    with pytest.raises(InputError, match="'train0'"):
        ranker.out_of_fold(queries)
    for name in ("svr", "svr-memory"):
        with pytest.raises(InputError, match=r"at least 2 .*found 1"), record_timings(refuse):
            parse(name).fit(engine, queries, qrels)


def refuse(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} ran before the error")


@pytest.mark.parametrize("name", [*LEARNING, "learned", "learned(bm25,knn)"])
def test_without_training_queries_no_work_is_done(name: str) -> None:
    builder = CollectionBuilder("no train")
    builder.add_document("d", ["a dog barks", "a dog sleeps"])
    builder.add_query("q", ["dog"], split="test")
    builder.add_query("r", ["cat"], split="unjudged")
    builder.add_judgement("test", "q", "d")
    builder.add_judgement("unjudged", "r", "d", 0)
    engine, ranker = Engine(builder.build()), parse(name)
    for queries, named in [(None, "'train'.*test, unjudged"), ("unjudged", "found none"), ({"q": "dog"}, "qrels=")]:
        with pytest.raises(InputError, match=named), record_timings(refuse):
            ranker.fit(engine, queries)
    with pytest.raises(UnknownNameError, match=r"'tain'.* test, unjudged"):
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
    ("changed", "named"),
    [
        ({"query_id": "nobody"}, "'nobody'"),
        ({"doc_id": "nothing"}, "'nothing'"),
        ({"relevance": "high"}, "relevance"),
        ({"relevance": 0}, "found none"),
        ({"doc_id": None}, "doc_id"),
        (None, "'train0' and document .* found several"),
    ],
)
def test_invalid_judgements(topics: Collection, changed: Any, named: str) -> None:
    queries, frame = few(topics, 5)
    judged = pd.concat([frame, frame.assign(relevance=9)]) if changed is None else frame.assign(**changed)
    with pytest.raises(InputError, match=named), record_timings(refuse):
        SimilarQueries().fit(Engine(topics), queries, judged)


def test_errors_before_fitting(tmp_path: Path) -> None:
    ranker = parse(LEARNED)
    for use in (ranker.rank, ranker.out_of_fold, lambda text: ranker.explain(text, "d01"), ranker.save):
        with pytest.raises(NotFittedError, match="learned"):
            use(str(tmp_path / "text"))
    assert list(tmp_path.iterdir()) == []
