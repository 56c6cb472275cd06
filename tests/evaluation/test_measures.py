"""Measures against loops and ir_measures, significance tests against SciPy, the table, and recall curves."""

from __future__ import annotations

import io
import json
import math
import re
from random import Random

import ir_measures
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from haybale.errors import InputError
from haybale.evaluation import (
    MEASURES,
    Comparison,
    evaluate,
    markdown,
    paired_tests,
    print_table,
    recall_curves,
    results,
)
from haybale.evaluation.measures import parse_measures
from haybale.retrieval import Run

TWO = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
QRELS = pd.DataFrame({"query_id": ["q", "q"], "doc_id": ["b", "a"], "relevance": [2, 1]})


def oracle(ranked: list[str], grades: dict[str, int]) -> dict[str, float]:
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
def test_measures_are_the_oracles(scores: dict[str, float], grades: dict[str, int]) -> None:
    """Many scores are equal, so the order of the run must be the one that is evaluated."""
    qrels = pd.DataFrame([("q", d, g) for d, g in grades.items()], columns=["query_id", "doc_id", "relevance"])
    run = Run.from_numbers(["q"], list(scores), [0] * len(scores), range(len(scores)), list(scores.values()))
    found = evaluate(run, qrels).loc["q"].to_dict()
    assert found == pytest.approx(oracle([doc for doc, _ in run["q"]], grades))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_values_are_bitwise_those_of_ir_measures(seed: int) -> None:
    """Compare with one call on the whole input, where the last grade of each pair is kept."""
    rng = np.random.default_rng(seed)
    lists = {f"q{i}": [f"d{j}" for j in rng.permutation(40)[: rng.integers(1, 40)]] for i in range(9)}
    rows = [(query, doc, float(rng.integers(3))) for query, docs in lists.items() for doc in docs]
    run = Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))
    judged = [(f"q{i}", f"d{j}", int(rng.integers(3))) for i in range(3, 12) for j in rng.permutation(40)[:9]]
    qrels = pd.DataFrame([("q3", "d0", 1), *judged, ("q5", "d3", 2)], columns=["query_id", "doc_id", "relevance"])
    names = ["MRR@3", "RR@10", "RR", "nDCG", "AP@5", "P@5", "R@20", "Success@1", "Judged@10", "Rprec", *MEASURES]
    found = evaluate(run, qrels, names)
    ranked = {query: {doc: -float(i) for i, (doc, _) in enumerate(run[query])} for query in run.query_ids}
    counted = qrels[qrels["query_id"].isin(found.index)].drop_duplicates(["query_id", "doc_id"], keep="last")
    kinds = parse_measures(names)
    values = {(v.query_id, v.measure): v.value for v in ir_measures.iter_calc(set(kinds), counted, ranked)}
    assert found.to_numpy().tolist() == [[values[query, kind] for kind in kinds] for query in found.index]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(documents, st.sampled_from([1.0, 0.5, 0.5 + 1e-12, -2.0, 1e300]), min_size=1),
    st.dictionaries(documents, st.integers(0, 2), min_size=1).filter(lambda grades: any(grades.values())),
    st.randoms(use_true_random=False),
)
def test_ties_of_run_files_are_evaluated_as_trec_eval_does(
    tmp_path_factory: pytest.TempPathFactory, scores: dict[str, float], grades: dict[str, int], random: Random
) -> None:
    path = tmp_path_factory.mktemp("runs") / "tied.run"
    rows = list(scores.items())
    random.shuffle(rows)
    path.write_text("".join(f"q Q0 {name} {rank} {score} me\n" for rank, (name, score) in enumerate(rows)))
    qrels = pd.DataFrame({"query_id": "q", "doc_id": list(grades), "relevance": list(grades.values())})
    found = evaluate(Run.from_trec(path), qrels, ["nDCG@10", "P@3", "MAP"]).loc["q"].to_dict()
    trec_eval = pytest.importorskip("pytrec_eval")
    evaluator = trec_eval.RelevanceEvaluator({"q": grades}, {"ndcg_cut.10", "P.3", "map"})
    expected = evaluator.evaluate({"q": scores})["q"]
    assert found == pytest.approx({"nDCG@10": expected["ndcg_cut_10"], "P@3": expected["P_3"], "MAP": expected["map"]})


