"""Rankers are trained on reviewed topics as on the same judged queries of a collection."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.learners import CountingLearner

import haybale
from haybale import Engine, InputError, JudgementStore, Review, UnknownNameError
from haybale.collections import Collection
from haybale.review import Judgement, judged_topics, train_ranker


def store_of(collection: Collection, path: Path, n: int) -> JudgementStore:
    """Return a store in which n training queries have been judged."""
    store = JudgementStore(path)
    qrels = collection.qrels_frame("train")
    numbers = collection.split("train").queries[:n].tolist()
    ids, texts = collection.queries.ids.take(numbers).to_pylist(), collection.queries.texts(numbers)
    for query_id, text in zip(ids, texts, strict=True):
        of_query = qrels[qrels["query_id"] == query_id]
        rows = zip(of_query["doc_id"], of_query["relevance"].tolist(), strict=True)
        store.add(store.add_topic(query_id, text), *(Judgement(doc, "judged", max(grade, 0)) for doc, grade in rows))
    return store


def test_a_store_trains_a_ranker_as_the_same_judged_queries_do(topics: Collection, tmp_path: Path) -> None:
    engine = Engine(topics)
    with store_of(topics, tmp_path / "store.sqlite", 40) as store:
        queries, qrels = judged_topics(store, engine)
        for name in ("svr(n_candidates=12,n_bags=8,n_jobs=1)", "learned(bm25,knn,knn-queries,depth=30)"):
            trained = train_ranker(haybale.parse(name), engine, store)
            expected = haybale.parse(name).fit(engine, queries, qrels)
            assert trained.rank("dev").to_frame().equals(expected.rank("dev").to_frame())
            trained.save(tmp_path / name[:4])
            again = haybale.load(tmp_path / name[:4], engine)
            assert again.rank("dev").to_frame().equals(expected.rank("dev").to_frame())
    assert len(queries) == len(set(qrels["query_id"])) > 30
    assert train_ranker(haybale.KNN(), engine, tmp_path / "store.sqlite").rank("dev")


def test_topics_become_training_queries_of_the_engine(topics: Collection, tmp_path: Path) -> None:
    engine = Engine(
        {doc_id: text for doc_id, text in zip(topics.doc_ids.to_pylist(), topics.document_texts(), strict=True) if text}
    )
    with store_of(topics, tmp_path / "store.sqlite", 10) as store:
        queries, qrels = judged_topics(store, engine)
        assert engine.judge(qrels, queries).n_new_queries == len(queries)
        assert haybale.SimilarQueries().fit(engine).rank(queries)


def test_what_cannot_be_learned_from_is_left_out(tmp_path: Path) -> None:
    engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    path = tmp_path / "store.sqlite"
    with Review(engine, "loud pets", judgements=path, learner=CountingLearner, combine="maximum") as review:
        review.judge("a", 1, "Ada")
        review.judge("a", 0, "Bob")
        review.judge("b", 0)
    with Review(engine, known=["b"], topic="no text", judgements=path, learner=CountingLearner):
        pass
    with Review(engine, "nothing found", judgements=path, learner=CountingLearner) as review:
        review.judge("a", 0)
    with Review(engine, "loud\tpets", judgements=path, learner=CountingLearner) as review:
        review.judge("b", 1)
    queries, qrels = judged_topics(path)
    assert queries == {"loud-pets": "loud pets", "loud-pets-4": "loud\tpets"}
    assert qrels.to_numpy().tolist() == [["loud-pets", "a", 1], ["loud-pets", "b", 0], ["loud-pets-4", "b", 1]]
    assert judged_topics(path, combine="latest")[0] == {"loud-pets": "loud\tpets"}
    assert judged_topics(path, topics=["loud pets"])[0] == {"loud-pets": "loud pets"}
    engine.remove(["a"])
    assert judged_topics(path, engine)[1].to_numpy().tolist() == [["loud-pets", "b", 1]]
    for wrong in (lambda: judged_topics(path, topics=["other"]), lambda: judged_topics(path, combine="vote")):
        with pytest.raises(UnknownNameError):
            wrong()
    with pytest.raises(InputError, match="no file"):
        judged_topics(tmp_path / "missing.sqlite")
    with JudgementStore() as empty, pytest.raises(InputError, match="topic"):
        train_ranker(haybale.SVR(), engine, empty)
