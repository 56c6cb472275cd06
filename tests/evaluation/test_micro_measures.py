"""Micro averages against loops, scikit-learn and numbers by hand; their intervals against those of ratios."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from haybale.errors import InputError
from haybale.evaluation import evaluate, intervals, paired_tests
from haybale.retrieval import Run

NAMES = ["MicroP", "MicroR", "MicroF1"]


def frames(answers: dict[str, list[str]], relevant: dict[str, list[str]]) -> tuple[Run, pd.DataFrame]:
    rows = [(query, doc, -float(n)) for query, docs in answers.items() for n, doc in enumerate(docs)]
    run = Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))
    pairs = [(query, doc, 1) for query, docs in relevant.items() for doc in docs]
    return run, pd.DataFrame(pairs, columns=["query_id", "doc_id", "relevance"])


def test_the_example_of_coliee_by_hand() -> None:
    """Two of four answers are among the five relevant cases: precision 1/2, recall 2/5, F1 4/9."""
    run, qrels = frames({"1": ["a", "b", "c"], "2": ["d"]}, {"1": ["a", "e"], "2": ["d", "f"], "3": ["g"]})
    assert evaluate(run, qrels, NAMES).mean().tolist() == pytest.approx([1 / 2, 2 / 5, 4 / 9])
    first = evaluate(run, qrels, [f"{name}@1" for name in NAMES]).mean().tolist()
    assert first == pytest.approx([1.0, 2 / 5, 4 / 7])


documents = st.lists(st.sampled_from("abcdefgh"), unique=True)
worlds = st.lists(st.tuples(documents, documents.filter(len)), min_size=1, max_size=8)


@given(worlds)
@settings(max_examples=80, deadline=None)
def test_measures_are_those_of_scikit_learn(world: list[tuple[list[str], list[str]]]) -> None:
    answers = {f"q{n}": ranked for n, (ranked, _) in enumerate(world)}
    relevant = {f"q{n}": docs for n, (_, docs) in enumerate(world)}
    if not any(answers.values()):
        return
    run, qrels = frames(answers, relevant)
    rows = [([doc in docs for doc in "abcdefgh"], [doc in ranked for doc in "abcdefgh"]) for ranked, docs in world]
    labels, predictions = (np.concatenate(column) for column in zip(*rows, strict=True))
    expected = precision_recall_fscore_support(labels, predictions, average="binary", zero_division=0)[:3]
    found = evaluate(run, qrels, [*NAMES, "SetF"])
    assert found[NAMES].mean().tolist() == pytest.approx(list(expected))
    macro = [2 * len(set(ranked) & set(docs)) / (len(ranked) + len(docs)) if ranked else 0.0 for ranked, docs in world]
    assert found["SetF"].tolist() == pytest.approx(macro)


def test_without_answers_measures_are_0_and_others_have_no_effect() -> None:
    run, qrels = frames({"1": ["a"], "x": ["b"]}, {"1": ["a"]})
    qrels = pd.concat([qrels, pd.DataFrame({"query_id": ["x"], "doc_id": ["b"], "relevance": [0]})])
    assert evaluate(run, qrels, NAMES).mean().tolist() == [1.0, 1.0, 1.0]  # x has no relevant document
    nothing = Run.joined([run.take(["1"]).top(0)])
    assert evaluate(nothing, qrels, NAMES).mean().tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(InputError, match="cut-off"):
        evaluate(run, qrels, ["MicroF1@0"])
    with pytest.raises(InputError, match="unknown measure"):
        evaluate(run, qrels, ["MicroF2"])


def random_world(seed: int, n: int = 300) -> tuple[Run, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    letters = list("abcdefghij")
    answers = {f"q{i:03d}": list(rng.choice(letters, rng.integers(1, 4), replace=False)) for i in range(n)}
    relevant = {f"q{i:03d}": list(rng.choice(letters, rng.integers(1, 6), replace=False)) for i in range(n)}
    return frames(answers, relevant)


def test_intervals_of_linear_parts_are_those_of_the_ratio() -> None:
    run, qrels = random_world(0)
    table = evaluate(run, qrels, [*NAMES, "SetF"])
    counts = np.array(
        [
            (len({doc for doc, _ in run[query]} & set(part["doc_id"])), len(run[query]), len(part))
            for query, part in qrels.groupby("query_id")
        ]
    )
    rng = np.random.default_rng(1)
    weights = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=4000)
    n_right, n_answers, n_relevant = (weights @ counts).T
    found = intervals(table)
    ratios = {
        "MicroP": n_right / n_answers,
        "MicroR": n_right / n_relevant,
        "MicroF1": 2 * n_right / (n_answers + n_relevant),
    }
    for name, samples in ratios.items():
        assert found[name] == pytest.approx(np.quantile(samples, [0.025, 0.975]), abs=0.003)
    spread = table["SetF"].std() / np.sqrt(len(table))
    mean = table["SetF"].mean()
    assert found["SetF"] == pytest.approx((mean - 1.96 * spread, mean + 1.96 * spread), abs=0.004)


def test_intervals_hold_as_often_as_they_should() -> None:
    """Of 100 samples of 150 queries, 87 to 99 intervals hold the F1 of 20,000 queries, about 95."""
    run, qrels = random_world(2, 8000)
    truth = evaluate(run, qrels, ["MicroF1"])["MicroF1"].mean()
    rng, ids, held = np.random.default_rng(3), qrels["query_id"].unique(), 0
    for _ in range(100):
        chosen = list(rng.choice(ids, 150, replace=False))
        part = qrels[qrels["query_id"].isin(chosen)]
        low, high = intervals(evaluate(run.take(chosen), part, ["MicroF1"]), n_samples=400)["MicroF1"]
        held += low <= truth <= high
    assert 87 <= held <= 99


def test_paired_tests_find_better_answers() -> None:
    run, qrels = random_world(4)
    better = Run.from_frame(
        pd.concat(
            [run.to_frame()[["query_id", "doc_id", "score"]], qrels.groupby("query_id").head(1).assign(score=1e3)]
        ).drop_duplicates(["query_id", "doc_id"])
    )
    ours, theirs = (evaluate(part, qrels, ["MicroF1"])["MicroF1"].to_numpy() for part in (better, run))
    assert paired_tests(ours, theirs).p < 0.001
    assert paired_tests(theirs, theirs).p == 1


@pytest.mark.parametrize(
    "wrong", [{"level": 1.5}, {"n_samples": 0}, {"random_state": -1}], ids=["level", "n_samples", "random_state"]
)
def test_wrong_parameters_of_intervals(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        intervals(pd.DataFrame({"P@1": [1.0]}, index=["q"]), **wrong)  # type: ignore[arg-type]


def test_intervals_widen_with_the_level_and_repeat() -> None:
    table = pd.DataFrame({"P@1": np.arange(30) % 3 / 2}, index=[f"q{n}" for n in range(30)])
    (low, high), (lower, higher) = intervals(table, 0.5)["P@1"], intervals(table, 0.99)["P@1"]
    assert lower < low < table["P@1"].mean() < high < higher
    assert intervals(table) == intervals(table)