UNUSABLE = [
    "P@0",
    "nDCG@0",
    "Recall@0",
    "MAP@0",
    "MRR@0",
    "PRES@0",
    "P@-1",
    "P@1_0",
    "P@١",
    "P@1.5",
    "P@",
    "P@99999999999999999999",
    "PRES",
    "PRES@99999999999",
    "P",
    "Recall",
    "Success",
    "R",
    "Rprec@5",
    "SetP@5",
    "NumQ@3",
    "NERR8@10",
    "INST",
    "BPM@3",
    "IPrec",
    "IPrec@2",
    "IPrec@x",
    "nothing",
    "nothing@10",
    "@10",
]


@pytest.mark.parametrize("name", UNUSABLE)
def test_measures_that_cannot_be_computed_are_input_errors(name: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(name))):
        evaluate(TWO, QRELS, [name])


def test_failures_of_programs_behind_measures_are_input_errors() -> None:
    """ERR needs perl and numbers as query ids; without perl it cannot be computed either."""
    with pytest.raises(InputError, match="ERR@10"):
        evaluate(TWO, QRELS, ["ERR@10"])


def test_a_measure_at_a_recall() -> None:
    one = QRELS[QRELS["doc_id"] == "b"]
    assert evaluate(TWO, one, ["IPrec@0.1", "Rprec", "MAP@1"]).iloc[0].tolist() == [0.5, 0.0, 0.0]


def test_grades_are_whole_numbers_of_any_type() -> None:
    for kind in (float, "Int64", object, "Float32"):
        pd.testing.assert_frame_equal(evaluate(TWO, QRELS.astype({"relevance": kind})), evaluate(TWO, QRELS))
    for grades, named in [
        ([1, 0.5], r"row 1, column relevance.* 0\.5"),
        ([np.inf, 1], "row 0, column relevance.* inf"),
        (["yes", "no"], "relevance"),
        ([0, 0], "'relevance'"),
    ]:
        with pytest.raises(InputError, match=f"qrels.* {named}"):
            evaluate(TWO, QRELS.assign(relevance=grades))
    for name in ("Beauty@10", "nDCG@ten"):
        with pytest.raises(InputError, match=f"'{name}'"):
            evaluate(TWO, QRELS, [name])


def test_which_queries_are_evaluated() -> None:
    """A query that the run lacks has 0, and one without judgements is omitted; equal measures have equal values."""
    qrels = pd.DataFrame({"query_id": ["a", "b", "c"], "doc_id": ["x", "x", "x"], "relevance": [1, 1, 0]})
    run = Run.from_frame(pd.DataFrame({"query_id": ["a", "c", "z"], "doc_id": "x", "score": 1.0}))
    table = evaluate(run, qrels, ["MRR@10", "P@5", "MAP", "RR@10", "AP"])
    assert table.loc["a"].tolist() == [1.0, 0.2, 1.0, 1.0, 1.0]
    assert table.loc["b"].tolist() == [0.0] * 5
    assert len(table) == 2


@given(seed=st.integers(0, 1000), n=st.integers(2, 60))
def test_t_test_and_effect_size_are_scipys(seed: int, n: int) -> None:
    """d is t / √n, which is √((n - 1) / n) times the d with a population standard deviation."""
    rng = np.random.default_rng(seed)
    a, b = rng.random(n), rng.random(n)
    expected, found = stats.ttest_rel(a, b), paired_tests(a, b)
    assert found.p_t == pytest.approx(expected.pvalue)
    assert found.difference == pytest.approx(a.mean() - b.mean())
    assert found.effect_size == pytest.approx(expected.statistic / math.sqrt(n))
    assert found.effect_size == pytest.approx(np.mean(a - b) / np.std(a - b) * math.sqrt((n - 1) / n))


