"""Learned fusion: pools and features against dictionaries, the gradient, laws, explanations, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fusion_oracle import (
    QUERIES,
    Scores,
    first,
    judgements,
    listings,
    oracle,
    oracle_loss,
    run,
    runs_of,
    sample,
    several,
    trust,
)
from haybale.ensemble.conditional_logit import ConditionalLogit
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from haybale.collections.ids import id_table
from haybale.ensemble import LearnedFusion
from haybale.ensemble.learned_fusion import feature_list, relevant_rows, run_features
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import Run
from haybale.retrieval.fusion import pooled


@given(world=several, depth=st.integers(1, 9), memories=st.sets(st.sampled_from(["bm25", "svr"])))
def test_pools_and_features_are_the_oracles(world: dict[str, Scores], depth: int, memories: set[str]) -> None:
    asked = ["q10", "q1"]
    pool = pooled(list(runs_of(world).values()), asked, depth)
    mark = relevant_rows(pool, {query: ["b", "c", "zz"] for query in asked})
    names, table = feature_list(list(world), memories), run_features(pool, list(world), memories)
    ids = pool.doc_ids.to_pylist()
    rows = [(pool.query_ids[q], ids[d]) for q, d in zip(pool.query, pool.document, strict=True)]
    assert sorted(rows) == sorted((query, d) for query in asked for d in oracle(world, query, depth, set()))
    assert mark.tolist() == [document in "bc" for _, document in rows]
    for at, (query, document) in enumerate(rows):
        expected = oracle(world, query, depth, memories)[document]
        assert dict(zip(names, table[:, at], strict=True)) == pytest.approx(
            dict.fromkeys(names, 0.0) | expected, rel=1e-6
        )


@settings(deadline=None)
@given(
    world=several,
    relevant=judgements,
    depth=st.integers(1, 9),
    memories=st.sets(st.sampled_from(["bm25", "svr"])),
    novel=st.sets(st.sampled_from(QUERIES)),
    cold=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_loss_is_the_oracles(
    world: dict[str, Scores],
    relevant: dict[str, list[str]],
    depth: int,
    memories: set[str],
    novel: set[str],
    cold: float,
) -> None:
    memories &= set(world)
    fusion = LearnedFusion(depth=depth, cold=cold, l2=0.01)
    try:
        fusion.fit(runs_of(world), relevant, memories=memories, novel=novel)
    except InputError:
        assert not any(set(oracle(world, q, depth, memories)) & set(relevant[q]) for q in QUERIES)
        return
    frame = fusion.weights_
    weights = {(row.run, row.feature): row.weight for row in frame.itertuples()}
    loss = oracle_loss(world, relevant, depth, memories, novel, cold, weights)
    penalty = 0.01 * (frame["standardised"] ** 2).sum()
    assert fusion.loss_ == pytest.approx(loss + penalty, rel=1e-5, abs=1e-6)
    # No step in any direction is better: it is the minimum.
    for key, row in zip(weights, frame.itertuples(), strict=True):
        for step in (-0.05, 0.05):
            if row.weight:
                spread = row.standardised / row.weight
                there = {**weights, key: row.weight + step / spread}
                moved = oracle_loss(world, relevant, depth, memories, novel, cold, there)
                other = 0.01 * (
                    (frame["standardised"] ** 2).sum() + (row.standardised + step) ** 2 - row.standardised**2
                )
                assert moved + other >= fusion.loss_ - 1e-6


@given(world=several.filter(lambda world: any(any(q.values()) for q in world.values())))
@settings(deadline=None)
def test_fused_scores_are_the_oracles(world: dict[str, Scores]) -> None:
    memories = {"svr"} & set(world)
    query = next(q for q in QUERIES if any(scores[q] for scores in world.values()))
    answer = next(first(scores[query], 3)[0][0] for scores in world.values() if scores[query])
    fusion = LearnedFusion(depth=3).fit(runs_of(world), {query: [answer]}, memories=memories)
    weights = {(row.run, row.feature): row.weight for row in fusion.weights_.itertuples()}
    fused = fusion.fuse(runs_of(world))
    assert fused.query_ids == list(next(iter(world.values())))
    for each in QUERIES:
        expected = {
            d: sum(weights[key] * value for key, value in row.items())
            for d, row in oracle(world, each, 3, memories).items()
        }
        assert dict(fused[each]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_and_hessian_are_those_of_finite_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query = np.sort(rng.integers(12, size=90))
    features = rng.normal(size=(5, 90)).astype(np.float32)
    features[1] = 0.1  # constant
    share = rng.random(12) * (rng.random(12) < 0.7)
    problem = ConditionalLogit(query, features, (rng.random(90) < 0.15) * share[query], l2=0.02)
    at, step = rng.normal(size=5), 1e-5
    _, gradient, hessian = problem(at)
    for i in range(5):
        moved = np.eye(5)[i] * step
        ahead, behind = problem(at + moved), problem(at - moved)
        assert gradient[i] == pytest.approx((ahead[0] - behind[0]) / (2 * step), abs=1e-7)
        assert hessian[i] == pytest.approx((ahead[1] - behind[1]) / (2 * step), abs=1e-7)
    assert gradient[1] == 2 * 0.02 * at[1]  # the penalty alone


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, relevant = sample()
    whole = LearnedFusion().fit(runs, relevant, memories=["good"])
    monkeypatch.setattr("haybale.ensemble.conditional_logit._ROWS", 50)
    parts = LearnedFusion().fit(runs, relevant, memories=["good"])
    assert parts.coef_ == pytest.approx(whole.coef_, rel=1e-6, abs=1e-9)


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, relevant = sample()
    monkeypatch.setattr("haybale.ensemble.conditional_logit._ROWS", 50)
    fits = []
    for n in (1, 2, 5):
        monkeypatch.setattr("haybale.machine.cpus", lambda n=n: n)
        fits.append(LearnedFusion().fit(runs, relevant, memories=["good"]).to_dict())
    assert fits[0] == fits[1] == fits[2]


def test_queries_that_teach_nothing_count_for_the_deviations_alone() -> None:
    rng = np.random.default_rng(0)
    query, features = np.repeat(np.arange(9), 10), rng.normal(size=(4, 90)).astype(np.float32)
    target = (np.arange(90) % 10 == 3) * (query % 3 > 0) / 6
    whole, some = ConditionalLogit(query, features, target, 0.0), query % 3 > 0
    part = ConditionalLogit(query[some], features[:, some], target[some], 0.0)
    assert whole.spread == pytest.approx(features.std(axis=1, dtype=np.float64), rel=1e-12)
    at = rng.normal(size=4)
    assert whole(at * whole.spread)[0] == pytest.approx(part(at * part.spread)[0], rel=1e-12)


def by_hand(
    fusion: LearnedFusion, runs: dict[str, Run], relevant: dict[str, list[str]], n_folds: int, **known: Any
) -> Run:
    """Out of fold with a fit of its own, on runs of its own, for every fold."""
    queries, parts = sorted(next(iter(runs.values())).query_ids), []
    dealt = np.random.RandomState(7).permutation(len(queries))
    novel = known.pop("novel", [])
    for number in range(n_folds):
        fold = [queries[i] for i in dealt[number::n_folds]]
        others = [query for query in queries if query not in fold]
        fusion.fit(
            {name: each.take(others) for name, each in runs.items()},
            {query: ids for query, ids in relevant.items() if query in others},
            novel=[query for query in novel if query in others],
            **known,
        )
        parts.append(fusion.fuse({name: each.take(fold) for name, each in runs.items()}))
    return Run.joined(parts)


def test_out_of_fold_is_a_fit_on_the_others_for_every_fold() -> None:
    runs, relevant = sample()
    relevant |= {"q3": [], "q4": ["zz"]}
    del relevant["q5"]
    known = {"memories": ["good", "fair"], "novel": ["q1", "q2", "q7", "q20"]}
    fusion = LearnedFusion(depth=12, cold=0.4)
    for n_folds in (2, 7, 30):
        found = fusion.out_of_fold(runs, relevant, n_folds=n_folds, random_state=7, **known)
        expected = by_hand(clone(fusion), runs, relevant, n_folds, **known)
        assert found.query_ids == runs["good"].query_ids
        for query in found.query_ids:
            assert dict(found[query]) == pytest.approx(dict(expected[query]), abs=1e-9)
    assert not hasattr(fusion, "coef_")


def test_out_of_fold_depends_on_neither_order_and_knows_no_query_itself() -> None:
    runs, relevant = sample()
    turned = {name: run.reindexed(run.query_ids[::-1]) for name, run in reversed(runs.items())}
    one, other = (LearnedFusion().out_of_fold(each, relevant, memories="good") for each in (runs, turned))
    assert one == other.reindexed(one.query_ids)
    assert one != LearnedFusion().out_of_fold(runs, relevant, memories="good", random_state=1)
    # What is relevant to a query changes nothing of its own ranking.
    again = LearnedFusion().out_of_fold(runs, relevant | {"q3": ["d1"]}, memories="good")
    assert again["q3"] == one["q3"]
    assert again != one


@pytest.mark.parametrize("n_folds", [1, 31, 0])
def test_numbers_of_folds_out_of_range_are_refused(n_folds: int) -> None:
    runs, relevant = sample()
    with pytest.raises(InputError, match=f"between 2 and the number of queries, 30; found {n_folds}"):
        LearnedFusion().out_of_fold(runs, relevant, n_folds=n_folds)


def test_runs_that_share_a_table_fuse_as_those_that_do_not() -> None:
    runs, relevant = sample()
    table = id_table(f"d{i}" for i in range(39, -1, -1))
    place = {name: i for i, name in enumerate(table.to_pylist())}
    shared = {}
    for name, each in runs.items():
        rows, _, ids, scores = each.flat()
        shared[name] = Run.from_numbers(each.query_ids, table, rows, [place[i] for i in ids.to_pylist()], scores)
    one, other = (LearnedFusion().fit(each, relevant, memories=["good"]) for each in (runs, shared))
    assert one.coef_ == pytest.approx(other.coef_, abs=1e-9)
    assert one.fuse(runs) == one.fuse(shared)


def test_neither_the_order_of_runs_nor_of_queries_matters() -> None:
    runs, relevant = sample()
    turned = {name: run.reindexed(run.query_ids[::-1]) for name, run in reversed(runs.items())}
    one = LearnedFusion().fit(runs, relevant, memories=["fair", "good"])
    other = LearnedFusion().fit(turned, dict(reversed(relevant.items())), memories={"good", "fair"})
    assert one.to_dict() == other.to_dict()
    assert one.fuse(runs).reindexed(turned["good"].query_ids) == other.fuse(turned)


@given(factor=st.floats(1e-3, 1e3), shift=st.floats(-5, 5), scores=listings)
def test_level_does_not_depend_on_scale(factor: float, shift: float, scores: Scores) -> None:
    scaled = {q: {d: s * factor + shift for d, s in docs.items()} for q, docs in scores.items()}
    level = [run_features(pooled([run(each)], QUERIES, 9), ["r"], [])[0] for each in (scores, scaled)]
    assert level[0] == pytest.approx(level[1], abs=1e-5)


def test_a_run_of_relevant_documents_alone_is_believed() -> None:
    runs, relevant = sample()
    sure = run({query: dict.fromkeys(ids, 1.0) for query, ids in relevant.items()})
    fusion = LearnedFusion().fit({**runs, "sure": sure}, relevant)
    shares = [trust(fusion, {**runs, "sure": sure}, name) for name in ("sure", "good", "noise")]
    assert shares[0] > max(shares[1:])
    fused = fusion.fuse({**runs, "sure": sure})
    assert all({d for d, _ in fused[query][:2]} == set(ids) for query, ids in relevant.items())


def test_good_runs_weigh_more_and_fusion_is_better_than_any() -> None:
    runs, relevant = sample(n_queries=60)
    fusion = LearnedFusion().fit(runs, relevant)
    assert trust(fusion, runs, "good") > trust(fusion, runs, "fair") > trust(fusion, runs, "noise")
    new, truth = sample(seed=1)

    def mrr(found: Run) -> float:
        ranks = [min((r for r, (d, _) in enumerate(found[q], 1) if d in truth[q]), default=math.inf) for q in truth]
        return float(np.mean([1 / rank for rank in ranks]))

    assert mrr(fusion.fuse(new)) > max(mrr(each) for each in new.values())


def test_shares_sum_to_the_fused_score() -> None:
    runs, relevant = sample()
    fusion = LearnedFusion(depth=10).fit(runs, relevant, memories=["good"])
    fused = fusion.fuse(runs)
    for document, score in fused["q3"]:
        frame = fusion.explain(runs, "q3", document)
        assert frame["run"].tolist() == ["fair", "good", "noise"]
        assert math.fsum(frame["share"]) == pytest.approx(score, abs=1e-12)
        for row in frame.itertuples():
            listed = runs[row.run].top(10)["q3"]
            if (document, row.score) in listed:
                assert listed[int(row.rank) - 1] == (document, row.score)
            else:
                assert math.isnan(row.rank)
                assert math.isnan(row.score)
                assert row.share == 0
                assert document not in dict(listed)


def test_documents_of_no_run_and_unknown_queries_are_not_explained() -> None:
    runs, relevant = sample()
    fusion = LearnedFusion(depth=10).fit(runs, relevant)
    with pytest.raises(InputError, match="no run has document 'zz' among its first 10 for query 'q3'"):
        fusion.explain(runs, "q3", "zz")
    with pytest.raises(InputError, match="unknown query id 'nine'"):
        fusion.explain(runs, "nine", "d1")


def test_constant_features_have_no_weight() -> None:
    runs, relevant = sample()
    same = run({query: dict.fromkeys([f"d{i}" for i in range(40)], 2.0) for query in relevant})
    weights = LearnedFusion().fit({**runs, "same": same}, relevant).weights_.set_index(["run", "feature"])
    assert weights.loc[("same", "level"), "weight"] == 0
    assert weights.loc[("same", "level"), "standardised"] == 0


def test_queries_without_relevant_or_any_documents() -> None:
    world = {
        "a": {"q1": {"x": 2.0, "y": 1.0}, "q2": {}, "q10": {"x": 1.0}},
        "b": {"q1": {}, "q2": {}, "q10": {"y": 1.0}},
    }
    runs = runs_of(world)
    fusion = LearnedFusion().fit(runs, {"q1": ["x"], "q2": ["x"], "q10": [], "elsewhere": ["x"]})
    assert fusion.n_queries_ == 1
    fused = fusion.fuse(runs)
    assert fused["q2"] == []
    assert [d for d, _ in fused["q1"]] == ["x", "y"]


def test_bad_input_is_refused() -> None:
    runs, relevant = sample()
    fit = LearnedFusion().fit
    with pytest.raises(InputError, match="at least one run"):
        fit({}, relevant)
    with pytest.raises(InputError, match="about the same queries"):
        fit({**runs, "more": run({"q1": {"d1": 1.0}})}, relevant)
    with pytest.raises(UnknownNameError, match="unknown run 'svr'; known: fair, good, noise"):
        fit(runs, relevant, memories=["svr"])
    with pytest.raises(InputError, match="novel: unknown query id 'nine'"):
        fit(runs, relevant, novel=["q1", "nine"])
    with pytest.raises(InputError, match="no query has a relevant document in its pool"):
        fit(runs, {"q1": ["zz"], "q2": []})
    with pytest.raises(InputError, match="found a string"):
        fit(runs, {"q1": "d1"})
    for wrong in ({"depth": 0}, {"cold": 1.5}, {"l2": -1}, {"max_iter": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LearnedFusion(**wrong).fit(runs, relevant)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        LearnedFusion(max_iter=1).fit(runs, relevant)


def test_fusing_needs_the_runs_of_the_training() -> None:
    runs, relevant = sample()
    fusion = LearnedFusion()
    for call in (lambda: fusion.fuse(runs), lambda: fusion.weights_, fusion.to_dict):
        with pytest.raises(NotFittedError):
            call()
    fusion.fit(runs, relevant)
    with pytest.raises(InputError, match="learned for runs fair, good, noise; found fair, good"):
        fusion.fuse({name: runs[name] for name in ("good", "fair")})
