"""Rankers on another engine: rankings, and queries that must not be learned from because encoders have seen them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace
from typing import Any

import pytest
from support.engines import assert_same
from support.ranker_cases import queries_of
from support.topics import NEW, topic_collection
from support.topics import SVR as SMALL_SVR

from haybale import CollectionBuilder, Engine, load
from haybale.embeddings.lineage import trained_queries
from haybale.errors import FileFormatError, InputError, StoreError
from haybale.rankers import (
    BM25,
    KNN,
    PARM,
    RRF,
    SVR,
    InSpace,
    Learned,
    SimilarQueries,
    from_spec,
    in_space,
    parse,
    set_values,
)

pytestmark = pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(topic_collection())


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return folders of engines of the same collection, with LSA of several widths."""
    folder = tmp_path_factory.mktemp("others")
    for n in (4, 6, 9):
        Engine.build(topic_collection(), folder / f"lsa{n}", encoder=f"lsa(n_components={n})")
    return {f"lsa{n}": str(folder / f"lsa{n}") for n in (4, 6, 9)}


@pytest.fixture
def trained(others: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, frozenset[str]]:
    """Return the queries that the encoder of each width counts as trained on, for tests to set."""
    seen = {4: frozenset[str](), 6: frozenset[str](), 9: frozenset[str]()}
    monkeypatch.setattr("haybale.ranking.contract.trained_queries", lambda encoder: seen.get(encoder.dim, frozenset()))
    monkeypatch.setattr("haybale.rankers.in_space.trained_queries", lambda encoder: seen.get(encoder.dim, frozenset()))
    return seen  # type: ignore[return-value]


@pytest.mark.parametrize("inner", [KNN(), PARM("rrf"), BM25("document"), parse(f"svr-memory({SMALL_SVR})")], ids=str)
def test_rankings_are_those_of_the_other_engine(engine: Engine, others: dict[str, str], inner: Any) -> None:
    there = Engine.open(others["lsa6"])
    ranker, plain = InSpace(inner, others["lsa6"]).fit(engine), inner.clone().fit(there)
    run = ranker.rank("dev")
    assert_same(run, plain.rank("dev"))
    for depth in (1, 5):
        assert_same(ranker.rank("dev", depth=depth), run.top(depth))
    assert_same(ranker.out_of_fold("train"), plain.out_of_fold("train"))
    assert ranker.needs_training == inner.needs_training
    query, best = "dev1", run["dev1"][0][0]
    why = ranker.explain(queries_of(ranker, query), best)
    assert why.rank == 1
    assert math.fsum(share.share for share in why.shares) == pytest.approx(why.score)
    assert why.shares[0].of is not None
    some = engine.collection.doc_ids.to_pylist()[::2]
    within = ranker.rank("dev", within=some)
    assert_same(within, plain.rank("dev", within=some))


def test_only_documents_of_both_engines_are_found(others: dict[str, str], tmp_path: Path) -> None:
    engine = Engine(topic_collection())
    ranker = InSpace(KNN(), others["lsa6"]).fit(engine)
    first = ranker.rank("dev")["dev1"][0][0]
    engine.add({"new": "something else"})
    engine.remove([first])
    found = ranker.rank("dev", depth=100)["dev1"]
    expected = Engine.open(copytree(others["lsa6"], tmp_path / "copy"))
    expected.remove([first])
    assert found == KNN().fit(expected).rank("dev", depth=100)["dev1"]


def test_out_of_fold_an_encoder_that_has_not_seen_the_query_ranks_it(
    engine: Engine, others: dict[str, str], trained: dict[int, frozenset[str]]
) -> None:
    train = engine.collection.queries.ids.take(engine.collection.split("train").queries).to_pylist()
    trained[4], trained[6], trained[9] = frozenset(train[:50]), frozenset(train[:30]), frozenset(train[20:50])
    folds = [others["lsa6"], others["lsa9"]]
    ranker = InSpace(PARM("rrf"), others["lsa4"], folds=folds).fit(engine)
    assert ranker.needs_training
    assert ranker.encoder_queries == frozenset(train[20:30])
    with pytest.raises(InputError, match="'train20'"):
        ranker.out_of_fold("train")
    of = {n: PARM("rrf").fit(Engine.open(others[f"lsa{n}"])).rank("train") for n in (4, 6, 9)}
    rest = [query for query in train if query not in train[20:30]]
    run = ranker.out_of_fold(queries_of(ranker, *rest))
    for query in rest:
        n = 4 if query in train[50:] else 9 if query in train[:20] else 6
        assert run[query] == of[n][query], query
    assert_same(ranker.rank("train"), of[4])


