"""Recall curves against ir_measures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.errors import InputError
from haybale.evaluation import evaluate, recall_curves
from haybale.retrieval import Run


def run_of(*ranked: tuple[str, str]) -> Run:
    """A run with these pairs, the first of each query first."""
    rows = [(query, doc, -float(place)) for place, (query, doc) in enumerate(ranked)]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def qrels_of(*pairs: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["query_id", "doc_id", "relevance"])


pair = st.tuples(st.sampled_from([f"q{i}" for i in range(4)]), st.sampled_from([f"d{i}" for i in range(8)]))
runs = st.lists(pair, unique=True, max_size=30).map(lambda pairs: run_of(*pairs))
judgements = (
    st.dictionaries(pair, st.integers(0, 2), min_size=1)
    .filter(lambda grades: any(grades.values()))
    .map(lambda grades: qrels_of(*((q, d, g) for (q, d), g in grades.items())))
)


@settings(max_examples=50, deadline=None)
@given(one=runs, other=runs, qrels=judgements)
def test_recall_curves_are_ir_measures_recall(one: Run, other: Run, qrels: pd.DataFrame) -> None:
    cutoffs = [7, 1, 2, 3, 5]
    frame = recall_curves({"one": one, "other": other}, qrels, cutoffs)
    assert frame.index.tolist() == sorted(cutoffs)
    for name, run in (("one", one), ("other", other)):
        expected = evaluate(run, qrels, [f"Recall@{k}" for k in sorted(cutoffs)]).mean().to_numpy()
        np.testing.assert_allclose(frame[name].to_numpy(), expected, atol=1e-12)


def test_default_cutoffs_go_as_far_as_the_deepest_run() -> None:
    qrels = qrels_of(("a", "x30", 1), ("b", "x0", 1))
    shallow, deep = (run_of(*(("a", f"x{i}") for i in range(n))) for n in (3, 49))
    assert recall_curves({"s": shallow}, qrels).index.tolist() == [1, 2]
    assert recall_curves({"s": shallow, "d": deep}, qrels).index.tolist() == [1, 2, 5, 10, 20]
    assert recall_curves({"e": Run.from_numbers(["a"], [], [], [], [])}, qrels)["e"].to_dict() == {1: 0.0}
    assert recall_curves({"d": deep}, qrels, [50])["d"].to_dict() == {50: 0.5}  # b is not in the run: 0
    for those, judged, cutoffs, message in [
        ({}, qrels, None, "no run"),
        ({"d": deep}, qrels, [], "cut-offs must be 1 or more"),
        ({"d": deep}, qrels, [0, 5], "cut-offs must be 1 or more"),
        ({"d": deep}, qrels_of(("a", "x", 0)), None, "no relevant document"),
    ]:
        with pytest.raises(InputError, match=message):
            recall_curves(those, judged, cutoffs)
