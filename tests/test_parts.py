"""Rankers over parts of the queries: the ranked split as ever, and a sample of the training queries out of bag."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_ensemble_device import on_host
from worlds import candidates_with_features, word_collection, world

from haybale.collections import Collection
from haybale.ensemble import SVREnsemble
from haybale.errors import InputError
from haybale.experiments import RANKERS, Settings, compare
from haybale.experiments.rankers import run_of
from haybale.experiments.workbench import TRAIN_SAMPLE, Workbench

NAMES = (*RANKERS, "rrf(bm25,svr)")


@pytest.fixture(scope="module")
def words() -> Collection:
    return word_collection()


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {
        "rankers": NAMES,
        "width": 6,
        "train_candidates": 4,
        "candidates": 5,
        "ensemble": {"n_bags": 16, "k": 5},
        "n_jobs": 1,
        "fusion_queries": 10,
    }
    return Settings(**(given | changes))


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
def test_every_ranker_ranks_a_sample_of_the_training_queries(words: Collection) -> None:
    stages: list[str] = []
    bench = Workbench(words, settings(train_document_candidates=1000), lambda stage, seconds: stages.append(stage))
    numbers = bench.queries(TRAIN_SAMPLE)
    train = words.split("train").queries
    assert len(numbers) == 10
    assert np.isin(numbers, train).all()
    assert (np.diff(numbers) > 0).all()
    np.testing.assert_array_equal(train[bench.places(TRAIN_SAMPLE)], numbers)
    ids = bench.query_ids(TRAIN_SAMPLE)
    runs = {name: run_of(bench, name, TRAIN_SAMPLE) for name in NAMES}
    for name, run in runs.items():
        assert run.query_ids == ids, name
        for query in ids:
            assert f"d{(int(query.removeprefix('train')) + 1) % 12}" not in dict(run[query]), name  # its own
    assert run_of(bench, "svr", TRAIN_SAMPLE) is runs["svr"]
    assert {"search kNN (train sample)", "search BM25 (passages) (train sample)", "score svr (train sample)"} <= set(
        stages
    )
    assert [stage for stage in stages if "search" in stage and stages.count(stage) > 1] == []
    assert bench.facts["query paragraphs (train sample)"] == 20
    # What a ranker that learns nothing finds for a query does not depend on the part that it is asked in.
    for name in ("bm25", "bm25-doc", "knn", "knn-firstp", "parm-vrrf", "bm25-parm-rrf"):
        whole = run_of(bench, name, "train")
        for query in ids:
            assert [doc for doc, _ in whole[query]] == [doc for doc, _ in runs[name][query]], name


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
def test_the_ranked_split_is_ranked_as_ever(words: Collection) -> None:
    """A sample ranked before changes nothing of the split, and the ensemble's scores there are means over all bags."""
    expected = compare(words, settings())
    bench = Workbench(words, settings())
    for name in NAMES:
        run_of(bench, name, TRAIN_SAMPLE)
    for name in NAMES:
        assert run_of(bench, name, "dev") == expected.runs[name], name
    stages = {stage for stage in bench.seconds if TRAIN_SAMPLE not in stage}
    assert stages == set(expected.seconds) - {"evaluate"}
    assert {name: fact for name, fact in bench.facts.items() if TRAIN_SAMPLE not in name} == expected.facts
    memory, ensemble = bench.memory("dev"), bench.ensemble("svr")
    np.testing.assert_array_equal(memory.scores, ensemble.memory(bench.query_vectors("dev"), memory.passages))


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
@pytest.mark.parametrize("name", ["svr", "svr-paper"])
def test_training_queries_are_scored_out_of_bag(words: Collection, name: str) -> None:
    bench = Workbench(words, settings())
    ensemble, run = bench.ensemble(name), run_of(bench, name, TRAIN_SAMPLE)
    vectors, places = bench.query_vectors(TRAIN_SAMPLE), bench.places(TRAIN_SAMPLE)
    k = bench.settings.candidates
    hits = bench.candidates(TRAIN_SAMPLE, k) if name == "svr" else bench.neighbours(TRAIN_SAMPLE).top(ensemble.k)
    by_bag = predictions(ensemble, vectors, hits.passages)
    for row, query in enumerate(bench.query_ids(TRAIN_SAMPLE)):
        outside = ~ensemble.seen_[places[row]]
        assert outside.any()
        assert not outside.all()
        best: dict[str, float] = {}
        for place, passage in enumerate(hits.passages[row]):
            if passage >= 0:
                doc = f"d{bench.index.doc_of[passage]}"
                best[doc] = max(best.get(doc, -np.inf), float(by_bag[row, place, outside].mean()))
        assert dict(run[query]) == pytest.approx(best, abs=1e-5)


def test_vectors_and_hits_that_were_made_are_taken(words: Collection) -> None:
    """A sample's rows are those of the training split, if that was encoded and searched before."""
    bench = Workbench(words, settings())
    vectors, near = bench.query_vectors("train"), bench.neighbours(TRAIN_SAMPLE)
    searched = bench.searches("train", 5)
    stages, places = set(bench.seconds), bench.places(TRAIN_SAMPLE)
    np.testing.assert_array_equal(bench.query_vectors(TRAIN_SAMPLE), vectors[places])
    assert bench.neighbours(TRAIN_SAMPLE) is near
    for some, all_of_them in zip(bench.searches(TRAIN_SAMPLE, 5), searched, strict=True):
        np.testing.assert_array_equal(some.scores, all_of_them.scores[places])
    assert set(bench.seconds) == stages
    assert bench.queries(part=TRAIN_SAMPLE).tolist() == bench.queries(TRAIN_SAMPLE).tolist()