@pytest.mark.parametrize("of", ["space", "fusion", "engine", "learned"])
def test_out_of_fold_refuses_queries_that_the_encoder_was_trained_on(
    engine: Engine, others: dict[str, str], trained: dict[int, frozenset[str]], of: str
) -> None:
    """Their rankings would be biased, whether or not the ranker itself learns from judged queries."""
    train = engine.collection.queries.ids.take(engine.collection.split("train").queries).to_pylist()
    trained[6] = frozenset(train[:25])
    space, there = InSpace(KNN(), others["lsa6"]), Engine.open(others["lsa6"])
    ranker = {
        "space": lambda: space.fit(engine),
        "fusion": lambda: RRF(BM25(), space).fit(engine),
        "engine": lambda: KNN().fit(there),
        "learned": lambda: Learned(BM25(), RRF(BM25("document"), SimilarQueries(), KNN())).fit(there),
    }[of]()
    assert len(ranker.rank("train")) == len(train)
    with pytest.raises(InputError, match="'train0'"):
        ranker.out_of_fold("train")
    with pytest.raises(InputError, match="1 of 3"):
        ranker.out_of_fold(queries_of(ranker, *train[24:27]))
    assert len(ranker.out_of_fold(queries_of(ranker, *train[25:]))) == len(train) - 25
    assert BM25().fit(there).out_of_fold("train") == BM25().fit(there).rank("train")  # it does not use the encoder


def test_a_ranker_cannot_learn_in_a_space_whose_encoder_has_seen_all_queries(
    engine: Engine, others: dict[str, str], trained: dict[int, frozenset[str]]
) -> None:
    """The advice is to learn outside it, since engines of folds do not help there."""
    train = engine.collection.queries.ids.take(engine.collection.split("train").queries).to_pylist()
    trained[6], trained[4], trained[9] = frozenset(train), frozenset(train[:30]), frozenset(train[30:])
    folds = [others["lsa4"], others["lsa9"]]
    with pytest.raises(InputError, match="outside its space"):
        InSpace(parse(f"svr-memory({SMALL_SVR})"), others["lsa6"], folds=folds).fit(engine)
    with pytest.raises(InputError, match=r"folds=\[…\] of the rankers within"):
        SVR([BM25(), InSpace(KNN(), others["lsa6"])], n_bags=6, n_jobs=1).fit(engine)
    outside = SVR([BM25(), InSpace(KNN(), others["lsa6"], folds=folds)], n_bags=6, n_jobs=1).fit(engine)
    assert set(outside.query_ids_) == set(train)
    assert len(outside.out_of_fold("train")) == len(train)


def test_nothing_is_learned_from_queries_that_encoders_have_seen(
    engine: Engine, others: dict[str, str], trained: dict[int, frozenset[str]]
) -> None:
    train = engine.collection.queries.ids.take(engine.collection.split("train").queries).to_pylist()
    trained[6] = frozenset(train[:25])
    space = InSpace(KNN(), others["lsa6"])
    fused = Learned(BM25(), SimilarQueries(), space).fit(engine)
    assert set(fused.query_ids_) == set(train[25:])
    assert set(fused.rankers_[1].query_ids_) == set(train)  # it does not use the encoder of the other engine
    assert fused.learned_from() == set(train)
    assert set(Learned(BM25(), SimilarQueries()).fit(engine).query_ids_) == set(train)
    nested = Learned(BM25("document"), Learned(BM25(), space)).fit(engine)
    assert set(nested.query_ids_) == set(train[25:])
    ensemble = SVR([BM25(), space], n_bags=6, n_jobs=1).fit(engine)
    assert set(ensemble.query_ids_) == set(train[25:])
    assert len(ensemble.ensemble_.seen_) == len(train) - 25
    there = Engine.open(others["lsa6"])  # an engine over the encoder itself
    assert set(Learned(BM25(), KNN()).fit(there).query_ids_) == set(train[25:])
    assert set(Learned(BM25(), BM25("document")).fit(there).query_ids_) == set(train)
    trained[6] = frozenset(train)
    with pytest.raises(InputError, match="trained on all"):
        Learned(BM25(), space.clone()).fit(engine)


def test_saved_and_loaded(engine: Engine, others: dict[str, str], tmp_path: Path) -> None:
    inner = parse(f"svr-memory({SMALL_SVR})")
    ranker = Learned(BM25(), InSpace(inner, others["lsa6"]), InSpace(KNN(), others["lsa9"], folds=[others["lsa6"]]))
    assert from_spec(json.loads(json.dumps(ranker.to_dict()))) == ranker == parse(str(ranker))
    ranker.fit(engine).save(tmp_path / "model")
    in_space._engines.clear()  # as in another process
    again = load(tmp_path / "model", Engine(topic_collection()))
    assert_same(again.rank("dev"), ranker.rank("dev"))
    assert_same(again.out_of_fold("train"), ranker.out_of_fold("train"))


def test_changes_of_the_other_engine_are_seen(tmp_path: Path) -> None:
    """By another object; a removed document is not found any more, and an added one is."""
    engine, folder = Engine(topic_collection()), tmp_path / "other"
    Engine.build(topic_collection(), folder, encoder="lsa(n_components=6)")
    ranker = InSpace(KNN(), str(folder)).fit(engine)
    first = ranker.rank("dev")["dev1"][0][0]
    changed = Engine.open(folder)
    changed.remove([first])
    changed.add(NEW)
    engine.add(NEW)
    found = ranker.rank("dev", depth=100)["dev1"]
    assert found == KNN().fit(changed).rank("dev", depth=100)["dev1"]
    assert first not in dict(found)
    assert {"n1", "n2"} <= set(dict(found))
    assert InSpace(KNN(), str(folder)).fit(engine).rank("dev", depth=100)["dev1"] == found


