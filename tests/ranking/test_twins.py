"""Twins: the same question under several ids changes little of what rankers learn, and never tests what it taught."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.pydocs_part import part_of_pydocs
from support.topics import LEARNING, topic_collection

from haybale import Engine, Run, compare, evaluate, load, parse
from haybale.cached import cached_property
from haybale.collections import Collection, CollectionBuilder, Queries
from haybale.collections.query_groups import words_key
from haybale.evaluation import tune_bm25
from haybale.evaluation.comparison import KNOWN_QUESTIONS
from haybale.rankers import (
    SVR,
    Learned,
    OutOfFold,
    Popularity,
    QueryBatch,
    Ranker,
    SimilarQueries,
    Training,
    UnseenDocuments,
)
from haybale.rankers.models.new_queries import unseen_queries
from haybale.ranking import twins
from haybale.ranking.twins import ContradictoryTwinsWarning

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row", "ignore:.* bags are trained")
EXAMPLE = "learned(bm25-doc,knn,parm-vrrf,knn-queries)"
SMALL_SVR = "svr(n_candidates=20,n_bags=12,n_jobs=1)"
Change = Callable[[str, random.Random], str]


def unchanged(text: str, rng: random.Random) -> str:
    return text


def shouted(text: str, rng: random.Random) -> str:
    return "¿ " + text.upper().replace(" ", " - ") + " ?!"


def shuffled(text: str, rng: random.Random) -> str:
    words = text.split()
    return " ".join(rng.sample(words, len(words)))


def longer(text: str, rng: random.Random) -> str:
    return f"{text} {rng.choice(['please', 'today', 'anyway'])}"


def with_copies(
    collection: Collection,
    n: int,
    rng: random.Random,
    *,
    share: float = 1.0,
    copies: int = 1,
    change: Change = unchanged,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``n`` training queries and their judgements, a share of them ``copies`` times more under other ids."""
    queries = collection.queries.take(collection.split("train").queries[:n])
    ids, texts, own = queries.ids.to_pylist(), queries.texts(range(len(queries))), queries.own.tolist()
    doc_ids, judged = collection.doc_ids.to_pylist(), collection.qrels_frame("train")
    judged = judged[judged["query_id"].isin(ids)]
    rows = [(query, text, doc_ids[o] if o >= 0 else None) for query, text, o in zip(ids, texts, own, strict=True)]
    frames = [judged]
    for query, text, document in list(rows):
        for number in range(copies if rng.random() < share else 0):
            rows.append((f"{query}-{number}", change(text, rng), document))
            frames.append(judged[judged["query_id"] == query].assign(query_id=rows[-1][0]))
    return pd.DataFrame(rows, columns=["query_id", "text", "own"]), pd.concat(frames)


def ndcg(ranker: Ranker) -> float:
    qrels = ranker.engine_.collection.qrels_frame("dev")
    return float(evaluate(ranker.rank("dev", depth=100), qrels, ["nDCG@10"])["nDCG@10"].mean())


@pytest.fixture(scope="module")
def part(pydocs: Collection) -> Engine:
    return Engine(part_of_pydocs(pydocs, 6))


@pytest.mark.parametrize("name", [EXAMPLE, pytest.param(SMALL_SVR, marks=pytest.mark.thorough)])
def test_the_same_queries_under_second_ids(part: Engine, name: str) -> None:
    """The fall of these measures was from .57 to .09, and from .38 to .34, when copies were in other folds and bags."""
    measures = []
    for copies in (0, 1):
        queries, qrels = with_copies(part.collection, 100, random.Random(0), copies=copies)
        measures.append(ndcg(parse(name).fit(part, queries.assign(own=None), qrels)))
    assert measures[0] == measures[1]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2, 3))])
@pytest.mark.parametrize("change", [unchanged, shouted, shuffled, longer])
def test_copies_hardly_change_what_is_learned(seed: int, change: Change) -> None:
    """For any share of the training queries and any number of copies; equal words change nothing at all."""
    rng, collection = random.Random(seed), topic_collection(40, 30, 1, seed)
    engine = Engine(collection)
    share, copies = rng.choice([0.1, 0.5, 1.0]), rng.randint(1, 9)
    for name in ("knn-queries(k=7)", "bm25-weighted(min_count=2)", "learned(bm25,knn-queries,bm25-weighted)"):
        runs = []
        for frames in (
            with_copies(collection, 40, rng, copies=0),
            with_copies(collection, 40, rng, share=share, copies=copies, change=change),
        ):
            runs.append(parse(name).fit(engine, *frames))
        assert abs(ndcg(runs[0]) - ndcg(runs[1])) < 0.02, f"{name}: {share:.0%}, {copies} times"
        if change is not longer:
            assert runs[0].rank("dev") == runs[1].rank("dev")