def test_the_sample_is_drawn_by_the_seed(words: Collection) -> None:
    drawn = [Workbench(words, settings(random_state=seed)).queries(TRAIN_SAMPLE).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    everything = Workbench(words, settings(fusion_queries=3000)).queries(TRAIN_SAMPLE)
    assert everything.tolist() == sorted(words.split("train").queries.tolist())
    with pytest.raises(InputError, match="fusion_queries must be at least 1"):
        settings(fusion_queries=0)


# out_of_bag_memory -----------------------------------------------------------------------------------


def predictions(ensemble: SVREnsemble, queries: np.ndarray, passages: np.ndarray, features: Any = None) -> np.ndarray:
    """(m, k, n_bags) of every bag."""
    pairs, real, _ = ensemble._pairs(queries, passages, features)
    found = np.full((*passages.shape, ensemble.n_bags), -np.inf)
    found[real] = ensemble.support_.bags(pairs)
    return found


@pytest.mark.parametrize("strategy", ["queries", "rows", "regions"])
@pytest.mark.parametrize("limit", [None, 12])
def test_memory_out_of_bag_is_the_mean_of_the_bags_that_saw_nothing(strategy: str, limit: int | None) -> None:
    index, queries, relevant = world(6, n_queries=60)
    ensemble = SVREnsemble(9, overlap=0.5, k=8, strategy=strategy, rows_per_bag=limit, oob_score=True)
    ensemble.fit(index, queries, relevant)
    assert ensemble.seen_.shape == (60, 9)
    numbers = np.flatnonzero(~ensemble.seen_.all(axis=1))[::-3]
    passages = index.search(queries[numbers], 7).passages
    passages[::2, 4] = -1
    found = ensemble.out_of_bag_memory(numbers, queries[numbers], passages)
    assert found.dtype == np.float32
    by_bag = predictions(ensemble, queries[numbers], passages)
    for row, number in enumerate(numbers):
        np.testing.assert_allclose(found[row], by_bag[row][:, ~ensemble.seen_[number]].mean(axis=1), atol=1e-5)
    assert np.isneginf(found[passages < 0]).all()


def test_memory_out_of_bag_with_pair_features() -> None:
    index, queries, relevant, candidates, features = candidates_with_features(3)
    ensemble = SVREnsemble(5, k=12, eta=0.5)
    ensemble.fit(index, queries, relevant, candidates=candidates, features=features)
    numbers = np.array([7, 3, 20])
    found = ensemble.out_of_bag_memory(numbers, queries[numbers], candidates.passages[numbers], features[numbers])
    by_bag = predictions(ensemble, queries[numbers], candidates.passages[numbers], features[numbers])
    for row, number in enumerate(numbers):
        np.testing.assert_allclose(found[row], by_bag[row][:, ~ensemble.seen_[number]].mean(axis=1), atol=1e-5)


def test_memory_out_of_bag_on_a_device(cupy: Any) -> None:
    index, queries, relevant = world(6)
    numbers = np.arange(0, 40, 3)
    passages = index.search(queries, 6).passages[numbers]
    expected, found = (
        SVREnsemble(5, k=8, tol=1e-5, device=device, solver=solver)
        .fit(index, queries, relevant)
        .out_of_bag_memory(numbers, queries[numbers], passages)
        for device, solver in (("cpu", "product"), ("cuda", on_host))
    )
    assert isinstance(found, np.ndarray)  # the query vectors were
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_cannot_be_scored_out_of_bag(tmp_path: Any) -> None:
    index, queries, relevant = world()
    passages = index.search(queries, 4).passages
    ensemble = SVREnsemble(4, k=5).fit(index, queries, relevant)
    some = np.arange(3)
    with pytest.raises(InputError, match=r"must lie in 0\.\.39, the training queries; found 40"):
        ensemble.out_of_bag_memory(np.array([0, 40]), queries[:2], passages[:2])
    with pytest.raises(InputError, match="found -1"):
        ensemble.out_of_bag_memory([-1], queries[:1], passages[:1])
    with pytest.raises(InputError, match="expected whole numbers"):
        ensemble.out_of_bag_memory(np.array([0.5]), queries[:1], passages[:1])
    with pytest.raises(InputError, match="3 query numbers for candidates of 2 queries"):
        ensemble.out_of_bag_memory(some, queries[:2], passages[:2])
    with pytest.raises(InputError, match="candidates of 3 queries for 2 query vectors"):
        ensemble.out_of_bag_memory(some, queries[:2], passages[:3])
    ensemble.save(tmp_path / "model")
    with pytest.raises(InputError, match="a loaded model does not know which bags saw"):
        SVREnsemble.load(tmp_path / "model", index).out_of_bag_memory(some, queries[:3], passages[:3])
    crowded = SVREnsemble(2, overlap=1, k=5).fit(index, queries, relevant)
    with pytest.raises(InputError, match=r"every bag saw 3 of 3 queries, .* query 0; take more bags or less overlap"):
        crowded.out_of_bag_memory(some, queries[:3], passages[:3])
    routed = SVREnsemble(4, k=5, strategy="regions", routes=2).fit(index, queries, relevant)
    with pytest.raises(InputError, match="this ensemble has routes"):
        routed.out_of_bag_memory(some, queries[:3], passages[:3])
