"""What novel queries do to the weights of a learned fusion."""

from __future__ import annotations

import numpy as np
import pytest
from fusion_oracle import QUERIES, oracle_loss, run, runs_of, sample, trust

from haybale.ensemble import LearnedFusion
from haybale.retrieval import Run


@pytest.mark.parametrize("cold", [0.0, 0.3, 1.0])
def test_the_weights_are_where_finite_differences_of_the_loss_vanish(cold: float) -> None:
    rng = np.random.default_rng(0)
    world = {
        name: {q: dict(zip("abcdefgh", rng.normal(size=8).tolist(), strict=True)) for q in QUERIES}
        for name in ("bm25", "svr")
    }
    relevant, novel = {"q1": ["a", "b"], "q2": ["c"], "q10": ["d"]}, {"q1"}
    fusion = LearnedFusion(depth=6, cold=cold, l2=0.01).fit(runs_of(world), relevant, memories="svr", novel=novel)
    names = list(fusion.weights_[["run", "feature"]].itertuples(index=False, name=None))

    def loss(at: np.ndarray) -> float:
        weights = dict(zip(names, at / fusion.spread_, strict=True))
        return oracle_loss(world, relevant, 6, {"svr"}, novel, cold, weights) + 0.01 * float(at @ at)

    found, step = fusion.coef_ * fusion.spread_, np.eye(len(names)) * 1e-4
    slopes = [(loss(found + each) - loss(found - each)) / 2e-4 for each in step]
    assert slopes == pytest.approx([0.0] * len(names), abs=1e-3)
    assert loss(found) < loss(np.zeros(len(names))) - 0.01


def half_blind() -> tuple[dict[str, Run], dict[str, list[str]], list[str]]:
    """``good`` is a memory that has no relevant document of the first five queries, which are novel."""
    runs, relevant = sample()
    novel = [f"q{i}" for i in range(5)]
    met = {q: {d: s for d, s in runs["good"][q] if q not in novel or d not in relevant[q]} for q in relevant}
    return {**runs, "good": run(met)}, relevant, novel


def test_cold_lowers_the_trust_in_a_memory() -> None:
    runs, relevant, novel = half_blind()
    warm, some, most = (
        trust(LearnedFusion(cold=cold).fit(runs, relevant, memories=["good"], novel=novel), runs, "good")
        for cold in (0, 0.3, 0.8)
    )
    assert warm > some > most


def test_without_cold_or_novel_queries_all_queries_count_alike() -> None:
    runs, relevant, novel = half_blind()
    relevant["q29"] = ["zz"]  # novel, but with nothing in the pool
    fits = [
        LearnedFusion(cold=cold).fit(runs, relevant, memories=["good"], novel=new)
        for cold, new in ((0, novel), (0, []), (0.3, []), (0.3, "q29"), (1, ["q29"]), (0.3, list(relevant)))
    ]
    assert [fit.n_novel_ for fit in fits] == [5, 0, 0, 0, 0, 29]
    assert all(fit.n_queries_ == 29 for fit in fits)
    assert all((fit.coef_ == fits[0].coef_).all() for fit in fits[1:-1])
    assert fits[-1].coef_ == pytest.approx(fits[0].coef_, rel=1e-3, abs=1e-4)


def test_with_cold_1_novel_queries_alone_count() -> None:
    runs, relevant, novel = half_blind()
    alone = {query: ids for query, ids in relevant.items() if query in novel}
    known = [query for query in relevant if query not in novel]
    only = LearnedFusion(cold=1.0).fit(runs, relevant, memories=["good"], novel=novel)
    # Wrong judgements of queries that do not count change nothing.
    wrong = {**alone, **{query: [runs["noise"][query][0][0]] for query in known}}
    other = LearnedFusion(cold=1.0).fit(runs, wrong, memories=["good"], novel=novel)
    assert (only.coef_ == other.coef_).all()
    assert only.loss_ == other.loss_


def test_a_share_of_the_loss_is_as_many_copies() -> None:
    """Novel queries that are there three times have the share 1 − n / (n + 2·n_novel) to themselves."""
    runs, relevant, novel = half_blind()
    more = {f"{q}+{i}": q for q in novel for i in (1, 2)}
    copies = {
        name: run({q: dict(each[more.get(q, q)]) for q in (*each.query_ids, *more)}) for name, each in runs.items()
    }
    truth = relevant | {copy: relevant[q] for copy, q in more.items()}
    cold = 1 - 30 / (30 + 2 * 5)
    one = LearnedFusion(cold=cold, l2=0).fit(runs, relevant, memories=["good"], novel=novel)
    many = LearnedFusion(cold=0, l2=0).fit(copies, truth, memories=["good"])
    assert one.loss_ == pytest.approx(many.loss_, rel=1e-5)
    known = {name: each.reindexed(list(relevant)) for name, each in runs.items()}
    for query, document in [("q1", runs["fair"]["q1"][0][0]), ("q20", relevant["q20"][0])]:
        shares = [fusion.explain(known, query, document)["share"].to_numpy() for fusion in (one, many)]
        assert shares[0] == pytest.approx(shares[1], rel=0.02, abs=0.02)