def learners(ranker: Ranker) -> Iterator[Ranker]:
    """Yield the rankers that learn, the ranker itself and those within."""
    for inner in ranker.rankers_:
        yield from learners(inner)
    if isinstance(ranker, OutOfFold) and not isinstance(ranker, UnseenDocuments):  # which only asks those within
        yield ranker


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("change", [unchanged, longer])
def test_no_twin_teaches_what_a_query_tests(name: str, change: Change) -> None:
    """In no fold, bag or list of neighbours is a query of the same group; each question is learned from once."""
    collection, rng = topic_collection(24, 6, 1), random.Random(3)
    queries, qrels = with_copies(collection, 24, rng, share=0.6, copies=2, change=change)
    ranker = parse(name).fit(Engine(collection), queries, qrels)
    words = dict(zip(queries["query_id"], map(words_key, queries["text"]), strict=True))
    question = {query: query.split("-")[0] for query in queries["query_id"]}
    n_learners = 0
    for each in learners(ranker):
        n_learners += 1
        assert len({words[query] for query in each.query_ids_}) == len(each.query_ids_)
        assert {question[query] for query in each.learned_from()} <= set(question.values())
        assert each.learned_from() >= set(each.query_ids_)
        ids = queries["query_id"].tolist()
        rows = each.rows_of(ids)  # type: ignore[attr-defined]
        assert all(question[each.query_ids_[row]] == question[query] for query, row in zip(ids, rows, strict=True))
        by_question: dict[str, set[Any]] = {}
        for query, row in zip(ids, rows.tolist(), strict=True):
            if hasattr(each, "fold_of_"):
                by_question.setdefault(question[query], set()).add(int(each.fold_of_[row]))
            elif isinstance(each, SVR):
                by_question.setdefault(question[query], set()).add(tuple(each.ensemble_.seen_[row]))
            elif isinstance(each, SimilarQueries | Popularity):
                by_question.setdefault(question[query], set()).add(int(each.groups_[row]))
        assert by_question
        assert all(len(values) == 1 for values in by_question.values())
    assert n_learners
    run = ranker.out_of_fold(queries)
    for query in queries["query_id"]:
        if change is unchanged:
            assert run[query] == run[question[query]], "a copy is ranked by what was learned from the query"


def two_questions(**more: dict[str, int]) -> tuple[dict[str, str], pd.DataFrame]:
    """Return queries, those in ``more`` with the words of the first, and their judgements."""
    queries = {"dogs": "Must dogs wear a lead?", "taxes": "When are taxes due in May?"}
    queries |= dict.fromkeys(more, "must DOGS wear: a lead")
    grades = {"dogs": {"d1": 1, "d2": 0}, "taxes": {"d3": 1}} | more
    rows = [(query, doc, grade) for query, judged in grades.items() for doc, grade in judged.items()]
    return queries, pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])


@pytest.fixture(scope="module")
def laws() -> Engine:
    texts = {
        "d1": "Dogs must be kept on a lead.",
        "d2": "Cats need no lead.",
        "d3": "Taxes are due in May.",
        "d4": "x y",
    }
    return Engine({name: [text] for name, text in texts.items()}, encoder="tfidf")


def test_twins_that_complement_each_other(laws: Engine) -> None:
    training = Training.of(laws, *two_questions(b={"d4": 1}, c={"d1": 2, "d3": 3}))
    assert training.batch.ids == ["taxes", "b"]
    assert training.relevant == [["d3"], ["d4", "d1", "d3"]]
    assert training.twins.representatives == {"c": "b", "dogs": "b"}
    assert not training.twins.contradictions


@pytest.mark.parametrize(
    ("more", "relevant"),
    [
        ({"e": {"d2": 1}}, ["d1", "d2"]),
        ({"e": {"d1": 0}}, ["d1"]),
        ({"e": {"d1": 0}, "f": {"d1": 0}}, []),
        ({"e": {"d1": 0}, "f": {"d1": 0}, "g": {"d1": 3, "d4": 1}}, ["d1", "d4"]),
        ({"e": {"d2": 1}, "f": {"d2": 0}}, ["d1"]),
    ],
)
def test_twins_that_contradict_each_other(laws: Engine, more: dict[str, Any], relevant: list[str]) -> None:
    """The majority decides, in favour of relevance if there are as many of both; users are told."""
    training = Training.of(laws, *two_questions(**more))
    with pytest.warns(ContradictoryTwinsWarning, match="dogs"):
        assert sorted(training.relevant[0]) == relevant
    assert len(training.twins.contradictions) == 1
    with pytest.warns(ContradictoryTwinsWarning):
        ranker = SimilarQueries().fit(laws, *two_questions(**more))
    assert ranker.fit_report_["twins of training queries"] == len(more)
    assert ranker.fit_report_["documents that twins judge differently"] == 1
    first = ranker.fit_report_["the first of them"]
    assert {"dogs", *more} >= {first["relevant"], first["irrelevant"]}


