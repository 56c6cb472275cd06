"""The ranker that answers with sets: its answers, explanations, saved folders, nesting, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.engines import assert_same
from support.ranker_contract import check_explanations, check_ranking, check_saved
from support.topics import topic_collection

from haybale import BM25, RRF, Cut, Engine, SimilarQueries, load, parse
from haybale.collections import Collection
from haybale.errors import InputError
from haybale.evaluation import evaluate
from haybale.rankers import EmptyRankingWarning, Training

INNER = "rrf(bm25,knn,knn-queries)"
pytestmark = pytest.mark.filterwarnings("ignore:.*finds no document for", "ignore:.*found at most")


@pytest.fixture(scope="module")
def training(engines: dict[str, Engine]) -> Training:
    return Training.of(engines["tfidf"])


@pytest.fixture(scope="module")
def cut(training: Training) -> Any:
    """Return a fitted ranker with these parameters; all share the rankings and models of the training queries."""
    inner = parse(INNER)._fitted_copy(training)
    return lambda **params: Cut(inner, **{"model": "logistic", **params})._fit_on(training)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"objective": "macro-f1", "model": "mean"},
        {"objective": "recall", "target": 0.8, "at_least_one": True, "depth": 12},
        {"objective": "precision", "target": 0.4, "model": "isotonic"},
        {"model": "trees"},
    ],
)
def test_the_contract_of_rankers(cut: Any, engines: dict[str, Engine], params: dict[str, Any], tmp_path: Path) -> None:
    ranker = cut(**params)
    whole = check_ranking(ranker)
    inner = ranker.rankers_[0].rank("dev", depth=ranker.depth)
    for query in whole.query_ids:  # the order and the scores are those of the ranker within
        kept = dict(whole[query])
        assert whole[query] == [(doc, score) for doc, score in inner[query] if doc in kept]
    assert len(list(check_explanations(ranker, *whole.query_ids[:3], n=3))) > 0 or ranker.may_answer_nothing
    again = check_saved(ranker, engines["tfidf"], tmp_path / "model")
    pd.testing.assert_frame_equal(again.probabilities("dev"), ranker.probabilities("dev"))  # the same bits


def test_answers_are_those_of_the_probabilities(cut: Any) -> None:
    for params in ({}, {"objective": "macro-f1"}, {"objective": "recall", "target": 0.7, "at_least_one": True}):
        ranker = cut(**params)
        frame, run = ranker.probabilities("dev"), ranker.rank("dev")
        rows, _, doc_ids, _ = run.flat()
        pairs = list(zip(np.array(run.query_ids)[rows], doc_ids.to_pylist(), strict=True))
        assert frame.loc[frame["answer"], ["query_id", "doc_id"]].apply(tuple, axis=1).tolist() == pairs
        if not params:
            assert (frame["answer"] == (frame["probability"] >= ranker.decision_.rule.threshold)).all()
        else:
            assert frame.groupby("query_id")["answer"].any().all()


def test_objectives_differ_as_they_should(cut: Any) -> None:
    n_answers = {}
    for params in (("precision", 0.3), ("precision", 0.6), ("recall", 0.5), ("recall", 0.8), ("recall", 0.95)):
        ranker = cut(objective=params[0], target=params[1])
        n_answers[params] = len(ranker.out_of_fold("train").flat()[0])
        report = ranker.fit_report_
        reached = report[f"{params[0]} by cross-validation"]
        assert reached >= params[1] or params[0] == "precision"
    assert n_answers["recall", 0.5] < n_answers["recall", 0.8] < n_answers["recall", 0.95]
    assert n_answers["precision", 0.6] <= n_answers["precision", 0.3]


def test_micro_f1_beats_every_fixed_depth_where_numbers_of_relevant_documents_differ() -> None:
    """Queries have one to five relevant documents, each of which alone has the words of the query."""
    texts = {f"d{number:03d}": f"word{number // 5} common" for number in range(200)}
    texts |= {f"x{number:03d}": f"other{number} common rare{number % 7}" for number in range(100)}
    queries, rows = {}, []
    for number in range(40):
        n_relevant = 1 + number % 5
        queries[f"q{number:02d}"] = f"word{number} common"
        for place in range(n_relevant, 5):  # the others lose the word of the query
            texts[f"d{5 * number + place:03d}"] = f"lost{number}x{place} common"
        rows += [(f"q{number:02d}", f"d{5 * number + place:03d}", 1) for place in range(n_relevant)]
    qrels = pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])
    ranker = Cut(BM25("document")).fit(Engine(texts), queries, qrels)
    run = ranker.out_of_fold(queries)
    inner = ranker.rankers_[0].rank(queries)
    best = max(evaluate(inner.top(n), qrels, ["MicroF1"])["MicroF1"].mean() for n in range(1, 10))
    assert evaluate(run, qrels, ["MicroF1"])["MicroF1"].mean() > best + 0.1
    assert ranker.fit_report_["micro-f1 of the best fixed depth"] == pytest.approx(best)


def test_measures_in_the_fit_report_are_those_of_the_answers_out_of_fold(cut: Any, training: Training) -> None:
    """The probabilities are those of the folds; the threshold in the report is that of all queries."""
    ranker = cut(objective="macro-f1")
    relevant = pd.DataFrame({"query_id": training.batch.ids, "doc_id": training.relevant, "relevance": 1})
    qrels = relevant.explode("doc_id").dropna()
    values = evaluate(ranker.out_of_fold("train"), qrels, ["SetF", "MicroP", "MicroR", "MicroF1"]).mean()
    report = ranker.fit_report_
    names = {"SetF": "macro-f1", "MicroP": "precision", "MicroR": "recall", "MicroF1": "micro-f1"}
    assert {name: report[f"{name} by cross-validation"] for name in names.values()} == pytest.approx(
        {names[measure]: value for measure, value in values.items()}
    )


def test_models_out_of_fold_do_not_learn_the_judgements_of_their_fold(topics: Collection) -> None:
    engine = Engine(topics)
    qrels = topics.qrels_frame("train")
    ranker = Cut(BM25(), model="logistic").fit(engine, "train")
    query = ranker.query_ids_[0]
    fold = ranker.fold_of_[0]
    changed = qrels[qrels["query_id"] != query]
    changed = pd.concat([changed, pd.DataFrame([{"query_id": query, "doc_id": "blank", "relevance": 1}])])
    queries = topics.queries.take(topics.split("train").queries)
    other = Cut(BM25(), model="logistic").fit(engine, queries, changed)
    rows = [list(ranker_.query_ids_).index(query) for ranker_ in (ranker, other)]
    assert other.fold_of_[rows[1]] == fold
    models = [ranker_.fold_decisions_[fold].model for ranker_ in (ranker, other)]
    assert all((models[0].arrays()[name] == models[1].arrays()[name]).all() for name in models[0].arrays())
    assert (ranker.decision_.model.coef != other.decision_.model.coef).any()


def test_the_result_does_not_depend_on_the_order_of_training_queries(topics: Collection) -> None:
    engine = Engine(topics)
    queries = topics.queries.take(topics.split("train").queries)
    backwards = queries.take(np.arange(len(queries))[::-1].copy())
    runs = [
        Cut(BM25(), model="mean").fit(engine, part, topics.qrels_frame("train")).rank("dev")
        for part in (queries, backwards)
    ]
    assert_same(*runs)


def test_nested_in_a_fusion_and_around_one(cut: Any, training: Training, engines: dict[str, Engine]) -> None:
    text = f"rrf(cut({INNER},objective='macro-f1',model='logistic'),bm25-doc)"
    fused = parse(text)._fitted_copy(training)
    answers = cut(objective="macro-f1").rank("dev")
    run = fused.rank("dev")
    document_run = BM25("document").fit(engines["tfidf"]).rank("dev")
    expected = RRF(BM25(), BM25("document"))  # the same constant and depth
    for query in run.query_ids[:5]:
        scores: dict[str, float] = {}
        for ranking in (answers[query], document_run[query]):
            for rank, (doc, _) in enumerate(ranking, 1):
                scores[doc] = scores.get(doc, 0.0) + 1 / (expected.k + rank)
        assert dict(run[query]) == pytest.approx(scores)
    assert not fused.may_answer_nothing
    assert fused.needs_training
    assert str(fused) == text
    first = run.query_ids[0]
    assert fused.explain(training.engine.collection.queries.take([0]), run[first][0][0]) is not None


def test_a_fitted_ranker_within_is_not_fitted_again(training: Training, engines: dict[str, Engine]) -> None:
    inner = RRF(BM25(), SimilarQueries(k=7)).fit(engines["tfidf"])
    cut = Cut(inner, model="logistic").fit(engines["tfidf"])
    assert cut.rankers_[0] is inner


def test_explanations_say_why_documents_are_in_or_out(cut: Any) -> None:
    ranker = cut(objective="macro-f1")
    frame = ranker.probabilities("dev")
    query = frame["query_id"].iloc[0]
    of_query = frame[frame["query_id"] == query]
    text = ranker.engine_.collection.queries.take(ranker.engine_.collection.query_numbers([query]))
    inside, outside = of_query[of_query["answer"]].iloc[0], of_query[~of_query["answer"]]
    following = outside.loc[outside["probability"].idxmax()]
    why = ranker.explain(text, inside["doc_id"])
    assert why.rank == 1
    assert f"{inside['probability']:.3f}" in why.notes[0]
    assert following["doc_id"] in why.notes[-1]
    assert f"{following['probability']:.3f}" in why.notes[-1]
    why_not = ranker.explain(text, following["doc_id"])
    assert (why_not.rank, why_not.score, why_not.shares) == (None, None, [])
    assert f"{following['probability']:.3f}" in why_not.text()
    missing = ranker.explain(text, "blank")
    assert str(ranker.depth) in missing.notes[0]
    threshold = cut(objective="precision", target=0.4)
    assert f"{threshold.decision_.rule.threshold:.3f}" in threshold.explain(text, inside["doc_id"]).notes[0]


def test_a_search_shows_the_answer(cut: Any) -> None:
    ranker = cut(objective="macro-f1")
    text = ranker.engine_.collection.queries.texts([0])[0]
    hits = ranker.search(text, k=10)
    assert [hit.doc_id for hit in hits] == [doc for doc, _ in ranker.rank({"q": text})["q"]]
    assert all(hit.snippets for hit in hits)


@pytest.mark.filterwarnings("error")
def test_queries_without_candidates_and_without_answers(cut: Any) -> None:
    assert cut().rank({"q": "zzzz"})["q"] == []
    assert len(cut().probabilities({"q": "zzzz"})) == 0
    with pytest.warns(EmptyRankingWarning):
        assert cut(at_least_one=True).rank({"q": "zzzz"})["q"] == []


def test_too_few_training_queries_are_an_error(topics: Collection) -> None:
    engine = Engine(topics)
    queries = topics.queries.take(topics.split("train").queries[:9])
    ids = queries.ids.to_pylist()
    qrels = topics.qrels_frame("train")
    with pytest.raises(InputError, match="at least 10 training queries"):
        Cut(BM25()).fit(engine, queries, qrels[qrels["query_id"].isin(ids)])
    everything = pd.DataFrame([(query, "blank", 1) for query in ids], columns=["query_id", "doc_id", "relevance"])
    with pytest.raises(InputError, match="found 0"):
        Cut(BM25()).fit(engine, queries, everything)


def test_a_target_that_is_not_reached_is_a_warning(engines: dict[str, Engine]) -> None:
    with pytest.warns(UserWarning, match="recall 1.0, found at most"):
        Cut(BM25(), objective="recall", target=1.0, depth=3, model="logistic").fit(engines["tfidf"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("cut", "needs a ranker"),
        ("cut(bm25,objective=f1)", "objective"),
        ("cut(bm25,objective=precision)", "needs a target"),
        ("cut(bm25,target=0.5)", "has no target"),
        ("cut(bm25,objective=recall,target=1.5)", "target"),
        ("cut(bm25,model=forest)", "model"),
        ("cut(bm25,depth=0)", "depth"),
    ],
)
def test_wrong_parameters(text: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        parse(text)


def test_documents_added_later_are_candidates(tmp_path: Path) -> None:
    engine = Engine.build(topic_collection(), tmp_path / "engine")
    ranker = Cut(BM25(), objective="macro-f1", model="logistic").fit(engine)
    engine.add({"new": "lababasox kodubakox unheard words"})
    ranker.save(tmp_path / "model")
    found = load(tmp_path / "model", Engine.open(tmp_path / "engine")).rank({"q": "unheard"})["q"]
    assert [doc for doc, _ in found] == ["new"]


def test_many_queries_are_decided_in_blocks(cut: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = cut(objective="macro-f1")
    whole, frame, out_of_fold = ranker.rank("dev"), ranker.probabilities("dev"), ranker.out_of_fold("train")
    monkeypatch.setattr("haybale.rankers.cut._QUERIES_AT_ONCE", 4)
    assert_same(ranker.rank("dev"), whole)
    pd.testing.assert_frame_equal(ranker.probabilities("dev"), frame)
    assert_same(ranker.out_of_fold("train"), out_of_fold)