def test_an_engine_that_was_built_again_is_refused_and_then_opened_again(tmp_path: Path) -> None:
    engine, folder = Engine(topic_collection()), tmp_path / "other"
    Engine.build(topic_collection(), folder, encoder="lsa(n_components=6)")
    ranker = InSpace(KNN(), str(folder)).fit(engine)
    rmtree(folder)
    Engine.build(topic_collection(), folder, encoder="lsa(n_components=4)")
    for use in (lambda: ranker.rank("dev"), lambda: ranker.explain("a text", "d01")):
        with pytest.raises(StoreError, match="fit it again"):
            use()
    expected = KNN().fit(Engine.open(folder)).rank("dev")
    assert_same(ranker.fit(engine).rank("dev"), expected)


def test_another_collection_with_equal_ids_is_refused(tmp_path: Path) -> None:
    engine = Engine(topic_collection())
    Engine.build(topic_collection(seed=8), tmp_path / "strange", encoder="lsa(n_components=4)")
    with pytest.raises(InputError, match="same ids, such as document '"):
        InSpace(KNN(), str(tmp_path / "strange")).fit(engine)
    for name, settings in {"split": {"paragraphs": "sentences"}, "grown": {}}.items():
        Engine.build(topic_collection(), tmp_path / name, encoder="lsa(n_components=4)", **settings)
    Engine.open(tmp_path / "grown").replace({"d01": "another text"})
    for name in ("split", "grown"):
        InSpace(KNN(), str(tmp_path / name)).fit(engine)


def test_errors(engine: Engine, others: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="nothing"):
        InSpace(KNN(), str(tmp_path / "nothing")).fit(engine)
    builder = CollectionBuilder("strangers", language="english")
    builder.add_document("other", ["a text of its own", "its own text"])
    stranger = Engine.build(builder.build(), tmp_path / "stranger", encoder="lsa(n_components=1)")
    with pytest.raises(InputError, match="strangers"):
        InSpace(KNN(), str(stranger.folder)).fit(engine).rank("dev")
    with pytest.raises(InputError, match="'engine' parameter of InSpace"):
        InSpace(KNN(), 3).fit(engine)  # type: ignore[arg-type]


def test_queries_that_an_encoder_was_trained_on(tmp_path: Path) -> None:
    class Named:
        model_name = str(tmp_path)

    class Both:
        encoders = (Named(), object())

    assert trained_queries(Both()) == frozenset()
    (tmp_path / "training.json").write_text(json.dumps({"trained_on": ["a"], "selected_on": ["b"]}))
    assert trained_queries(Both()) == {"a", "b"}

    class Module:
        name_or_path = str(tmp_path)

    class Loaded:  # by the user, not by the encoder
        model_name = "SentenceTransformer"
        model = SimpleNamespace(modules=lambda: [object(), Module()])

    assert trained_queries(Loaded()) == {"a", "b"}
    (tmp_path / "training.json").write_text(json.dumps({"trained_on": "a"}))
    with pytest.raises(FileFormatError, match="'trained_on'"):
        trained_queries(Named())


def test_searches_in_spaces_are_fused_and_are_evidence(engine: Engine, others: dict[str, str], tmp_path: Path) -> None:
    """The default fusion with spaces is the one that names all of its rankers; changed parameters keep the spaces."""
    long_queries = "bm25(k1=6,b=0.9,k3=0),bm25-doc(k1=6,b=0.9,k3=0)"
    searches = f"bm25,bm25-doc,knn,knn-doc,parm-rrf,parm-vrrf,{long_queries},bm25-weighted,knn-queries"
    folders = [others["lsa4"], others["lsa9"]]
    spaces = ",".join(f"space({each},engine='{of}')" for of in folders for each in ("knn", "knn-doc", "parm-vrrf"))
    evidence = f"bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf,knn-queries,bm25-weighted,{long_queries}"
    whole, ranker = parse(f"learned({searches},svr(evidence=[{evidence},{spaces}]),{spaces})"), Learned(spaces=folders)
    assert parse(str(ranker)) == from_spec(str(ranker)) == ranker
    assert [str(each) for each in ranker.nested()] == [str(each) for each in whole.nested()]
    small = {"n_bags": 4, "n_jobs": 1}
    assert str(set_values(ranker, small)) == str(set_values(whole, small))
    run = ranker.fit(engine).rank("dev")
    assert_same(run, whole.fit(engine).rank("dev"))
    ranker.save(tmp_path / "ranker")
    assert_same(load(tmp_path / "ranker", engine).rank("dev"), run)
    with pytest.raises(InputError, match=r"spaces=.* found bm25; add space\(knn,engine="):
        Learned(BM25(), spaces=folders).fit(engine)
