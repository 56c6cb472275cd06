"""Expected F1 and thresholds against slow oracles, and properties of the rules."""

from __future__ import annotations

from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.rankers.models.answer_rules import (
    OBJECTIVES,
    AnswerRule,
    JudgedCandidates,
    answer_counts,
    expected_f1,
    fitted_rule,
)

PROBABILITIES = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=8)


def oracle_f1(answer: tuple[int, ...], probabilities: np.ndarray) -> float:
    """Return the expected F1 of an answer, summed over all sets of relevant documents."""
    total = 0.0
    for relevant in product([0, 1], repeat=len(probabilities)):
        weight = np.prod([p if label else 1 - p for p, label in zip(probabilities, relevant, strict=True)])
        n_right = sum(relevant[document] for document in answer)
        total += weight * 2 * n_right / max(1, len(answer) + sum(relevant))
    return float(total)


@given(PROBABILITIES)
@settings(max_examples=60, deadline=None)
def test_expected_f1_is_that_of_all_outcomes(values: list[float]) -> None:
    falling = np.sort(values)[::-1]
    expected = [oracle_f1(tuple(range(n)), falling) for n in range(1, len(falling) + 1)]
    assert expected_f1(falling) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_no_answer_has_a_larger_expected_f1_than_the_one_that_macro_f1_takes(values: list[float]) -> None:
    probabilities = np.array(values)
    taken = AnswerRule("macro-f1", 0.0, False).is_answer(np.array([0, len(values)]), probabilities)
    numbers = range(len(values))
    answers = chain.from_iterable(combinations(numbers, n) for n in range(1, len(values) + 1))
    best = max(oracle_f1(answer, probabilities) for answer in answers)
    assert taken.any()
    assert oracle_f1(tuple(np.flatnonzero(taken).tolist()), probabilities) == pytest.approx(best, abs=1e-10)


def judged_candidates(seed: int, n_queries: int = 30) -> JudgedCandidates:
    """Return candidates whose probabilities are true; some queries have no candidate, and some probabilities tie."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, size=n_queries)
    probabilities = np.round(rng.beta(0.5, 1.5, size=counts.sum()), 2).clip(0.01, 0.99)
    is_relevant = rng.random(len(probabilities)) < probabilities
    offsets = np.concatenate([[0], np.cumsum(counts)])
    n_right = np.bincount(np.repeat(np.arange(n_queries), counts), is_relevant, minlength=n_queries).astype(int)
    return JudgedCandidates(offsets, probabilities, is_relevant, n_right + rng.integers(0, 2, size=n_queries))


@pytest.mark.parametrize("at_least_one", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_counts_of_every_threshold_are_those_of_its_answers(seed: int, at_least_one: bool) -> None:
    judged = judged_candidates(seed)
    thresholds, n_answers, n_right, n_expected = answer_counts(judged, at_least_one)
    assert (np.diff(thresholds) < 0).all()
    assert set(thresholds) == set(judged.probabilities)
    for row, threshold in enumerate(thresholds):
        taken = AnswerRule("micro-f1", threshold, at_least_one).is_answer(judged.offsets, judged.probabilities)
        assert n_answers[row] == taken.sum()
        assert n_right[row] == judged.is_relevant[taken].sum()
        assert n_expected[row] == pytest.approx(judged.probabilities[taken].sum())


@pytest.mark.parametrize("at_least_one", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_thresholds_serve_their_objectives_best(seed: int, at_least_one: bool) -> None:
    judged = judged_candidates(seed)
    n_relevant = judged.n_relevant.sum()

    def answers(threshold: float) -> np.ndarray:
        return AnswerRule("micro-f1", threshold, at_least_one).is_answer(judged.offsets, judged.probabilities)

    def precision(threshold: float) -> float:
        return float(judged.is_relevant[answers(threshold)].mean())

    def recall(threshold: float) -> float:
        return float(judged.is_relevant[answers(threshold)].sum() / n_relevant)

    def f1(threshold: float) -> float:
        taken = answers(threshold)
        return float(2 * judged.probabilities[taken].sum() / (taken.sum() + n_relevant))

    every = np.unique(judged.probabilities)
    assert f1(fitted_rule("micro-f1", None, at_least_one, judged).threshold) == pytest.approx(max(map(f1, every)))
    chosen = fitted_rule("precision", 0.6, at_least_one, judged).threshold
    enough = [threshold for threshold in every if precision(threshold) >= 0.6]
    assert chosen == min(enough) if enough else precision(chosen) == max(map(precision, every))
    chosen = fitted_rule("recall", 0.5, at_least_one, judged).threshold
    assert chosen == max(threshold for threshold in every if recall(threshold) >= 0.5)
    assert fitted_rule("recall", 1.0, at_least_one, judged).threshold == (
        every.min() if recall(every.min()) < 1 else max(threshold for threshold in every if recall(threshold) >= 1)
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_queries_without_candidates_have_no_answer(objective: str) -> None:
    rule = AnswerRule(objective, 0.5, True)
    assert rule.is_answer(np.array([0, 0, 2, 2]), np.array([0.2, 0.4])).tolist() == [False, True]
    assert rule.is_answer(np.array([0, 0]), np.empty(0)).tolist() == []
    nobody = JudgedCandidates(np.array([0, 0]), np.empty(0), np.empty(0, dtype=bool), np.array([1]))
    assert fitted_rule(objective, 0.5, True, nobody).objective == objective


def test_answers_do_not_depend_on_other_queries() -> None:
    judged = judged_candidates(7)
    for objective in OBJECTIVES:
        rule = AnswerRule(objective, 0.4, True)
        whole = rule.is_answer(judged.offsets, judged.probabilities)
        for start, end in zip(judged.offsets[:-1], judged.offsets[1:], strict=True):
            alone = rule.is_answer(np.array([0, end - start]), judged.probabilities[start:end])
            assert alone.tolist() == whole[start:end].tolist()