@pytest.mark.parametrize("seed", range(5))
def test_randomization_test_is_near_the_exact_one(seed: int) -> None:
    """SciPy counts all 1,024 sign patterns of ten queries; the share of 10,000 random ones is within 0.02."""
    differences = np.random.default_rng(seed).normal(0.3, 1, size=10)
    exact = stats.permutation_test(
        (differences, np.zeros(10)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert paired_tests(differences, np.zeros(10)).p_randomization == pytest.approx(exact, abs=0.02)


def test_significance_of_special_differences() -> None:
    same = np.array([0.2, 0.7, 0.7, 0.1])
    assert paired_tests(same, same) == Comparison(0, 1, 1, 0)
    for constant in (np.full(4, 0.1), same + 0.1 - same, same - 0.1 - same):  # the last two up to rounding
        found = paired_tests(constant, np.zeros(4))
        assert found.effect_size is None
        assert found.p_t < 1e-9
    assert paired_tests(np.array([1e-9, 2e-9, 3e-9]), np.zeros(3)).effect_size == pytest.approx(2)
    one = paired_tests(np.array([1.0]), np.array([0.0]))
    assert (one.p_t, one.effect_size) == (1, None)
    better = same + np.array([0.1, 0.2, 0.15, 0.1])
    assert paired_tests(better, same, n_comparisons=2).p_t == pytest.approx(2 * paired_tests(better, same).p_t)
    with pytest.raises(InputError, match=r"\(4,\) and \(2,\)"):
        paired_tests(same, same[:2])


def test_results_are_json_for_all_differences() -> None:
    queries = pd.Index(["a", "b", "c"], name="query_id")
    base = np.array([0.25, 0.5, 0.5])
    values = {"bm25": base, "same": base, "shifted": base + 0.25, "other": base[::-1]}
    table = results({name: pd.DataFrame({"nDCG@10": value}, index=queries) for name, value in values.items()}, "bm25")
    read = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    effects = {name: read[name]["against_baseline"]["nDCG@10"]["effect_size"] for name in values if name != "bm25"}
    assert effects == {"same": 0, "shifted": None, "other": 0.0}
    assert list(read["other"]["against_baseline"]["nDCG@10"]) == ["difference", "p_t", "p_randomization", "effect_size"]
    lines = markdown(table).splitlines()
    assert lines[0] == "| ranker | nDCG@10 | p (t) nDCG@10 | d nDCG@10 |"
    assert [line.rpartition(" | ")[0].rpartition(" | ")[2] for line in lines[2:5]] == ["", "1.0000", "<0.0001"]
    assert [line.rpartition(" | ")[2] for line in lines[2:5]] == [" |", "0.00 |", "– |"]


def test_the_table() -> None:
    queries = pd.Index([f"q{i}" for i in range(40)], name="query_id")
    rng = np.random.default_rng(0)
    base = rng.random(40) / 2
    columns = {"bm25": lambda: base, "better": lambda: base + 0.3 + rng.random(40) / 10, "alike": lambda: base[::-1]}
    values = {name: pd.DataFrame({m: made() for m in MEASURES}, index=queries) for name, made in columns.items()}
    table = results(values, "bm25")
    lines = markdown(table).splitlines()
    assert lines[0].startswith("| ranker | MRR@10 | nDCG@10 |")
    assert lines[0].endswith("| p (t) MRR@10 | d MRR@10 | p (t) nDCG@10 | d nDCG@10 |")
    assert f"**{values['better']['MRR@10'].mean():.4f}‡**" in lines[3]
    assert f"| <0.0001 | {table.comparisons['better']['MRR@10'].effect_size:.2f} |" in lines[3]
    assert "‡" not in lines[2] + lines[4]
    assert all(named in lines[-1] for named in ("40 queries", "Bonferroni", "2 comparisons", "MRR@10 and nDCG@10"))
    for width, tables in ((160, 1), (80, 2), (60, 3)):
        console = Console(width=width, record=True, file=io.StringIO())
        print_table(console, table, "forty queries")
        printed = console.export_text()
        assert printed.count("┃ ranker") == tables
        assert "…" not in printed  # no cell is cut
        assert all(measure in printed for measure in MEASURES)
    with pytest.raises(InputError, match=r"baseline 'knn'.* bm25"):
        results(values, "knn")


@given(order=st.permutations(range(12)))
def test_results_pair_values_by_query(order: list[int]) -> None:
    rng = np.random.default_rng(0)
    index = pd.Index([f"q{i}" for i in range(12)], name="query_id")
    base, better = (pd.DataFrame({"nDCG@10": rng.random(12) + more}, index=index) for more in (0, 0.2))
    expected = results({"base": base, "better": better}, "base")
    shuffled = better.iloc[order]
    for other in (shuffled, shuffled.reset_index(), pa.Table.from_pandas(shuffled.reset_index())):
        found = results({"base": base, "better": other}, "base")
        assert found.to_dict() == expected.to_dict()
        assert found.values["better"].index.tolist() == index.tolist()


def test_results_refuse_other_queries() -> None:
    index = pd.Index(["1", "2", "3"], name="query_id")
    base = pd.DataFrame({"nDCG@10": [0.1, 0.2, 0.4], "P@5": 0.2}, index=index)
    assert (
        results({"a": base, "b": base.set_axis([1, 2, 3])}, "a").comparisons["b"]["P@5"].p == 1
    )  # 1 and "1" are one id
    for other, message in (
        (base.iloc[:2], "results of b: .*only a has '3'"),
        (pd.concat([base, base.set_axis(["x", "y", "z"])]), "queries of a, but only b has 'x'"),
        (base.set_axis(["1", "2", "2"]), "'2' occurs twice"),
        (base[["P@5"]], "b: expected the measure 'nDCG@10'"),
    ):
        with pytest.raises(InputError, match=message):
            results({"a": base, "b": other}, "a")


def test_a_table_of_one_ranker() -> None:
    values = pd.DataFrame({"nDCG@10": [0.5, 0.25]}, index=pd.Index(["a", "b"], name="query_id"))
    assert markdown(results({"bm25": values}, "bm25")).splitlines() == [
        *("| ranker | nDCG@10 |", "| --- | ---: |", "| bm25 | **0.3750** |", "", "2 queries.")
    ]


def ranked_run(*ranked: tuple[str, str]) -> Run:
    """Return a run with these pairs of a query and a document, in order."""
    rows = [(query, doc, -float(place)) for place, (query, doc) in enumerate(ranked)]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def qrels_of(*pairs: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["query_id", "doc_id", "relevance"])


pair = st.tuples(st.sampled_from([f"q{i}" for i in range(4)]), st.sampled_from([f"d{i}" for i in range(8)]))
runs = st.lists(pair, unique=True, max_size=30).map(lambda pairs: ranked_run(*pairs))
grades = st.dictionaries(pair, st.integers(0, 2), min_size=1).filter(lambda grades: any(grades.values()))
judgements = grades.map(lambda grades: qrels_of(*((*pair, grade) for pair, grade in grades.items())))


@settings(max_examples=50, deadline=None)
@given(one=runs, other=runs, qrels=judgements)
def test_recall_curves_are_ir_measures_recall(one: Run, other: Run, qrels: pd.DataFrame) -> None:
    cutoffs = [7, 1, 2, 3, 5]
    frame = recall_curves({"one": one, "other": other}, qrels, cutoffs)
    assert frame.index.tolist() == sorted(cutoffs)
    for name, run in (("one", one), ("other", other)):
        expected = evaluate(run, qrels, [f"Recall@{k}" for k in sorted(cutoffs)]).mean().to_numpy()
        np.testing.assert_allclose(frame[name].to_numpy(), expected, atol=1e-12)


def test_default_cutoffs_end_at_the_deepest_run() -> None:
    qrels = qrels_of(("a", "x30", 1), ("b", "x0", 1))
    shallow, deep = (ranked_run(*(("a", f"x{i}") for i in range(n))) for n in (3, 49))
    assert recall_curves({"s": shallow}, qrels).index.tolist() == [1, 2]
    assert recall_curves({"s": shallow, "d": deep}, qrels).index.tolist() == [1, 2, 5, 10, 20]
    assert recall_curves({"e": Run.from_numbers(["a"], [], [], [], [])}, qrels)["e"].to_dict() == {1: 0.0}
    assert recall_curves({"d": deep}, qrels, [50])["d"].to_dict() == {50: 0.5}  # b is not in the run: 0
    for given_runs, judged, cutoffs, named in [
        ({}, qrels, None, "runs"),
        ({"d": deep}, qrels, [], r"cutoffs.* \[\]"),
        ({"d": deep}, qrels, [0, 5], r"cutoffs.* \[0, 5\]"),
        ({"d": deep}, qrels_of(("a", "x", 0)), None, "'relevance'"),
    ]:
        with pytest.raises(InputError, match=named):
            recall_curves(given_runs, judged, cutoffs)
