"""Measures against loops, tests of significance against SciPy's."""

from __future__ import annotations

import io
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from haybale.errors import InputError
from haybale.evaluation import evaluate, markdown, paired_tests, print_table, results
from haybale.evaluation.measures import MEASURES
from haybale.evaluation.significance import randomization_test, t_test
from haybale.retrieval import Run


def by_hand(ranked: list[str], grades: dict[str, int]) -> dict[str, float]:
    relevant = {doc for doc, grade in grades.items() if grade > 0}
    gains = [grades.get(doc, 0) for doc in ranked]

    def ndcg(cut: int) -> float:
        ideal = sorted((g for g in grades.values() if g > 0), reverse=True)
        dcg, best = (sum(max(g, 0) / math.log2(i + 2) for i, g in enumerate(x[:cut])) for x in (gains, ideal))
        return dcg / best

    hits = [i for i, doc in enumerate(ranked) if doc in relevant]
    return {
        "MRR@10": next((1 / (i + 1) for i in hits if i < 10), 0.0),
        "nDCG@10": ndcg(10),
        "nDCG@20": ndcg(20),
        "Recall@100": sum(i < 100 for i in hits) / len(relevant),
        "Recall@1000": sum(i < 1000 for i in hits) / len(relevant),
        "MAP": sum((j + 1) / (i + 1) for j, i in enumerate(hits)) / len(relevant),
    }


documents = st.sampled_from([f"d{i}" for i in range(30)])


@settings(max_examples=60, deadline=None)
@given(
    scores=st.dictionaries(documents, st.sampled_from([0.0, 0.5, 1.0]), max_size=30),
    grades=st.dictionaries(documents, st.integers(0, 2), min_size=1).filter(lambda g: any(g.values())),
)
def test_measures_are_the_ones_by_hand(scores: dict[str, float], grades: dict[str, int]) -> None:
    """Scores tie often: the run's own order must be the one that is measured."""
    frame = pd.DataFrame([("q", d, s) for d, s in scores.items()], columns=["query_id", "doc_id", "score"])
    qrels = pd.DataFrame([("q", d, g) for d, g in grades.items()], columns=["query_id", "doc_id", "relevance"])
    run = Run.from_frame(frame).reindexed(["q"])
    found = evaluate(run, qrels).loc["q"].to_dict()
    assert found == pytest.approx(by_hand([doc for doc, _ in run["q"]], grades))


def test_unanswered_queries_count_as_zero_and_unjudged_ones_do_not_count() -> None:
    qrels = pd.DataFrame({"query_id": ["a", "b", "c"], "doc_id": ["x", "x", "x"], "relevance": [1, 1, 0]})
    run = Run.from_frame(pd.DataFrame({"query_id": ["a", "c", "z"], "doc_id": "x", "score": 1.0}))
    table = evaluate(run, qrels, ["MRR@10", "P@5"])
    assert table["MRR@10"].to_dict() == {"a": 1.0, "b": 0.0}
    assert table["P@5"].to_dict() == {"a": 0.2, "b": 0.0}


def test_what_cannot_be_measured_is_refused() -> None:
    run = Run.from_frame(pd.DataFrame({"query_id": ["a"], "doc_id": ["x"], "score": [1.0]}))
    with pytest.raises(InputError, match="no relevant document"):
        evaluate(run, pd.DataFrame({"query_id": ["a"], "doc_id": ["x"], "relevance": [0]}))
    with pytest.raises(InputError, match="unknown measure 'Beauty@10'"):
        evaluate(run, pd.DataFrame({"query_id": ["a"], "doc_id": ["x"], "relevance": [1]}), ["Beauty@10"])
    with pytest.raises(InputError, match="unknown measure 'nDCG@ten'"):
        evaluate(run, pd.DataFrame({"query_id": ["a"], "doc_id": ["x"], "relevance": [1]}), ["nDCG@ten"])


@given(seed=st.integers(0, 1000), n=st.integers(2, 60))
def test_t_test_is_scipys(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random(n), rng.random(n)
    assert t_test(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue)


@pytest.mark.parametrize("seed", range(5))
def test_randomization_test_is_near_the_exact_one(seed: int) -> None:
    """Ten queries have 1 024 sign patterns: SciPy counts them all; 10 000 random ones come within 0.02."""
    differences = np.random.default_rng(seed).normal(0.3, 1, size=10)
    exact = stats.permutation_test(
        (differences, np.zeros(10)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert randomization_test(differences, 10_000, 0) == pytest.approx(exact, abs=0.02)


def test_edges_of_significance() -> None:
    same = np.array([0.2, 0.7, 0.7])
    assert paired_tests(same, same).p_t == 1
    assert paired_tests(same, same).p_randomization == 1
    assert paired_tests(same + 0.1, same).p_t < 1e-9  # the same difference everywhere
    one = paired_tests(np.array([1.0]), np.array([0.0]))
    assert one.p_t == 1
    clear = paired_tests(same + np.array([0.1, 0.2, 0.15]), same)
    assert paired_tests(same + np.array([0.1, 0.2, 0.15]), same, n_comparisons=2).p_t == pytest.approx(2 * clear.p_t)
    with pytest.raises(InputError, match="same queries"):
        paired_tests(same, same[:2])


def test_the_table() -> None:
    queries = pd.Index([f"q{i}" for i in range(40)], name="query_id")
    rng = np.random.default_rng(0)
    base = rng.random(40) / 2
    values = {
        "bm25": pd.DataFrame(dict.fromkeys(MEASURES, base), index=queries),
        "better": pd.DataFrame({m: base + 0.3 + rng.random(40) / 10 for m in MEASURES}, index=queries),
        "alike": pd.DataFrame(dict.fromkeys(MEASURES, base[::-1]), index=queries),
    }
    table = results(values, "bm25")
    text = markdown(table)
    lines = text.splitlines()
    assert lines[0].startswith("| ranker | MRR@10 | nDCG@10 |")
    assert f"**{values['better']['MRR@10'].mean():.4f}‡**" in lines[3]
    assert "<0.0001" in lines[3]
    assert "‡" not in lines[2] + lines[4]
    assert "Bonferroni-corrected for 2 comparisons" in text
    for width, tables in ((160, 1), (80, 2)):
        console = Console(width=width, record=True, file=io.StringIO())
        print_table(console, table, "forty queries")
        printed = console.export_text()
        assert printed.count("┃ ranker") == tables
        assert "…" not in printed  # nothing is cut off
        assert all(measure in printed for measure in MEASURES)
        assert "Bonferroni-corrected for 2" in printed
    assert table.to_dict()["better"]["against_baseline"]["MAP"]["difference"] == pytest.approx(0.35, abs=0.02)
    with pytest.raises(InputError, match="baseline 'knn' is not among the rankers: bm25"):
        results(values, "knn")
