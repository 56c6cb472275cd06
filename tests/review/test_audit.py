"""The rule ``audit``: no ranking and no way of stopping makes its bound wrong more often than it says."""

from __future__ import annotations

from collections import Counter
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from haybale.review import Audit, BettingTest, DrawPlan, LabelledTopic, Screening, parse_rule, simulate
from haybale.review.betting import FRACTIONS, SWITCHED, WEIGHTS, bet
from haybale.review.draws import draw_position, fewest_missing, most_total

N = 7  # documents of the collections whose readings are all enumerated


def capital_of(total: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([total]), np.array(WEIGHTS)[:, None].copy()


def largest_chance(total: int, threshold: float, n_found: int, n_other: int, capital: np.ndarray | None) -> float:
    """Return the chance that the true total is excluded, by the reader who knows all labels and wants that most.

    The reader decides before each document whether to draw, to read a relevant one or to read an irrelevant one.
    """
    if capital is None:
        return 1.0
    n_unread = N - n_found - n_other
    if not n_unread:
        return 0.0
    missing, chances = total - n_found, [0.0]
    if missing:
        chances.append(largest_chance(total, threshold, n_found + 1, n_other, capital))
    if n_unread - missing:
        chances.append(largest_chance(total, threshold, n_found, n_other + 1, capital))
    drawn = 0.0
    for is_relevant, n_such in ((True, missing), (False, n_unread - missing)):
        if n_such:
            totals, after = np.array([total]), capital.copy()
            left = bet(totals, after, 1, is_relevant, n_found, n_unread, threshold)
            state = n_found + is_relevant, n_other + (not is_relevant), after if left else None
            drawn += n_such / n_unread * largest_chance(total, threshold, *state)
    return max(*chances, drawn)


@pytest.mark.parametrize("total", range(N + 1))
@pytest.mark.parametrize("confidence", [0.5, 0.7])
def test_no_reader_can_exclude_the_truth_more_often_than_promised(total: int, confidence: float) -> None:
    chance = largest_chance(total, 1 / (1 - confidence), 0, 0, capital_of(total)[1])
    assert chance <= 1 - confidence + 1e-12
    if total == 3:
        assert chance > 0.1  # the law is not empty: a reader can be wrong


def expected_capital(total: int, n_found: int, n_other: int, capital: np.ndarray, reads: int) -> float:
    """Return the expected capital against the true total at the end; every third document is read, the rest drawn."""
    n_unread, missing = N - n_found - n_other, total - n_found
    if not n_unread:
        return float(capital.sum())
    if reads % 3 == 2:
        takes = (n_found + 1, n_other) if missing else (n_found, n_other + 1)
        return expected_capital(total, *takes, capital, reads + 1)
    expected = 0.0
    for is_relevant, n_such in ((True, missing), (False, n_unread - missing)):
        if n_such:
            totals, after = np.array([total]), capital.copy()
            bet(totals, after, 1, is_relevant, n_found, n_unread, inf)
            takes = (n_found + 1, n_other) if is_relevant else (n_found, n_other + 1)
            expected += n_such / n_unread * expected_capital(total, *takes, after, reads + 1)
    return expected


@pytest.mark.parametrize("total", range(N + 1))
def test_the_capital_against_the_truth_is_a_fair_game(total: int) -> None:
    expected = expected_capital(total, 0, 0, capital_of(total)[1], 0)
    assert expected <= 1 + 1e-12
    if total <= 2:  # never are all unread documents relevant, where each bet can only lose
        assert expected == pytest.approx(1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.floats(0, 1), st.sampled_from([0.6, 0.9]))
def test_a_bet_is_the_ratio_of_likelihoods(seed: int, n: int, rich: float, confidence: float) -> None:
    """Against a slow computation with one number at a time, in which nothing is moved."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < rich * np.linspace(1, 0, n)
    drawn = rng.random(n) < 0.6
    test, capital = BettingTest(n, confidence), {total: np.array(WEIGHTS) for total in range(n + 1)}
    for i, label in enumerate(labels.tolist()):
        if drawn[i]:
            n_found, n_unread = int(labels[:i].sum()), n - i
            test.draw(label, n_found, n_unread)
            for total in list(capital):
                p = (total - n_found) / n_unread
                if not 0 <= p <= 1 or (p if label else 1 - p) == 0:
                    del capital[total]
                    continue
                q = np.array(FRACTIONS) * p
                after = capital[total] * (q / p if label else (1 - q) / (1 - p))
                capital[total] = (1 - SWITCHED) * after + SWITCHED * np.array(WEIGHTS) * after.sum()
                if after.sum() >= 1 / (1 - confidence):
                    del capital[total]
        now, left = int(labels[: i + 1].sum()), n - i - 1
        possible = [total for total in capital if total <= now + left]
        assert test.largest_total(now, left) == max([now, *possible])


def read(labels: np.ndarray, rule: Audit, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and draws in the order of a reading that follows the plan of a rule to the end."""
    rng, plan, unread = np.random.default_rng(seed), rule.draw_plan(), list(range(len(labels)))
    order, drawn = list[bool](), list[bool]()
    assert plan is not None
    while unread:
        drawn.append(plan.is_due(sum(order), len(unread)))
        order.append(bool(labels[unread.pop(int(rng.integers(len(unread))) if drawn[-1] else 0)]))
        plan.note(order[-1], drawn[-1])
    return np.array(order), np.array(drawn)


@pytest.mark.parametrize("hidden", [0, 12])
def test_bounds_of_whole_reviews_hold(hidden: int) -> None:
    labels = np.zeros(400, dtype=bool)
    labels[:28] = True
    labels[400 - hidden :] = True  # the ranking puts these last
    n_wrong = n_early = 0
    for seed in range(120):
        rule = Audit(target=0.8, confidence=0.8)
        order, drawn = read(labels, rule, seed)
        stop = rule.first_stop(order, len(order), drawn=drawn)
        assert stop is not None
        n_early += stop < len(order)
        n_wrong += order[:stop].sum() < 0.8 * labels.sum()
    assert n_wrong <= 120 * 0.2 + 3 * np.sqrt(120 * 0.2 * 0.8)
    assert n_early > 60


def test_a_rule_without_draws_says_nothing() -> None:
    advice = parse_rule("audit").check(Screening([1, 1, 0, 0], 9))
    assert (advice.stop, advice.low) == (False, None)


def test_draws_are_due_when_the_ranking_finds_no_more_than_draws_would() -> None:
    plan = DrawPlan(target=0.8)
    for _ in range(1000):
        plan.note(False, False)
    assert not plan.is_due(0, 500)  # nothing was found, so that no share of it can be tested
    assert plan.is_due(40, 500)
    plan.note(True, False)
    assert not plan.is_due(41, 500)
    waits = next(n for n in range(500) if DrawPlan(0.8, wait=n).is_due(40, 500))
    assert waits == int(np.ceil(0.7 * 500 / fewest_missing(40, 0.8)))
    stricter = DrawPlan(0.8, wait=waits)
    stricter.note(True, True)
    assert not stricter.is_due(40, 500)


@given(st.integers(0, 5000), st.sampled_from([0.5, 0.8, 0.9, 0.95, 1.0]))
def test_the_largest_total_with_the_target_reached(n_found: int, target: float) -> None:
    total = most_total(n_found, target)
    assert n_found >= target * total - 1e-9
    assert n_found < target * (total + 1)
    assert fewest_missing(n_found, target) == total + 1 - n_found


def test_each_document_that_can_be_drawn_has_the_same_chance() -> None:
    taken = {0, 3, 4, 9}
    counts = Counter(
        draw_position(seed, number, 10, taken.__contains__) for seed in range(200) for number in range(1, 16)
    )
    assert set(counts) == set(range(10)) - taken
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_a_simulation_draws_in_a_reading_of_its_own() -> None:
    documents = {f"d{i:03}": f"lease rent {i}" if i % 9 == 0 else f"pets noise garden {i}" for i in range(180)}
    from haybale import Engine

    engine = Engine(documents, language="english", encoder="tfidf(min_df=1)")
    topic = LabelledTopic("leases", [doc_id for doc_id, text in documents.items() if "lease" in text], "lease")
    without = simulate(engine, topics=[topic], seeds=2, target=0.8, rules=["consecutive(20)"])
    audited = simulate(engine, topics=[topic], seeds=2, target=0.8, rules=["consecutive(20)", "audit"])
    for before, after in zip(without.runs, audited.runs, strict=True):
        assert (before.found_at, before.measures) == (after.found_at, after.measures)
        assert before.stops["consecutive(count=20)"] == after.stops["consecutive(count=20)"]
        stop = after.stops["audit"]
        assert stop.reached
        assert stop.read == stop.cost
        assert stop.read is not None
        assert after.oracle < stop.read < after.n_documents
    again = simulate(engine, topics=[topic], seeds=2, target=0.8, rules=["audit"], learn_from=10)
    assert all(run.stops["audit"].reached for run in again.runs)
