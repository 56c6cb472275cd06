"""Learned fusion: pools and features against dictionaries, the gradient, laws, explanations, files, errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fusion_oracle import (
    QUERIES,
    Scores,
    first,
    judgements,
    listings,
    oracle,
    oracle_loss,
    qrels,
    run,
    runs_of,
    sample,
    several,
    trust,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from haybale.collections.ids import id_table
from haybale.ensemble import LearnedFusion, unseen_queries
from haybale.ensemble.learned_fusion import ConditionalLogit, feature_list, relevant_rows, run_features
from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.retrieval import Run
from haybale.retrieval.fusion import pooled

Relevant = dict[str, list[str]]


def learned(runs: dict[str, Run], relevant: Relevant, trained: Any = (), unseen: Any = (), **how: Any) -> LearnedFusion:
    return LearnedFusion(**how).fit(runs, qrels(relevant), trained=trained, unseen=unseen)


# against slow oracles -------------------------------------------------------------------------------------


@given(world=several, depth=st.integers(1, 9), trained=st.sets(st.sampled_from(["bm25", "svr"])))
def test_pools_and_features_are_the_oracles(world: dict[str, Scores], depth: int, trained: set[str]) -> None:
    asked = ["q10", "q1"]
    pool = pooled(list(runs_of(world).values()), asked, depth)
    mark = relevant_rows(pool, qrels({query: ["b", "c", "zz"] for query in [*asked, "q2"]}))
    names, table = feature_list(list(world), trained), run_features(pool, list(world), trained)
    ids = pool.doc_ids.to_pylist()
    rows = [(pool.query_ids[q], ids[d]) for q, d in zip(pool.query, pool.document, strict=True)]
    assert sorted(rows) == sorted((query, d) for query in asked for d in oracle(world, query, depth, set()))
    assert mark.tolist() == [document in "bc" for _, document in rows]
    for at, (query, document) in enumerate(rows):
        expected = dict.fromkeys(names, 0.0) | oracle(world, query, depth, trained)[document]
        assert dict(zip(names, table[:, at], strict=True)) == pytest.approx(expected, rel=1e-6)


@settings(deadline=None)
@given(
    world=several,
    relevant=judgements,
    depth=st.integers(1, 9),
    trained=st.sets(st.sampled_from(["bm25", "svr"])),
    unseen=st.sets(st.sampled_from(QUERIES)),
    share=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_loss_is_the_oracles(
    world: dict[str, Scores], relevant: Relevant, depth: int, trained: set[str], unseen: set[str], share: float
) -> None:
    trained &= set(world)
    try:
        fusion = learned(runs_of(world), relevant, trained, unseen, depth=depth, unseen_share=share, l2=0.01)
    except InputError:
        assert not any(set(oracle(world, q, depth, trained)) & set(relevant[q]) for q in QUERIES)
        return
    frame = fusion.weights_
    weights = {(row.run, row.feature): row.weight for row in frame.itertuples()}
    loss = oracle_loss(world, relevant, depth, trained, unseen, share, weights)
    penalty = 0.01 * (frame["standardised"] ** 2).sum()
    assert fusion.loss_ == pytest.approx(loss + penalty, rel=1e-5, abs=1e-6)
    # No step in any direction is better: it is the minimum.
    for key, row in zip(weights, frame.itertuples(), strict=True):
        for step in (-0.05, 0.05):
            if row.weight:
                there = {**weights, key: row.weight + step / (row.standardised / row.weight)}
                moved = oracle_loss(world, relevant, depth, trained, unseen, share, there)
                other = penalty + 0.01 * ((row.standardised + step) ** 2 - row.standardised**2)
                assert moved + other >= fusion.loss_ - 1e-6


@given(world=several.filter(lambda world: any(any(q.values()) for q in world.values())))
@settings(deadline=None)
def test_fused_scores_are_the_oracles(world: dict[str, Scores]) -> None:
    trained = {"svr"} & set(world)
    query = next(q for q in QUERIES if any(scores[q] for scores in world.values()))
    answer = next(first(scores[query], 3)[0][0] for scores in world.values() if scores[query])
    fusion = learned(runs_of(world), {query: [answer]}, trained, depth=3)
    weights = {(row.run, row.feature): row.weight for row in fusion.weights_.itertuples()}
    fused = fusion.fuse(runs_of(world))
    assert fused.query_ids == list(next(iter(world.values())))
    for each in QUERIES:
        expected = {
            d: sum(weights[key] * value for key, value in row.items())
            for d, row in oracle(world, each, 3, trained).items()
        }
        assert dict(fused[each]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@given(st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=4), max_size=8))
def test_unseen_queries_share_no_relevant_document(relevant: list[list[str]]) -> None:
    expected = [
        bool(ids) and not any(set(ids) & set(other) for j, other in enumerate(relevant) if j != i)
        for i, ids in enumerate(relevant)
    ]
    found = unseen_queries(relevant)
    assert found.dtype == bool
    assert found.tolist() == expected
    assert unseen_queries([np.array(["a"]), ("b", "a"), ["c"]]).tolist() == [False, False, True]
    with pytest.raises(InputError, match="found a string"):
        unseen_queries(["d1", "d2"])


# the conditional logit ------------------------------------------------------------------------------------


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


def test_neither_blocks_nor_threads_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, relevant = sample()
    whole = learned(runs, relevant, ["good"])
    monkeypatch.setattr("haybale.ensemble.learned_fusion._ROWS", 50)
    fits = []
    for n in (1, 2, 5):
        monkeypatch.setattr("haybale.machine.cpus", lambda n=n: n)
        fits.append(learned(runs, relevant, ["good"]).to_dict())
    assert fits[0] == fits[1] == fits[2]
    weights = [row["weight"] for row in fits[0]["weights"]]
    assert weights == pytest.approx(whole.coef_, rel=1e-6, abs=1e-9)


def test_queries_that_teach_nothing_count_for_the_deviations_alone() -> None:
    rng = np.random.default_rng(0)
    query, features = np.repeat(np.arange(9), 10), rng.normal(size=(4, 90)).astype(np.float32)
    target = (np.arange(90) % 10 == 3) * (query % 3 > 0) / 6
    whole, some = ConditionalLogit(query, features, target, 0.0), query % 3 > 0
    part = ConditionalLogit(query[some], features[:, some], target[some], 0.0)
    assert whole.spread == pytest.approx(features.std(axis=1, dtype=np.float64), rel=1e-12)
    at = rng.normal(size=4)
    assert whole(at * whole.spread)[0] == pytest.approx(part(at * part.spread)[0], rel=1e-12)


# laws -----------------------------------------------------------------------------------------------------


def test_runs_that_share_a_table_fuse_as_those_that_do_not() -> None:
    runs, relevant = sample()
    table = id_table(f"d{i}" for i in range(39, -1, -1))
    place = {name: i for i, name in enumerate(table.to_pylist())}
    shared = {}
    for name, each in runs.items():
        rows, _, ids, scores = each.flat()
        shared[name] = Run.from_numbers(each.query_ids, table, rows, [place[i] for i in ids.to_pylist()], scores)
    one, other = (learned(each, relevant, ["good"]) for each in (runs, shared))
    assert one.coef_ == pytest.approx(other.coef_, abs=1e-9)
    assert one.fuse(runs) == one.fuse(shared)


def test_neither_the_order_of_runs_nor_of_queries_nor_other_judgements_matter() -> None:
    runs, relevant = sample()
    turned = {name: run.take(run.query_ids[::-1]) for name, run in reversed(runs.items())}
    one = learned(runs, relevant, ["fair", "good"])
    judged = qrels({"elsewhere": ["d1"]} | dict(reversed(relevant.items())))
    irrelevant = qrels({q: ["d3"] for q, ids in relevant.items() if "d3" not in ids}).assign(relevance=0)
    other = LearnedFusion().fit(turned, pd.concat([judged, irrelevant]), trained={"good", "fair"})
    assert one.to_dict() == other.to_dict()
    assert one.fuse(runs).take(turned["good"].query_ids) == other.fuse(turned)


@given(factor=st.floats(1e-3, 1e3), shift=st.floats(-5, 5), scores=listings)
def test_level_does_not_depend_on_scale(factor: float, shift: float, scores: Scores) -> None:
    scaled = {q: {d: s * factor + shift for d, s in docs.items()} for q, docs in scores.items()}
    level = [run_features(pooled([run(each)], QUERIES, 9), ["r"], [])[0] for each in (scores, scaled)]
    assert level[0] == pytest.approx(level[1], abs=1e-5)


def test_a_run_of_relevant_documents_alone_is_believed_and_a_constant_one_is_not() -> None:
    runs, relevant = sample()
    sure = run({query: dict.fromkeys(ids, 1.0) for query, ids in relevant.items()})
    same = run({query: dict.fromkeys([f"d{i}" for i in range(40)], 2.0) for query in relevant})
    runs |= {"sure": sure, "same": same}
    fusion = learned(runs, relevant)
    shares = [trust(fusion, runs, name) for name in ("sure", "good", "noise")]
    assert shares[0] > max(shares[1:])
    fused = fusion.fuse(runs)
    assert all({d for d, _ in fused[query][:2]} == set(ids) for query, ids in relevant.items())
    weights = fusion.weights_.set_index(["run", "feature"])
    assert weights.loc[("same", "level")].tolist() == [0, 0]


def test_good_runs_weigh_more_and_fusion_is_better_than_any() -> None:
    runs, relevant = sample(n_queries=60)
    fusion = learned(runs, relevant)
    assert trust(fusion, runs, "good") > trust(fusion, runs, "fair") > trust(fusion, runs, "noise")
    new, truth = sample(seed=1)

    def mrr(found: Run) -> float:
        ranks = [min((r for r, (d, _) in enumerate(found[q], 1) if d in truth[q]), default=math.inf) for q in truth]
        return float(np.mean([1 / rank for rank in ranks]))

    assert mrr(fusion.fuse(new)) > max(mrr(each) for each in new.values())


# unseen queries -------------------------------------------------------------------------------------------


def half_blind() -> tuple[dict[str, Run], Relevant, list[str]]:
    """``good`` is a trained run that has no relevant document of the first five queries, which are unseen."""
    runs, relevant = sample()
    unseen = [f"q{i}" for i in range(5)]
    met = {q: {d: s for d, s in runs["good"][q] if q not in unseen or d not in relevant[q]} for q in relevant}
    return {**runs, "good": run(met)}, relevant, unseen


def test_a_share_for_unseen_queries_lowers_the_trust_in_trained_runs() -> None:
    runs, relevant, unseen = half_blind()
    fits = [learned(runs, relevant, ["good"], unseen, unseen_share=share) for share in (0, 0.3, 0.8)]
    warm, some, most = (trust(fit, runs, "good") for fit in fits)
    assert warm > some > most


def test_without_a_share_or_unseen_queries_all_queries_count_alike() -> None:
    runs, relevant, unseen = half_blind()
    relevant["q29"] = ["zz"]  # unseen, but with nothing in the pool
    fits = [
        learned(runs, relevant, ["good"], new, unseen_share=share)
        for share, new in ((0, unseen), (0, []), (0.3, []), (0.3, "q29"), (1, ["q29"]), (0.3, list(relevant)))
    ]
    assert [fit.n_unseen_ for fit in fits] == [5, 0, 0, 0, 0, 29]
    assert all(fit.n_queries_ == 29 for fit in fits)
    assert all((fit.coef_ == fits[0].coef_).all() for fit in fits[1:-1])
    assert fits[-1].coef_ == pytest.approx(fits[0].coef_, rel=1e-3, abs=1e-4)


def test_with_a_share_of_1_unseen_queries_alone_count() -> None:
    runs, relevant, unseen = half_blind()
    only = learned(runs, relevant, ["good"], unseen, unseen_share=1.0)
    # Wrong judgements of queries that do not count change nothing.
    wrong = {q: ids if q in unseen else [runs["noise"][q][0][0]] for q, ids in relevant.items()}
    other = learned(runs, wrong, ["good"], unseen, unseen_share=1.0)
    assert (only.coef_ == other.coef_).all()
    assert only.loss_ == other.loss_


def test_a_share_of_the_loss_is_as_many_copies() -> None:
    """Unseen queries that are there three times have the share 1 − n / (n + 2·n_unseen) to themselves."""
    runs, relevant, unseen = half_blind()
    more = {f"{q}+{i}": q for q in unseen for i in (1, 2)}
    copies = {
        name: run({q: dict(each[more.get(q, q)]) for q in (*each.query_ids, *more)}) for name, each in runs.items()
    }
    truth = relevant | {copy: relevant[q] for copy, q in more.items()}
    one = learned(runs, relevant, ["good"], unseen, unseen_share=1 - 30 / (30 + 2 * 5), l2=0)
    many = learned(copies, truth, ["good"], unseen_share=0, l2=0)
    assert one.loss_ == pytest.approx(many.loss_, rel=1e-5)
    known = {name: each.take(list(relevant)) for name, each in runs.items()}
    for query, document in [("q1", runs["fair"]["q1"][0][0]), ("q20", relevant["q20"][0])]:
        shares = [fusion.explain(known, query, document)["share"].to_numpy() for fusion in (one, many)]
        assert shares[0] == pytest.approx(shares[1], rel=0.02, abs=0.02)


# explanations, files, errors ------------------------------------------------------------------------------


def test_shares_sum_to_the_fused_score() -> None:
    runs, relevant = sample()
    fusion = learned(runs, relevant, ["good"], depth=10)
    for document, score in fusion.fuse(runs)["q3"]:
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
    with pytest.raises(InputError, match="no run has document 'zz' among its first 10 for query 'q3'"):
        fusion.explain(runs, "q3", "zz")
    with pytest.raises(InputError, match="unknown query id 'nine'"):
        fusion.explain(runs, "nine", "d1")


def test_queries_without_relevant_or_any_documents() -> None:
    world = {
        "a": {"q1": {"x": 2.0, "y": 1.0}, "q2": {}, "q10": {"x": 1.0}},
        "b": {"q1": {}, "q2": {}, "q10": {"y": 1.0}},
    }
    runs = runs_of(world)
    fusion = learned(runs, {"q1": ["x"], "q2": ["x"], "q10": [], "elsewhere": ["x"]})
    assert fusion.n_queries_ == 1
    fused = fusion.fuse(runs)
    assert fused["q2"] == []
    assert [d for d, _ in fused["q1"]] == ["x", "y"]


def test_bad_input_is_refused() -> None:
    runs, relevant = sample()
    with pytest.raises(InputError, match="at least one run"):
        learned({}, relevant)
    with pytest.raises(InputError, match="about the same queries"):
        learned({**runs, "more": run({"q1": {"d1": 1.0}})}, relevant)
    with pytest.raises(UnknownNameError, match="unknown run 'svr'; known: fair, good, noise"):
        learned(runs, relevant, ["svr"])
    with pytest.raises(InputError, match="unseen: unknown query id 'nine'"):
        learned(runs, relevant, unseen=["q1", "nine"])
    with pytest.raises(InputError, match="no query has a relevant document in its pool"):
        learned(runs, {"q1": ["zz"], "q2": []})
    with pytest.raises(InputError, match="qrels: the frame has no column relevance"):
        LearnedFusion().fit(runs, qrels(relevant).drop(columns="relevance"))
    for wrong in ({"depth": 0}, {"unseen_share": 1.5}, {"l2": -1}, {"max_iter": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            learned(runs, relevant, **wrong)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        learned(runs, relevant, max_iter=1)
    for call in (lambda: LearnedFusion().fuse(runs), lambda: LearnedFusion().weights_, LearnedFusion().to_dict):
        with pytest.raises(NotFittedError):
            call()
    with pytest.raises(InputError, match="learned for runs fair, good, noise; found fair, good"):
        learned(runs, relevant).fuse({name: runs[name] for name in ("good", "fair")})


def test_a_saved_fusion_fuses_to_the_same_bits(tmp_path: Path) -> None:
    runs, relevant = sample()
    fusion = learned(runs, relevant, ["good"], ["q1"], unseen_share=0.1, depth=np.int64(20))
    fusion.save(tmp_path / "fusion.json")
    assert [path.name for path in tmp_path.iterdir()] == ["fusion.json"]
    again = LearnedFusion.load(tmp_path / "fusion.json")
    assert again.fuse(runs) == fusion.fuse(runs)
    assert again.to_dict() == fusion.to_dict() == json.loads(json.dumps(fusion.to_dict()))
    assert (again.n_queries_, again.n_unseen_) == (30, 1)
    assert again.weights_.equals(fusion.weights_)
    assert clone(again).get_params() == again.get_params() == fusion.get_params()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "expected format 'haybale fusion', found 'other'"),
        ({"version": 1}, "expected version 2, found 1"),
        ({"parameters": {"depth": 0}}, "depth"),
        ({"parameters": {"deep": 3}}, "deep"),
        ({"runs": ["good"]}, "weights are not those of the features of its runs"),
        ({"trained": ["other"]}, "weights are not those"),
        ({"weights": None}, "TypeError"),
        ({"loss": ...}, "loss"),
        ({"weights": math.nan}, "no finite number"),
    ],
)
def test_files_that_are_no_fusion_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    runs, relevant = sample()
    plain = learned(runs, relevant).to_dict()
    if changes == {"weights": math.nan}:
        plain["weights"][0]["weight"] = math.nan
    else:
        plain = {name: value for name, value in (plain | changes).items() if value is not ...}
    with pytest.raises(InputError, match=message):
        LearnedFusion.from_dict(plain)
    path = tmp_path / "fusion.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(FileFormatError, match=message):
        LearnedFusion.load(path)


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "fusion.json"
    with pytest.raises(FileFormatError, match="not found"):
        LearnedFusion.load(path)
    for content, message in ((b"{", "line 1: expected JSON"), (b"\xff", "expected JSON"), (b"[]", "expected format")):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=message):
            LearnedFusion.load(path)