def test_contradictions_are_told_for_all_queries_of_the_collection() -> None:
    """A twin without a relevant document has no place in training, but its judgements count."""
    builder = CollectionBuilder("c", language="english")
    for number in range(4):
        builder.add_document(f"d{number}", [f"text {number}"])
    for query, text in {"one": "Dogs bark", "two": "dogs, BARK!", "three": "cats"}.items():
        builder.add_query(query, [text], split="train")
    for query, document, grade in [("one", "d1", 1), ("two", "d1", 0), ("three", "d2", 1), ("three", "d3", 0)]:
        builder.add_judgement("train", query, document, grade)
    engine = Engine(builder.build())
    frame = engine.collection.qrels_frame("train")
    for training in (Training.of(engine), Training.of(engine, None, frame)):
        with pytest.warns(ContradictoryTwinsWarning):
            assert training.batch.ids == ["one", "three"]
        assert training.relevant == [["d1"], ["d2"]]


def test_twins_of_documents(laws: Engine) -> None:
    """Queries from different documents stay apart, in one group; one from a document stands for one from none."""
    texts = {"a": "d1", "b": "d2", "c": None, "z": None}
    frame = pd.DataFrame([(query, "the same question", own) for query, own in texts.items()])
    queries = frame.set_axis(["query_id", "text", "own"], axis=1)
    qrels = pd.DataFrame({"query_id": list(texts), "doc_id": ["d3", "d3", "d3", "d4"], "relevance": 1})
    training = Training.of(laws, queries, qrels)
    assert training.batch.ids == ["a", "b"]
    assert training.relevant == [["d3", "d4"], ["d3"]]
    assert training.batch.groups.tolist() == [0, 0]
    assert unseen_queries(training.relevant, training.batch.groups).all(), "only twins share the document"


def test_queries_that_are_nearly_the_same(laws: Engine) -> None:
    """They share a group; if they share a relevant document, they are twins."""
    text = " ".join(f"word{number}" for number in range(30))
    queries = {"a": text, "b": f"{text} more", "c": f"more {text} other", "d": f"{text} again", "e": text[:40]}
    qrels = pd.DataFrame({"query_id": list(queries), "doc_id": ["d1", "d1", "d2", "d2", "d1"], "relevance": 1})
    training = Training.of(laws, queries, qrels)
    assert training.batch.ids == ["a", "c", "e"]
    assert training.relevant == [["d1"], ["d2"], ["d1"]]
    assert training.batch.groups[0] == training.batch.groups[1] != training.batch.groups[2]


def test_a_chain_does_not_swallow_what_is_not_the_same(laws: Engine) -> None:
    """Each query of a chain is nearly the same as the next one; only those near the first are its twins."""
    words = [f"word{number}" for number in range(200)]
    queries = {f"q{start:03}": " ".join(words[start : start + 60]) for start in range(100)}
    qrels = pd.DataFrame({"query_id": list(queries), "doc_id": "d1", "relevance": 1})
    training = Training.of(laws, queries, qrels)
    assert 4 <= len(training.batch) <= 10
    others = qrels.assign(doc_id=[f"d{number % 4 + 1}" for number in range(100)])  # neighbours share no document
    chain = Training.of(laws, queries, others)
    assert len(np.unique(chain.all_queries.groups)) == 1
    assert len(np.unique(chain.batch.groups)) == len(chain.batch) > 10
    assert len(np.unique(chain.batch.folds(5, 0))) == 5


def test_saved_rankers_know_their_twins(laws: Engine, tmp_path: Path) -> None:
    queries, qrels = two_questions(twin={"d1": 1})
    for name in ("knn-queries", "rrf(bm25,knn-queries)", "bm25-weighted(min_count=1)"):
        ranker = parse(name).fit(laws, queries, qrels)
        ranker.save(tmp_path / name)
        again = load(tmp_path / name, laws)
        assert again.learned_from() == ranker.learned_from() == {"dogs", "taxes", "twin"}
        assert again.fit_report_ == ranker.fit_report_
        assert again.out_of_fold(queries) == ranker.out_of_fold(queries)
        assert again.out_of_fold(queries)["twin"] == again.out_of_fold(queries)["dogs"]


