"""Cached rankings belong to what was learned, to the texts of queries and to the documents, not to names."""

from __future__ import annotations

import random
import shutil
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from support.differing_rankers import (
    ANY,
    GIVEN,
    LEARNING,
    SLOW,
    HashedModels,
    World,
    check_apart,
    other_documents,
    other_judgements,
    other_model,
    other_own,
    other_space,
    other_texts,
    saved_and_loaded,
    tiny_engine,
)
from support.topics import topic_collection

import haybale
from haybale import BM25, KNN, RRF, Engine, Learned, LSAEncoder, SimilarQueries, compare, embed, resumable
from haybale.engine.workers import Address, Sendable, Workers
from haybale.errors import InputError, StoreError
from haybale.rankers import QueryBatch, parse
from haybale.ranking.ranker import batches_of
from haybale.ranking.saved_rankers import saved_in
from haybale.ranking.sendable_rankers import sendable_rankers
from haybale.search import query_batch

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world") / "engine", 3)


def test_queries_with_the_same_id_and_other_texts() -> None:
    engine, one, two = tiny_engine()
    assert one._cache_key() != two._cache_key()
    batches = [next(batches_of(one, {"x": text})) for text in ("dog", "tax")]
    found = [[ranker.run(batch, 9)["x"] for batch in batches] for ranker in (one, two)]
    assert [[len(run) for run in runs] for runs in found] == [[1, 0], [0, 1]]
    for order in ((one, two), (two, one)):
        batch = next(batches_of(one, {"x": "dog"}))
        assert {ranker is one: len(ranker.run(batch, 9)["x"]) for ranker in order} == {True: 1, False: 0}
    assert engine.documents_digest is None


