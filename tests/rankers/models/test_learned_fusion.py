"""Learned fusion: features and loss against oracles, invariances, explanations, plain values, errors."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from haybale.errors import InputError, NotFittedError
from haybale.rankers.models.conditional_logit import conditional_logit
from haybale.rankers.models.judged_pools import ndcg
from haybale.rankers.models.learned_fusion import LearnedFusion
from haybale.rankers.models.new_queries import unseen_queries
from haybale.retrieval import Run

QUERIES, DOCS = ["q1", "q2", "q10"], list("abcdefgh")
Relevant = dict[str, list[str]]
Scores = dict[str, dict[str, float]]  # by query, by document
values = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.integers(-40, 40).map(lambda x: x / 8))
listings = st.fixed_dictionaries({query: st.dictionaries(st.sampled_from(DOCS), values) for query in QUERIES})
several = st.dictionaries(st.sampled_from(["bm25", "knn", "svr"]), listings, min_size=1)
judgements = st.fixed_dictionaries({query: st.lists(st.sampled_from([*DOCS, "zz"]), max_size=3) for query in QUERIES})


def run(scores: Scores) -> Run:
    ids = sorted({document for docs in scores.values() for document in docs})
    listed = [(row, ids.index(d), s) for row, docs in enumerate(scores.values()) for d, s in docs.items()]
    return Run.from_numbers(list(scores), ids, *([line[column] for line in listed] for column in range(3)))


def runs_of(world: dict[str, Scores]) -> dict[str, Run]:
    return {name: run(scores) for name, scores in world.items()}


def first(scores: dict[str, float], depth: int) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:depth]


def qrels(relevant: dict[str, list[str]]) -> pd.DataFrame:
    rows = [(query, document, 1) for query, documents in relevant.items() for document in documents]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])


def oracle(
    world: dict[str, Scores], query: str, depth: int, trained: set[str]
) -> dict[str, dict[tuple[str, str], float]]:
    """Return the features of each document, by run and kind."""
    table: dict[str, dict[tuple[str, str], float]] = {}
    for name, scores in world.items():
        listed = first(scores[query], depth)
        for rank, (document, score) in enumerate(listed, start=1):
            best, lowest = listed[0][1], listed[-1][1]
            row = table.setdefault(document, {})
            row[name, "level"] = (score - lowest) / (best - lowest) if best > lowest else 1.0
            row[name, "rank"], row[name, "first"] = 61 / (60 + rank), 1 / rank
            if name in trained:
                row[name, "score"] = score
    return table


def oracle_loss(
    world: dict[str, Scores],
    relevant: dict[str, list[str]],
    depth: int,
    trained: set[str],
    unseen: set[str],
    unseen_share: float,
    w: Any,
) -> float:
    """Return the loss without its penalty, computed query by query."""
    losses: dict[str, float] = {}
    for query in QUERIES:
        table = oracle(world, query, depth, trained)
        is_relevant = [document in relevant[query] for document in table]
        if any(is_relevant):
            scores = [sum(w.get(key, 0.0) * value for key, value in row.items()) for row in table.values()]
            losses[query] = -float(log_softmax(scores)[is_relevant].mean())
    new = [loss for query, loss in losses.items() if query in unseen]
    whole = float(np.mean(list(losses.values())))
    return (1 - unseen_share) * whole + unseen_share * float(np.mean(new)) if new else whole


def influence(fusion: LearnedFusion, runs: dict[str, Run], name: str) -> float:
    """Return the mean share that a run adds to its first documents; it adds 0 to documents that it lacks."""
    firsts = [(query, runs[name][query][0][0]) for query in runs[name].query_ids]
    return float(np.mean([fusion.explain(runs, *first).set_index("run").loc[name, "share"] for first in firsts]))


def sample(seed: int = 0, n_queries: int = 30, n_docs: int = 40) -> tuple[dict[str, Run], dict[str, list[str]]]:
    """Return three runs of random depth, whose scores have a strong, a weak and no signal, and relevant documents."""
    rng = np.random.default_rng(seed)
    query_ids = [f"q{i}" for i in range(n_queries)]
    ids = [f"d{i}" for i in range(n_docs)]
    relevant = {q: [ids[j] for j in rng.choice(n_docs, size=2, replace=False)] for q in query_ids}
    scores: dict[str, Scores] = {}
    for name, signal in (("good", 3.0), ("fair", 1.0), ("noise", 0.0)):
        scores[name] = {
            q: {d: float(rng.normal() + signal * (d in relevant[q])) for d in ids if rng.random() < 0.7}
            for q in query_ids
        }
    return runs_of(scores), relevant


def learned(runs: dict[str, Run], relevant: Relevant, trained: Any = (), unseen: Any = (), **how: Any) -> LearnedFusion:
    return LearnedFusion(**how).fit(runs, qrels(relevant), trained=trained, unseen=unseen)


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
        fusion = learned(runs_of(world), relevant, trained, unseen, depth=depth, unseen_share=share, l2=2)
    except InputError:
        assert not any(set(oracle(world, q, depth, trained)) & set(relevant[q]) for q in QUERIES)
        return
    frame = fusion.weights_
    weights = {(row.run, row.feature): row.weight for row in frame.itertuples()}
    loss = oracle_loss(world, relevant, depth, trained, unseen, share, weights)
    n = fusion.n_queries_
    penalty = 2 / n * ((frame["standardised"] - frame["prior"]) ** 2).sum()
    assert fusion.loss_ == pytest.approx(loss + penalty, rel=1e-5, abs=1e-6)
    # The loss is minimal: no step along an axis lowers it.
    for key, row in zip(weights, frame.itertuples(), strict=True):
        for step in (-0.05, 0.05):
            if row.weight:
                there = {**weights, key: row.weight + step / (row.standardised / row.weight)}
                moved = oracle_loss(world, relevant, depth, trained, unseen, share, there)
                away = row.standardised - row.prior
                other = penalty + 2 / n * ((away + step) ** 2 - away**2)
                assert moved + other >= fusion.loss_ - 1e-6
    # The prior is minimal too: no step lowers the loss of the best run alone.
    own = frame[frame["run"] == fusion.best_]
    assert not frame.drop(own.index)["prior"].any()
    spread = dict(zip(weights, fusion.spread_, strict=True))
    alone = {(row.run, row.feature): row.prior for row in own.itertuples()}

    def lost(standardised: dict[Any, float]) -> float:
        raw = {key: value / spread[key] for key, value in standardised.items() if spread[key]}
        squares = sum(value**2 for value in standardised.values()) / n
        return oracle_loss(world, relevant, depth, trained, unseen, 0.0, raw) + squares

    for key in alone:
        for step in (-0.05, 0.05):
            if spread[key]:
                assert lost({**alone, key: alone[key] + step}) >= lost(alone) - 1e-6


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


def test_neither_blocks_nor_threads_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, relevant = sample()
    whole = learned(runs, relevant, ["good"])
    monkeypatch.setattr("haybale.rankers.models.conditional_logit._POOLED_DOCUMENTS_PER_BLOCK", 50)
    fits = []
    for n in (1, 2, 5):
        monkeypatch.setattr("haybale.parallel.cpus", lambda n=n: n)
        fits.append(learned(runs, relevant, ["good"]).to_dict())
    assert fits[0] == fits[1] == fits[2]
    weights = [row["weight"] for row in fits[0]["weights"]]
    assert weights == pytest.approx(whole.coef_, rel=1e-6, abs=1e-9)


def test_weights_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    query, features = np.repeat(np.arange(40), 100), rng.normal(size=(90, 4000)).astype(np.float32)
    target = (np.arange(4000) % 100 == 3) / 40
    found = conditional_logit(query, features, target, 1e-3, 50)[0]
    with threadpool_limits(1, user_api="blas"):
        np.testing.assert_array_equal(conditional_logit(query, features, target, 1e-3, 50)[0], found)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(conditional_logit, query, features, target, 1e-3, 50).result()[0]
    np.testing.assert_array_equal(other, found)


def test_queries_without_target_only_count_for_deviations() -> None:
    rng = np.random.default_rng(0)
    query, features = np.repeat(np.arange(9), 10), rng.normal(size=(4, 90)).astype(np.float32)
    target = (np.arange(90) % 10 == 3) * (query % 3 > 0) / 6
    whole, some = conditional_logit(query, features, target, 0.0, 50), query % 3 > 0
    part = conditional_logit(query[some], features[:, some], target[some], 0.0, 50)
    assert whole[1] == pytest.approx(features.std(axis=1, dtype=np.float64), rel=1e-12)
    assert whole[0] == pytest.approx(part[0], rel=1e-6)
    assert whole[2] == pytest.approx(part[2], rel=1e-9)


def test_the_order_of_runs_and_queries_and_other_judgements_do_not_matter() -> None:
    runs, relevant = sample()
    turned = {name: run.take(run.query_ids[::-1]) for name, run in reversed(runs.items())}
    one = learned(runs, relevant, ["fair", "good"])
    judged = qrels({"elsewhere": ["d1"]} | dict(reversed(relevant.items())))
    irrelevant = qrels({q: ["d3"] for q, ids in relevant.items() if "d3" not in ids}).assign(relevance=0)
    other = LearnedFusion().fit(turned, pd.concat([judged, irrelevant]), trained={"good", "fair"})
    assert one.to_dict() == other.to_dict()
    assert one.fuse(runs).take(turned["good"].query_ids) == other.fuse(turned)


def test_good_runs_weigh_more_and_constant_runs_nothing() -> None:
    runs, relevant = sample()
    runs["sure"] = run({query: dict.fromkeys(ids, 1.0) for query, ids in relevant.items()})
    runs["same"] = run({query: dict.fromkeys([f"d{i}" for i in range(40)], 2.0) for query in relevant})
    fusion = learned(runs, relevant)
    shares = [influence(fusion, runs, name) for name in ("sure", "good", "fair", "noise")]
    assert shares == sorted(shares, reverse=True)
    fused = fusion.fuse(runs)
    assert all({d for d, _ in fused[query][:2]} == set(ids) for query, ids in relevant.items())
    assert fusion.weights_.set_index(["run", "feature"]).loc[("same", "level")].tolist() == [0, 0, 0]


def test_with_few_queries_fusion_stays_close_to_the_best_run() -> None:
    """Without a strong penalty, it would be worse than that run on held-out queries."""
    losses = []
    for seed in range(8):
        runs, relevant = sample(seed)
        runs |= {f"noise{i}": sample(100 + 8 * i + seed)[0]["noise"] for i in range(6)}
        few, others = ({q: relevant[q] for q in part} for part in (list(relevant)[:5], list(relevant)[5:]))
        fusion = learned({name: of.take(list(few)) for name, of in runs.items()}, few)
        assert fusion.best_ == "good"
        held_out = {name: of.take(list(others)) for name, of in runs.items()}
        weak = learned({name: of.take(list(few)) for name, of in runs.items()}, few, l2=0.005)
        fused = held_out["good"], fusion.fuse(held_out), weak.fuse(held_out)
        best, strong_mean, weak_mean = (ndcg(each, list(others), qrels(others)).mean() for each in fused)
        losses.append((best - strong_mean, best - weak_mean))
    strong_loss, weak_loss = np.mean(losses, axis=0)
    assert strong_loss < 0.02
    assert weak_loss > 0.1


def test_a_share_for_unseen_queries_lowers_the_weight_of_trained_runs() -> None:
    """``good`` is a trained run that lacks the relevant documents of the first five queries, which are unseen."""
    runs, relevant = sample()
    unseen = [f"q{i}" for i in range(5)]
    runs["good"] = run(
        {q: {d: s for d, s in runs["good"][q] if q not in unseen or d not in relevant[q]} for q in relevant}
    )
    fits = [learned(runs, relevant, ["good"], unseen, unseen_share=share) for share in (0, 0.3, 0.8)]
    none, some, most = (influence(fit, runs, "good") for fit in fits)
    assert none > some > most
    assert (fits[0].n_queries_, fits[0].n_unseen_) == (30, 5)


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
    with pytest.raises(InputError, match=r"'zz' .* 10 .*'q3'"):
        fusion.explain(runs, "q3", "zz")


@given(
    relevant=st.lists(st.lists(st.sampled_from("abcdef"), max_size=3), max_size=9),
    numbers=st.lists(st.integers(0, 3), min_size=9, max_size=9),
    grouped=st.booleans(),
)
def test_unseen_queries_share_no_document_with_another_group(
    relevant: list[list[str]], numbers: list[int], grouped: bool
) -> None:
    groups = numbers if grouped else list(range(9))
    expected = [
        bool(mine) and not any(set(mine) & set(theirs) for theirs, g in zip(relevant, groups, strict=False) if g != own)
        for mine, own in zip(relevant, groups, strict=False)
    ]
    assert unseen_queries(relevant, np.array(groups[: len(relevant)]) if grouped else None).tolist() == expected


def test_errors() -> None:
    runs, relevant = sample()
    more = {**runs, "more": run({"q1": {"d1": 1.0}})}
    for given_runs, labels, how, named in (
        ({}, relevant, {}, "run"),
        (more, relevant, {}, "queries"),
        (runs, relevant, {"trained": ["svr"]}, "'svr'.* fair, good, noise"),
        (runs, relevant, {"unseen": ["q1", "nine"]}, "unseen: .*'nine'"),
        (runs, {"q1": ["zz"], "q2": []}, {}, "qrels"),
        (runs, relevant, {"unseen_share": 1.5}, "unseen_share"),
    ):
        with pytest.raises(InputError, match=named):
            learned(given_runs, labels, **how)
    with pytest.raises(InputError, match=r"qrels: .*relevance"):
        LearnedFusion().fit(runs, qrels(relevant).drop(columns="relevance"))
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        fusion = learned(runs, relevant, max_iter=1)
    with pytest.raises(NotFittedError):
        LearnedFusion().fuse(runs)
    with pytest.raises(InputError, match="fair, good, noise, found fair, good"):
        fusion.fuse({name: runs[name] for name in ("good", "fair")})
    with pytest.raises(InputError, match="'nine'"):
        fusion.explain(runs, "nine", "d1")


def test_plain_values_round_trip() -> None:
    runs, relevant = sample()
    fusion = learned(runs, relevant, ["good"], ["q1"], unseen_share=0.1, depth=np.int64(20))
    again = LearnedFusion.from_dict(json.loads(json.dumps(fusion.to_dict())))
    assert again.fuse(runs) == fusion.fuse(runs)
    assert again.to_dict() == fusion.to_dict()
    assert (again.n_queries_, again.n_unseen_) == (30, 1)
    assert again.weights_.equals(fusion.weights_)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": 1}, "version 3, found 1"),
        ({"parameters": {"depth": 0}}, "depth"),
        ({"parameters": {"size": 0}}, "size"),
        ({"runs": ["good"]}, "'good'"),
        ({"weights": math.nan}, "finite"),
    ],
)
def test_errors_of_plain_values(changes: dict[str, Any], named: str) -> None:
    runs, relevant = sample()
    plain = learned(runs, relevant).to_dict()
    if changes == {"weights": math.nan}:
        changes = {"weights": [row | {"weight": math.nan} for row in plain["weights"]]}
    with pytest.raises(InputError, match=named):
        LearnedFusion.from_dict(plain | changes)