@pytest.mark.thorough
def test_without_twins_nothing_changes(part: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same runs to the last bit as with groups of documents only, where no query is grouped anew."""
    queries, qrels = with_copies(part.collection, 100, random.Random(0), copies=0)
    training = Training.of(part, queries, qrels)
    alone = np.unique(training.batch.groups, return_index=True)[1]
    queries = queries[queries["query_id"].isin([training.batch.ids[row] for row in alone])]
    qrels = qrels[qrels["query_id"].isin(queries["query_id"])]

    def ranked() -> list[Run]:
        names = (EXAMPLE, SMALL_SVR, "bm25-weighted")
        return [parse(name).fit(part, queries, qrels).rank("dev", depth=100) for name in names]

    runs = ranked()

    def groups_of_documents(batch: QueryBatch) -> Any:
        own, doc_ids = batch.own, part.collection.doc_ids.to_pylist()
        places = np.argsort(np.argsort(doc_ids))
        return np.unique(np.where(own >= 0, places[own], -1 - np.arange(len(own))), return_inverse=True)[1]

    def unmerged(batch: QueryBatch, relevant: Any, irrelevant: Any) -> Any:
        return np.arange(len(batch)), relevant, twins.Twins()

    monkeypatch.setattr(QueryBatch, "groups", cached_property(groups_of_documents))
    QueryBatch.groups.__set_name__(QueryBatch, "groups")  # type: ignore[attr-defined]
    monkeypatch.setattr("haybale.ranking.training.merged_twins", unmerged)
    assert ranked() == runs


def test_unseen_queries_stay_unseen(topics: Collection) -> None:
    """A twin is no other query to which a document is relevant, so it makes no query seen."""
    engine = Engine(topics)
    reports = []
    for copies in (0, 3):
        frames = with_copies(topics, 60, random.Random(1), copies=copies)
        ranker: Any = Learned(SimilarQueries(), parse("bm25"), depth=30).fit(engine, *frames)
        reports.append(ranker.fit_report_["unseen training queries"])
    assert reports[0] == reports[1] > 0


def test_tuning_counts_the_same_words_once() -> None:
    collection = topic_collection(10, 30, 1)
    queries, split = collection.queries, collection.split("dev")
    builder = CollectionBuilder("copies", language="english")
    texts, offsets = collection.passages.texts.to_pylist(), collection.passages.doc_offsets.tolist()
    for number, doc_id in enumerate(collection.doc_ids.to_pylist()):
        builder.add_document(doc_id, texts[offsets[number] : offsets[number + 1]])
    ids, doc_ids = queries.ids.to_pylist(), collection.doc_ids.to_pylist()
    for copy in ("", "-2", "-3"):
        for number in split.queries.tolist():
            own = int(queries.own[number])
            builder.add_query(
                ids[number] + copy, queries.paragraphs_of(number), own=doc_ids[own] if own >= 0 else None, split="dev"
            )
        for row in collection.qrels_frame("dev").itertuples():
            builder.add_judgement("dev", f"{row.query_id}{copy}", row.doc_id, row.relevance)
    tuned = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in (replace(collection, splits={"dev": split}), builder.build()):
            tuned.append(tune_bm25(each, "document", k1=(0.6, 1.2, 3.0), b=(0.3, 0.75), k3=(None,)))
    assert tuned[0].gain == pytest.approx(tuned[1].gain, abs=0.02)
    assert tuned[0].interval is not None
    assert tuned[1].interval is not None
    widths = [high - low for low, high in (tuned[0].interval, tuned[1].interval)]
    assert widths[1] > 0.8 * widths[0], "copies are no evidence"


def test_comparisons_say_how_many_questions_are_known(topics: Collection) -> None:
    assert KNOWN_QUESTIONS not in compare(topics, "knn-queries").facts
    texts = topics.queries.texts(range(len(topics.queries)))
    known, asked = topics.split("train").queries[0], topics.split("dev").queries[:2]
    for number in asked.tolist():
        texts[number] = texts[known].upper() + "?"
    paragraphs = pa.chunked_array([pa.array(texts, type=pa.large_string())])
    queries = Queries(topics.queries.ids, paragraphs, np.arange(len(texts) + 1), topics.queries.own)
    changed = replace(topics, queries=queries)
    told = compare(changed, "knn-queries").facts[KNOWN_QUESTIONS]
    assert (told["queries"], told["of"]) == (2, len(topics.split("dev").queries))
    assert told["training query"] == topics.queries.ids[int(known)].as_py()
    assert told["first"] == topics.queries.ids[int(asked[0])].as_py()
    assert KNOWN_QUESTIONS not in compare(changed, "knn").facts, "nothing is learned"
