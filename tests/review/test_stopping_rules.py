"""Properties of all stopping rules, and each rule beside a slow computation of its definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from haybale import HaybaleError, InputError, UnknownNameError
from haybale.review import CMH, IPH, QBCB, STOPPING_RULES, Consecutive, Quant, Screening, StoppingRule, parse_rule
from haybale.review.stopping.iph import _hyperbolic

RULES = [
    "audit(target=0.6,confidence=0.7)",
    "consecutive(7)",
    "budget(12)",
    "cmh(target=0.8,confidence=0.7)",
    "cmh(target=0.9,every=4)",
    "iph(target=0.8)",
    "iph(target=0.9,rate='power')",
    "iph(target=0.8,released=true)",
    "quant(target=0.8,at_least=4)",
    "quant(target=0.8,n_std=2,every=3)",
    "qbcb(target=0.6,confidence=0.7)",
]
SLOW = "iph(target=0.8)"  # it takes as long as all others together; its released form is tried always
EACH_RULE = [pytest.param(text, marks=pytest.mark.thorough if text == SLOW else ()) for text in RULES]


def made(seed: int, n: int, n_relevant: int, skew: float = 8.0, share: float = 0.5) -> dict[str, Any]:
    """Return a whole reading order in which relevant documents become rarer, a sample and probabilities."""
    rng = np.random.default_rng(seed)
    falling = np.exp(-skew * np.arange(n) / n)
    labels, sampled = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    labels[rng.choice(n, n_relevant, replace=False, p=falling / falling.sum())] = True
    sampled[rng.choice(n, int(share * n), replace=False)] = True
    drawn = ~sampled & (rng.random(n) < np.linspace(0, 1, n))
    scores = falling * rng.random(n)
    return {"labels": labels, "n_documents": n, "sampled": sampled, "scores": scores, "drawn": drawn}


@pytest.mark.parametrize("text", EACH_RULE)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 120), st.floats(0, 1), st.floats(0, 1))
def test_the_first_stop_is_the_first_check_that_says_stop(text: str, seed: int, n: int, rich: float, r: float) -> None:
    rule, case = parse_rule(text), made(seed, n, int(rich * n))
    screening = Screening(**case)
    n_read = int(r * n)
    part = screening.prefix(n_read)
    asked = [k for k in range(n_read + 1) if rule.check(screening.prefix(k)).stop]
    of_part = {**case, "labels": part.labels, "sampled": part.sampled, "drawn": part.drawn}
    found = rule.first_stop(**of_part) if not len(part.held_out) else rule.find_stop(part)
    assert found == (asked[0] if asked and asked[0] < n else (n if found == n else None))
    assert rule.first_stop(**case) == next(k for k in range(n + 1) if rule.check(screening.prefix(k)).stop)


@pytest.mark.parametrize("text", EACH_RULE)
@pytest.mark.parametrize(("n", "n_relevant"), [(1, 0), (1, 1), (40, 0), (40, 40), (40, 1)])
def test_extreme_collections(text: str, n: int, n_relevant: int) -> None:
    rule, case = parse_rule(text), made(1, n, n_relevant)
    assert not rule.check(Screening([], n, scores=case["scores"])).stop
    assert rule.first_stop([], n, scores=case["scores"]) is None
    stop = rule.first_stop(**case)
    assert stop is not None
    assert 1 <= stop <= n
    advice = rule.check(Screening(**case))
    assert (advice.stop, advice.recall, advice.low) == (True, 1.0, 1.0)  # all was read


@pytest.mark.parametrize("text", EACH_RULE)
def test_advice_is_a_value_within_bounds(text: str) -> None:
    rule, screening = parse_rule(text), Screening(**made(3, 400, 50))
    for n in (1, 3, 20, 90, 250, 399):
        advice = rule.check(screening.prefix(n))
        assert advice == rule.check(screening.prefix(n))
        assert advice.reason
        assert 0 <= (advice.low or 0) <= (1 if advice.recall is None else advice.recall)
        assert (advice.low or 0) <= (advice.high or 1) <= 1


@pytest.mark.parametrize("text", [rule for rule in RULES if "target" in rule])
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(10, 200), st.floats(0, 1))
def test_a_larger_target_never_stops_earlier(text: str, seed: int, n: int, rich: float) -> None:
    case, rule = made(seed, n, int(rich * n)), parse_rule(text)
    stops = [type(rule)(**{**rule.get_params(), "target": t}).first_stop(**case) for t in (0.5, 0.8, 0.9, 0.95, 1.0)]
    assert stops == sorted(stops)


@pytest.mark.parametrize("text", EACH_RULE)
def test_nothing_stops_before_its_first_checkpoint(text: str) -> None:
    rule, case = parse_rule(text), made(5, 300, 40)
    first = rule.checkpoints(300)[0]
    assert rule.first_stop(**case) >= first
    assert not any(rule.check(Screening(**case).prefix(n)).stop for n in range(first))


@pytest.mark.parametrize("text", EACH_RULE)
def test_a_rule_says_whether_it_needs_probabilities(text: str) -> None:
    rule, screening = parse_rule(text), Screening(**{**made(3, 400, 50), "scores": None}).prefix(200)
    if rule.needs_scores:
        with pytest.raises(InputError, match="scores"):
            rule.check(screening)
    else:
        assert rule.check(screening) == rule.check(Screening(**made(3, 400, 50)).prefix(200))


# Names and parameters


@pytest.mark.parametrize("text", EACH_RULE)
def test_texts_of_rules_are_read_back(text: str) -> None:
    rule = parse_rule(text)
    assert parse_rule(str(rule)) == rule
    assert hash(parse_rule(str(rule))) == hash(rule)
    assert rule.name in STOPPING_RULES
    assert rule.kind in ("heuristic", "estimate", "certificate")


def test_every_rule_is_tested_and_states_its_promise() -> None:
    kinds = {name: kind for name, kind in STOPPING_RULES.items() if kind.__module__.startswith("haybale.")}
    assert {text.partition("(")[0] for text in RULES} == set(kinds)
    for name, kind in kinds.items():
        assert parse_rule(name) == kind()
        assert kind().promise
        if "target" in kind().get_params():
            assert "80%" in kind(target=0.8).promise


@pytest.mark.parametrize(
    "text", ["cmh(target=0)", "cmh(target=1.5)", "cmh(confidence=1)", "consecutive(0)", "iph(rate=a)"]
)
def test_parameters_out_of_range(text: str) -> None:
    with pytest.raises(InputError, match="must be"):
        parse_rule(text)


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="qbcb"):
        parse_rule("qbbc")
    with pytest.raises(UnknownNameError, match="confidence"):
        parse_rule("cmh(confidance=0.9)")
    with pytest.raises(InputError, match="documents"):
        parse_rule("budget(1, 2)")


def test_a_class_that_lacks_a_method_is_refused() -> None:
    with pytest.raises(TypeError, match="advise"):

        @dataclass(frozen=True)
        class Unfinished(StoppingRule):
            name = "unfinished"
            kind = "heuristic"
            promise = "nothing"

    assert "unfinished" not in STOPPING_RULES


# Readings


def test_later_documents_of_the_sample_are_held_out() -> None:
    screening = Screening([1, 0, 1, 1], 6, sampled=[0, 1, 1, 1], held_out=[False])
    before = screening.prefix(1)
    assert before.labels.tolist() == [True]
    assert sorted(before.held_out.tolist()) == [False, False, True, True]
    assert (screening.n_read, screening.n_relevant, before.n_relevant) == (4, 3, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": [1, 0, 1], "n_documents": 2},
        {"labels": [], "n_documents": 0},
        {"labels": [2, 0], "n_documents": 2},
        {"labels": [[1, 0]], "n_documents": 2},
        {"labels": [1, 0], "n_documents": 2, "held_out": [1]},
        {"labels": [1, 0], "n_documents": 3, "sampled": [1]},
        {"labels": [1, 0], "n_documents": 3, "scores": [0.5, 0.5]},
    ],
)
def test_readings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"found|expected"):
        Screening(**wrong)


# Each rule beside its definition


def test_consecutive() -> None:
    labels = [1, 0, 0, 1, 0, 0, 0, 1]
    assert Consecutive(2).first_stop(labels, 20) == 3
    assert Consecutive(3).first_stop(labels, 20) == 7
    assert Consecutive(4).first_stop(labels, 20) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 80), st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.9, 0.95, 1.0]))
def test_cmh_is_the_smallest_of_all_hypergeometric_tests(seed: int, n: int, rich: float, target: float) -> None:
    labels, n_documents = made(seed, n, int(rich * n))["labels"], n + seed % 50 + 1
    rule, screening = CMH(target), Screening(labels, n_documents)
    advice = rule.check(screening)
    seen = int(labels.sum())
    if not seen:
        assert (advice.stop, advice.low) == (False, None)
        return
    total = int(np.floor(seen / target + 1))
    if total - seen > n_documents - n:  # there are not enough unread documents to miss the target
        assert advice.stop
        return
    sizes = np.arange(1, n + 1)
    found = np.cumsum(labels[::-1])
    p = stats.hypergeom.cdf(found, n_documents - n + sizes, total - seen + found, sizes).min()
    assert advice.stop == (p < 0.05)
    assert advice.stop == (advice.low >= target - 1e-12)


def test_iph_expects_the_integral_of_the_rate_that_it_fits() -> None:
    screening = Screening(**made(2, 2000, 150)).prefix(500)
    rule = IPH(target=0.8)
    x, y = rule._windows(screening.labels)
    assert y.sum() * 50 == pytest.approx(screening.n_relevant)  # ten windows of 50 documents hold every document
    assert x.tolist() == [25.5 + 50 * i for i in range(10)]
    rates, (a, b, c) = _hyperbolic(x, y)
    assert np.square(y - rates).sum() <= np.square(y - y.mean()).sum()
    at = np.linspace(500, 2000, 100_001)
    expected = np.trapezoid(a * np.exp(-np.log1p(b * c * at) / b), at)
    advice = rule.check(screening)
    found = screening.n_relevant
    assert advice.recall == pytest.approx(found / (found + expected))
    upper = stats.poisson.ppf(0.95, expected)
    assert advice.low == pytest.approx(found / (found + upper))
    assert advice.stop == (advice.low >= 0.8)


def test_quant_divides_sums_of_probabilities() -> None:
    case = made(4, 90, 20)
    p, n = case["scores"], 60
    advice = Quant(target=0.9).check(Screening(**case).prefix(n))
    deviation = np.sqrt(p[:n].sum() ** 2 / p.sum() ** 4 * (p * (1 - p)).sum() + (p * (1 - p))[:n].sum() / p.sum() ** 2)
    assert advice.recall == pytest.approx(p[:n].sum() / p.sum())
    assert advice.low == pytest.approx(max(advice.recall - 2 * deviation, 0))
    assert Quant(target=0.9, n_std=2).check(Screening(**case).prefix(n)).stop == (advice.low >= 0.9)


@pytest.mark.parametrize("scores", [None, np.full(30, 2.0), np.full(30, np.nan), np.full(30, -0.1)])
def test_quant_needs_probabilities(scores: Any) -> None:
    with pytest.raises(HaybaleError, match="quant needs"):
        Quant(at_least=5).check(Screening(np.zeros(20, dtype=bool), 30, scores=scores))


@pytest.mark.parametrize(("target", "confidence"), [(0.8, 0.95), (0.9, 0.95), (0.95, 0.95), (0.5, 0.5), (0.99, 0.9)])
def test_qbcb_asks_for_the_smallest_quantile(target: float, confidence: float) -> None:
    rule = QBCB(target, confidence)
    for r in (0, 1, 5, 14, 60, 200):
        enough = [j for j in range(1, r + 1) if stats.binom.cdf(j - 1, r, target) >= confidence]
        assert rule.required(r) == (enough[0] if enough else None)
    fewest = rule.fewest_relevant()
    assert rule.required(fewest) == fewest
    assert rule.required(fewest - 1) is None


def test_qbcb_holds_over_the_draw_of_the_sample_for_a_bad_ranking() -> None:
    rng, labels = np.random.default_rng(0), np.zeros(2000, dtype=bool)
    labels[[*range(150), *range(1800, 1850)]] = True  # a quarter of the relevant documents comes late
    rule = QBCB(target=0.8, confidence=0.9)
    reached = []
    for _ in range(1000):
        sampled = np.zeros(2000, dtype=bool)
        sampled[rng.choice(2000, 400, replace=False)] = True
        stop = rule.first_stop(labels, 2000, sampled=sampled)
        reached.append(labels[:stop].sum() >= 0.8 * 200)
    assert np.mean(reached) >= 0.9 - 3 * np.sqrt(0.9 * 0.1 / 1000)
    # The heuristics see the gap after the first group and stop in it.
    assert Consecutive(100).first_stop(labels, 2000) == 250


def test_qbcb_bounds_are_those_of_clopper_and_pearson() -> None:
    labels = np.arange(100) < 40
    screening = Screening(labels[:30], 200, sampled=np.arange(30) % 2 == 0, held_out=[True] * 5 + [False] * 20)
    advice = QBCB(target=0.9, confidence=0.95).check(screening)
    interval = stats.binomtest(15, 20).proportion_ci(confidence_level=0.9, method="exact")
    assert (advice.recall, advice.low, advice.high) == pytest.approx((15 / 20, interval.low, interval.high))