@pytest.mark.parametrize("differ", ANY, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", [*LEARNING, *SLOW])
def test_rankers_that_differ_in_one_thing(world: World, differ: Any, name: str, tmp_path: Path) -> None:
    rng = random.Random(f"{differ.__name__} {name}")
    check_apart(world, differ(world, name, rng, tmp_path), rng)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("differ", [*GIVEN, other_space], ids=lambda each: each.__name__)
def test_parts_that_differ(world: World, differ: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pair = differ(world, "", rng, tmp_path)
    if differ is other_space:
        with pytest.raises(haybale.StoreError):
            pair[0].rank(world.dev)  # its engine is gone, which no run of the other hides
        batch = QueryBatch(world.engine, world.dev)
        pair[1].run(batch, 9)
        with pytest.raises(haybale.StoreError):
            pair[0].run(batch, 9)
        return
    check_apart(world, pair, rng)


def test_models_of_the_command_line(world: World, tmp_path: Path, here: Any) -> None:
    pair = other_texts(world, "knn-queries", random.Random(1), tmp_path)
    for name, ranker in zip(("m1", "m2"), pair, strict=True):
        ranker.save(tmp_path / name)
    models = [f"--model={name}={tmp_path / folder}" for name, folder in (("old", "m1"), ("new", "m2"))]
    runs: dict[str, set[bytes]] = {}
    for number, chosen in enumerate((models, models[::-1], models[:1], models[1:])):
        out = tmp_path / f"out{number}"
        assert here("compare", str(world.engine.folder), "--rankers=bm25", *chosen, f"--out={out}")[0] == 0
        for path in (out / "runs").iterdir():
            runs.setdefault(path.stem, set()).add(path.read_bytes())
    assert {name: len(found) for name, found in runs.items()} == {"bm25": 1, "old": 1, "new": 1}
    assert runs["old"].pop().replace(b" old", b"") != runs["new"].pop().replace(b" new", b"")


def test_two_rankers_of_one_text_need_names(world: World, tmp_path: Path) -> None:
    one, two = other_judgements(world, "knn-queries", random.Random(2), tmp_path)
    with pytest.raises(InputError, match="knn-queries"):
        compare(world.engine, [one, two])
    with pytest.raises(InputError, match="knn-queries"):
        compare(world.engine, {"knn-queries": one}, baseline=two)
    assert set(compare(world.engine, [one, one, parse("bm25"), "bm25"]).runs) == {"bm25", "knn-queries"}
    assert set(compare(world.engine, [one], baseline=one).runs) == {"knn-queries"}


def test_the_facts_of_nested_rankers_of_one_text(world: World, tmp_path: Path) -> None:
    qrels = world.qrels.iloc[: len(world.qrels) // 2]
    one = world.fit("learned(bm25,bm25-weighted(min_count=2))", qrels=qrels)
    two = world.fit("bm25-weighted(min_count=2)")
    for rankers in ({"two": two, "one": one}, {"bm25-weighted(min_count=2)": two, "one": one}):
        outcome = compare(world.engine, rankers)
        name = next(iter(rankers))
        assert outcome.facts[name] == two.fit_report_
        assert one.rankers_[1].fit_report_ in list(outcome.facts.values())


def test_nested_rankers_of_one_text(world: World, tmp_path: Path) -> None:
    pair = other_judgements(world, "rrf(bm25,knn-queries)", random.Random(4), tmp_path)
    rankers: dict[str, Any] = {f"{n} {m}": ranker for n in range(2) for m, ranker in enumerate(pair)}
    outcome = compare(world.engine, rankers)
    for name, ranker in rankers.items():
        assert outcome.runs[name] == ranker.rank(world.dev)


def test_equal_rankers_of_one_fit_share_a_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[Any] = []
    rank_batch = SimilarQueries.rank_batch
    monkeypatch.setattr(
        SimilarQueries, "rank_batch", lambda self, batch, depth: ranked.append(self) or rank_batch(self, batch, depth)
    )
    compare(world.engine, {"a": "knn-queries", "b": "rrf(bm25,knn-queries)", "c": parse("knn-queries")})
    assert len(ranked) == 1


def test_saved_rankers_with_equal_content_have_one_key(world: World, tmp_path: Path) -> None:
    fits = [world.fit("rrf(bm25,learned(bm25,knn-queries))") for _ in range(2)]
    assert fits[0]._cache_key() != fits[1]._cache_key()
    for number, ranker in enumerate(fits):
        ranker.save(tmp_path / str(number))
    loaded = [haybale.load(tmp_path / str(number), world.engine) for number in range(2)]
    assert len({ranker._cache_key() for ranker in (*fits, *loaded)}) == 1
    assert saved_in(fits[0]) == tmp_path / "0"
    (tmp_path / "0").rename(tmp_path / "gone")
    (tmp_path / "1").rename(tmp_path / "0")
    assert saved_in(fits[0]) == tmp_path / "0", "the same content"
    _, other = other_judgements(world, "knn-queries", random.Random(5), tmp_path)
    (tmp_path / "0").rename(tmp_path / "1")
    other.save(tmp_path / "0")
    assert saved_in(fits[0]) is None, "another ranker was saved there"


def test_a_ranker_that_saves_nothing_keeps_a_key_of_its_own(world: World, tmp_path: Path) -> None:
    class Noted(BM25):
        def fit_batch(self, training: Any) -> None:
            super().fit_batch(training)
            self.note = object()

    fits: list[Any] = [Noted().fit(world.engine) for _ in range(2)]
    assert fits[0]._cache_key() != fits[1]._cache_key()
    for number, ranker in enumerate(fits):
        ranker.save(tmp_path / str(number))
    assert fits[0]._cache_key() != fits[1]._cache_key()
    assert BM25().fit(world.engine)._cache_key() == BM25()._cache_key() != Noted()._cache_key()


def test_a_fitted_ranker_is_used_again_only_for_the_same_queries(world: World, tmp_path: Path) -> None:
    texts = dict(zip(world.train.ids.to_pylist(), world.train.texts(range(len(world.train))), strict=True))
    one = SimilarQueries().fit(world.engine, texts, world.qrels)
    same: Any = RRF(one, BM25()).fit(world.engine, texts, world.qrels)
    assert same.rankers_[0] is one
    others: Any = RRF(one, BM25()).fit(
        world.engine, dict(zip(texts, [*texts.values()][::-1], strict=True)), world.qrels
    )
    assert others.rankers_[0] is not one
    engine = Engine(world.collection)
    before = SimilarQueries().fit(engine)
    engine.add({"n": ["a new document"]})
    after: Any = RRF(before, BM25()).fit(engine)
    assert after.rankers_[0] is not before


class _NotKept:
    """Stands for the context of :func:`resumable` outside of any block."""

    @staticmethod
    def get() -> None:
        return None


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_batch, "BLOCK", 2)
    monkeypatch.setattr("haybale.engine.workers._MAX_QUERIES_PER_BLOCK", 2)


@pytest.mark.usefixtures("small_blocks")
def test_kept_results_of_rankers_that_differ(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within :func:`resumable`, rankers of one text, queries of one id and the models of one path are told apart."""
    differ = [other_model, *(each for each in ANY if each is not other_documents)]
    pairs = [each(world, "rrf(bm25,knn-queries)", random.Random(6), tmp_path) for each in differ]
    texts = world.dev.texts(range(len(world.dev)))
    asked = [world.dev, *({str(n): text for n, text in enumerate(each)} for each in (texts, texts[::-1]))]
    with resumable(tmp_path / "tasks"):
        for ranker in (ranker for pair in pairs for ranker in pair):
            for queries in asked:
                found = ranker.rank(queries, depth=9)
                with monkeypatch.context() as patch:
                    patch.setattr("haybale.kept_results._kept", _NotKept())
                    assert found == ranker.rank(queries, depth=9)
        assert len(list((tmp_path / "tasks").iterdir())) > 2 * len(pairs)


@pytest.mark.usefixtures("small_blocks")
def test_rankers_that_differ_in_other_processes(world: World, tmp_path: Path) -> None:
    pairs = [differ(world, "rrf(bm25,knn-queries)", random.Random(8), tmp_path) for differ in (other_texts, other_own)]
    pairs.append(saved_and_loaded(world, "knn-queries", random.Random(9), tmp_path))
    expected = [[ranker.rank(world.dev, depth=9) for ranker in pair] for pair in pairs]
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert [[ranker.rank(world.dev, depth=9) for ranker in pair] for pair in pairs] == expected
        outcome = compare(world.engine, {"one": pairs[0][0], "two": pairs[0][1]})
    for name, ranker in zip(("one", "two"), pairs[0], strict=True):
        assert outcome.runs[name] == ranker.rank(world.dev)


def made(rankers: Sendable, address: Address) -> Any:
    """Return the only ranker of an argument of tasks as another process makes it."""
    (ranker,) = rankers.make(address, *rankers.values())
    return ranker


def test_a_worker_refuses_what_was_replaced_in_place(world: World, tmp_path: Path) -> None:
    one, two = other_judgements(world, "knn-queries", random.Random(3), tmp_path)
    one.save(tmp_path / "model")
    address = world.engine.address
    assert address is not None
    workers = Workers(world.engine)
    with sendable_rankers([one], workers) as (sent, _):
        assert made(sent, address).rank(world.dev) == one.rank(world.dev)
        (tmp_path / "model").rename(tmp_path / "gone")
        two.save(tmp_path / "model")
        with sendable_rankers([two], workers) as (other, _):
            assert made(other, address).rank(world.dev) == two.rank(world.dev)
        [form] = sent.values()
        with pytest.raises(StoreError):
            sent.make(address, replace(form, outside="{}\n"))
    with sendable_rankers([one], workers) as (again, _):
        assert again.values()[0].folder != form.folder, "saved anew, since another ranker is there"
    with HashedModels() as models:
        models.write(tmp_path / "encoder", "one")
        read = parse(f"cross-encoder(bm25,model='{tmp_path / 'encoder'}')").fit(world.engine)
        with sendable_rankers([read], workers) as (sent, _):
            models.write(tmp_path / "encoder", "two")
            with pytest.raises(StoreError):
                made(sent, address)


def test_explanations_of_rankers_that_are_gone(world: World) -> None:
    """The cache of a batch does not mistake a new ranker for one whose memory it got."""
    batch = QueryBatch(world.engine, world.dev.take(np.array([0])))
    for seed in range(30):
        qrels = pd.DataFrame({"query_id": world.train.ids.to_pylist(), "relevance": 1})
        documents = sorted(set(world.qrels["doc_id"]))
        rng = random.Random(seed)
        ranker = world.fit("knn-queries", qrels=qrels.assign(doc_id=[rng.choice(documents) for _ in range(len(qrels))]))
        for doc_id, score in ranker.rank(batch.queries, depth=3)[batch.ids[0]]:
            number = int(world.engine.collection.document_numbers([doc_id])[0])
            assert ranker.explained(batch, number).score == pytest.approx(score)


def test_a_refitted_ranker_explains_what_it_ranks(world: World) -> None:
    batch = QueryBatch(world.engine, world.dev.take(np.array([1])))
    ranker = KNN()
    ranker.fit(world.engine)
    document = int(world.engine.collection.document_numbers([ranker.run(batch, 5)[batch.ids[0]][0][0]])[0])
    first = ranker.explained(batch, document)
    ranker.set_params(unit="document")
    second = ranker.explained(batch, document)
    assert first.ranker == "knn"
    assert second.ranker == "knn-doc"
    assert second.score == pytest.approx(sum(share.share for share in second.shares), rel=1e-5)


def test_a_ranker_with_another_learned_part_has_another_key() -> None:
    learned = Learned(BM25(), KNN())
    learned.fusion_ = one = object()  # type: ignore[assignment]
    other = copy(learned)
    assert other._cache_key() == learned._cache_key()
    other.fusion_ = one  # type: ignore[assignment]
    assert other._cache_key() != learned._cache_key()


def test_a_store_of_another_encoder_at_the_path_of_an_engine(tmp_path: Path) -> None:
    collection = topic_collection(12, 4, 4)
    texts = collection.passages.texts.to_pylist()
    for n in (4, 6):
        embed(collection, LSAEncoder(n).fit(texts), tmp_path / f"lsa{n}")
    shutil.copytree(tmp_path / "lsa4", tmp_path / "store")
    engine = Engine.build(collection, tmp_path / "engine", store=str(tmp_path / "store"))
    run, digest = KNN().fit(engine).rank("dev"), engine.documents_digest
    again = Engine.open(tmp_path / "engine")
    assert (KNN().fit(again).rank("dev"), again.documents_digest) == (run, digest)
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "lsa6", tmp_path / "store")
    with pytest.raises(StoreError):
        Engine.open(tmp_path / "engine")
