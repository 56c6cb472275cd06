"""Measures against loops, tests of significance against SciPy's."""

from __future__ import annotations

import io
import json
import math

import ir_measures
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from haybale.errors import InputError
from haybale.evaluation import evaluate, markdown, paired_tests, print_table, results
from haybale.evaluation.measures import MEASURES, parsed
from haybale.evaluation.significance import effect_size, randomization_test, t_test
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


def test_two_names_of_one_measure_have_the_same_values() -> None:
    run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
    qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["b"], "relevance": [1]})
    table = evaluate(run, qrels, ["MAP", "RR@10", "AP", "MRR@10"])
    assert table.loc["q"].tolist() == [0.5] * 4


def test_grades_are_whole_numbers_of_any_type() -> None:
    """A column that lost a value in between comes as floats."""
    run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
    qrels = pd.DataFrame({"query_id": ["q", "q"], "doc_id": ["b", "a"], "relevance": [2, 1]})
    for kind in (float, "Int64", object, "Float32"):
        pd.testing.assert_frame_equal(evaluate(run, qrels.astype({"relevance": kind})), evaluate(run, qrels))
    with pytest.raises(InputError, match=r"qrels: row 1, column relevance: expected a whole number, found 0\.5"):
        evaluate(run, qrels.assign(relevance=[1, 0.5]))
    with pytest.raises(InputError, match="qrels: row 0, column relevance: expected a whole number, found inf"):
        evaluate(run, qrels.assign(relevance=[np.inf, 1]))
    with pytest.raises(InputError, match="qrels: column relevance: expected numbers"):
        evaluate(run, qrels.assign(relevance=["yes", "no"]))
    with pytest.raises(InputError, match="run: column score: expected numbers"):
        Run.from_frame(qrels.assign(score="high"))


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


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_values_are_those_of_ir_measures_to_the_bit(seed: int) -> None:
    """Of a plain call with all that there is: ours leaves out what cannot change a value.

    Of a pair that is judged twice the last grade counts, for every measure; ir_measures' own providers differ there.
    """
    rng = np.random.default_rng(seed)
    lists = {f"q{i}": [f"d{j}" for j in rng.permutation(40)[: rng.integers(1, 40)]] for i in range(9)}
    rows = [(query, doc, float(rng.integers(3))) for query, docs in lists.items() for doc in docs]
    run = Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))
    judged = [(f"q{i}", f"d{j}", int(rng.integers(3))) for i in range(3, 12) for j in rng.permutation(40)[:9]]
    qrels = pd.DataFrame([("q3", "d0", 1), *judged, ("q5", "d3", 2)], columns=["query_id", "doc_id", "relevance"])
    names = ["MRR@3", "RR@10", "RR", "nDCG@10", "nDCG", "MAP", "AP@5", "P@5", "R@20", "Success@1", "Judged@10", "Rprec"]
    found = evaluate(run, qrels, names)
    ranked = {query: {doc: -float(i) for i, (doc, _) in enumerate(run[query])} for query in run.query_ids}
    counted = qrels[qrels["query_id"].isin(found.index)].drop_duplicates(["query_id", "doc_id"], keep="last")
    kinds = [parsed(name) for name in names]
    values = {(v.query_id, v.measure): v.value for v in ir_measures.iter_calc(set(kinds), counted, ranked)}
    assert found.to_numpy().tolist() == [[values[query, kind] for kind in kinds] for query in found.index]


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


@given(seed=st.integers(0, 1000), n=st.integers(2, 60))
def test_effect_size_is_t_over_the_root_of_n(seed: int, n: int) -> None:
    """And the one of the PARM paper's code, with the deviation of a population, times √((n - 1) / n)."""
    rng = np.random.default_rng(seed)
    a, b = rng.random(n), rng.random(n)
    d = paired_tests(a, b).effect_size
    assert d == pytest.approx(stats.ttest_rel(a, b).statistic / math.sqrt(n))
    theirs = np.mean(a - b) / np.std(a - b)
    assert d == pytest.approx(theirs * math.sqrt((n - 1) / n))
    assert effect_size(b - a) == pytest.approx(-effect_size(a - b))  # type: ignore[operator]


