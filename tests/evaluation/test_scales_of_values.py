"""Significance and measures do not depend on the unit of values and of scores."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import LearnedFusion, Run, evaluate
from haybale.evaluation.significance import paired_tests, randomization_test, t_test

SCALES = (1e-300, 1e-150, 1e-9, 1e-3, 3.0, 1e9, 1e150, 1e300)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    scale=st.sampled_from(SCALES),
    decimals=st.sampled_from([1, 2, 15]),
    shift=st.sampled_from([0.0, 1.0, -5.0, 1e3]),
)
def test_the_unit_of_values_changes_no_test(seed: int, n: int, scale: float, decimals: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = rng.random((2, n)).round(decimals)
    expected = paired_tests(ours, theirs)
    for values, baseline, factor in (
        (ours * scale, theirs * scale, scale),
        (ours + shift, theirs + shift, 1.0),
        ((ours + shift) * scale, (theirs + shift) * scale, scale),
    ):
        found = paired_tests(values, baseline)
        assert found.p_randomization == pytest.approx(expected.p_randomization, abs=1e-12)
        assert found.p_t == pytest.approx(expected.p_t, rel=1e-6)
        assert (found.effect_size is None) == (expected.effect_size is None)
        if expected.effect_size is not None:
            assert found.effect_size == pytest.approx(expected.effect_size, rel=1e-6, abs=1e-9)
        assert found.difference / factor == pytest.approx(expected.difference, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_differences_that_are_equal_up_to_rounding(scale: float) -> None:
    values = np.array([0.3, 0.7, 0.9, 0.4, 0.8, 0.6])
    for shift in (0.0, 1e3):
        found = paired_tests((values + shift) * scale, (values + shift - 0.1) * scale)
        assert (found.p_t, found.effect_size) == (0.0, None)
        assert found.p_randomization == pytest.approx(2 / 2**6, abs=0.01)


def test_tests_of_differences_alone() -> None:
    rng = np.random.default_rng(3)
    differences = rng.normal(0.1, 0.3, size=12).round(1)
    for scale in SCALES:
        assert randomization_test(differences * scale) == randomization_test(differences)
        assert t_test(differences * scale) == pytest.approx(t_test(differences))
    signs = np.array(list(itertools.product([-1, 1], repeat=12)))
    extreme = np.abs((signs * differences).sum(axis=1)) >= abs(differences.sum()) - 1e-9
    assert randomization_test(differences * 1e-9) == pytest.approx(extreme.mean(), abs=0.02)


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e-3, 1e9])
def test_the_unit_of_scores_changes_no_measure(scale: float) -> None:
    rng = np.random.default_rng(5)
    rows = [(f"q{query}", f"d{doc}", float(rng.integers(40)) / 7) for query in range(6) for doc in range(30)]
    frame = pd.DataFrame(rows, columns=["query_id", "doc_id", "score"])
    qrels = pd.DataFrame(
        [(f"q{query}", f"d{doc}", int(rng.integers(3))) for query in range(6) for doc in range(8)],
        columns=["query_id", "doc_id", "relevance"],
    )
    measures = ["nDCG@10", "MAP", "Recall@5", "MRR", "PRES@20"]
    expected = evaluate(Run.from_frame(frame), qrels, measures)
    for shift in (0.0, 1e3):
        found = evaluate(Run.from_frame(frame.assign(score=(frame["score"] + shift) * scale)), qrels, measures)
        pd.testing.assert_frame_equal(found, expected)
    frames = {"one": frame, "two": frame.assign(score=frame["score"].to_numpy()[::-1])}
    runs = {name: Run.from_frame(each) for name, each in frames.items()}
    scaled = {name: Run.from_frame(each.assign(score=each["score"] * scale)) for name, each in frames.items()}
    one, two = (LearnedFusion(l2=1).fit(each, qrels, trained=["two"]) for each in (runs, scaled))
    fused = one.fuse(runs), two.fuse(scaled)
    for query in fused[0].query_ids:
        assert [doc for doc, _ in fused[0][query]][:10] == [doc for doc, _ in fused[1][query]][:10]