def test_edges_of_effect_size() -> None:
    same = np.array([0.2, 0.7, 0.7, 0.1])
    assert paired_tests(same, same).effect_size == 0
    assert effect_size(np.zeros(1)) == 0
    assert effect_size(np.zeros(0)) == 0
    assert effect_size(np.array([0.5])) is None
    for constant in (np.full(4, 0.1), same + 0.1 - same, same - 0.1 - same):  # the last two but for their last bits
        assert effect_size(constant) is None
    tiny = np.array([1e-9, 2e-9, 3e-9])
    assert effect_size(tiny) == pytest.approx(2)


def test_results_are_json_whatever_the_differences() -> None:
    queries = pd.Index(["a", "b", "c"], name="query_id")
    base = np.array([0.25, 0.5, 0.5])
    values = {"bm25": base, "same": base, "shifted": base + 0.25, "other": base[::-1]}
    table = results({name: pd.DataFrame({"MAP": value}, index=queries) for name, value in values.items()}, "bm25")
    read = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    effects = {name: read[name]["against_baseline"]["MAP"]["effect_size"] for name in values if name != "bm25"}
    assert effects == {"same": 0, "shifted": None, "other": 0.0}
    assert list(read["other"]["against_baseline"]["MAP"]) == ["difference", "p_t", "p_randomization", "effect_size"]
    lines = markdown(table, detailed=["MAP"]).splitlines()
    assert lines[0] == "| ranker | MAP | p (t) MAP | d MAP |"
    assert lines[2].endswith(" |  |  |")  # the baseline
    assert lines[3].endswith(" | 1.0000 | 0.00 |")
    assert lines[4].endswith(" | <0.0001 | – |")


def test_the_caller_chooses_the_detailed_measures() -> None:
    queries = pd.Index([f"q{i}" for i in range(8)], name="query_id")
    rng = np.random.default_rng(0)
    names = ["R@50", "R@500", "MAP"]
    values = {ranker: pd.DataFrame(rng.random((8, 3)), queries, names) for ranker in ("bm25", "parm")}
    table = results(values, "bm25")
    text = markdown(table)  # neither of the two by default was measured
    assert text.splitlines()[0] == "| ranker | R@50 | R@500 | MAP |"
    assert "p (t)" not in text
    text = markdown(table, detailed=("R@500", "nDCG@10"))
    assert text.splitlines()[0] == "| ranker | R@50 | R@500 | MAP | p (t) R@500 | d R@500 |"
    assert text.splitlines()[3].endswith(f" | {table.comparisons['parm']['R@500'].effect_size:.2f} |")
    assert "p (t) is the corrected t-test's on R@500; d is Cohen's effect size" in text
    console = Console(width=160, record=True, file=io.StringIO())
    print_table(console, table, "", detailed=("R@50",))
    printed = console.export_text()
    assert "d R@50 " in printed
    assert "d R@500" not in printed


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
    assert lines[0].endswith("| p (t) MRR@10 | d MRR@10 | p (t) nDCG@10 | d nDCG@10 |")
    d = table.comparisons["better"]["MRR@10"].effect_size
    assert f"| <0.0001 | {d:.2f} |" in lines[3]
    assert "‡" not in lines[2] + lines[4]
    assert "Bonferroni-corrected for 2 comparisons" in text
    for width, tables in ((160, 1), (80, 2), (60, 3)):
        console = Console(width=width, record=True, file=io.StringIO())
        print_table(console, table, "forty queries")
        printed = console.export_text()
        assert printed.count("┃ ranker") == tables
        assert "…" not in printed  # nothing is cut off
        assert all(measure in printed for measure in MEASURES)
        assert "Bonferroni-corrected for 2" in " ".join(printed.split())
    assert table.to_dict()["better"]["against_baseline"]["MAP"]["difference"] == pytest.approx(0.35, abs=0.02)
    with pytest.raises(InputError, match="baseline 'knn' is not among the rankers: bm25"):
        results(values, "knn")
