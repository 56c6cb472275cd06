"""Runs and their fusion: a total order, files that come back in it, independence of the input's order."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.collections.ids import id_table
from haybale.errors import InputError
from haybale.evaluation import evaluate
from haybale.retrieval import Run, reciprocal_rank_fusion

scores = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats(-1e6, 1e6))
rankings = st.dictionaries(
    st.sampled_from(["q1", "q2", "q10"]), st.dictionaries(st.sampled_from("abcdefgh"), scores), min_size=1
)


def frame(ranking: dict[str, dict[str, float]]) -> pd.DataFrame:
    rows = [(q, d, s) for q, docs in ranking.items() for d, s in docs.items()]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "score"])


@given(ranking=rankings, shuffle=st.randoms(use_true_random=False))
def test_the_order_is_total(ranking: dict[str, dict[str, float]], shuffle) -> None:
    rows = frame(ranking)
    order = list(range(len(rows)))
    shuffle.shuffle(order)
    run = Run.from_frame(rows.iloc[order])
    for query in run.query_ids:
        expected = sorted(ranking[query].items(), key=lambda pair: (-pair[1], pair[0]))
        assert run[query] == expected
    table = run.to_frame()
    assert table.groupby("query_id")["rank"].apply(list).apply(lambda r: r == list(range(1, len(r) + 1))).all()
    assert run.top(2).to_frame().equals(table[table["rank"] <= 2].reset_index(drop=True))


def numbers(seed: int, n_queries: int, n_docs: int, most: int) -> tuple[Any, ...]:
    """Rows, documents and scores in any order; many scores are equal."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(most + 1, size=n_queries)
    rows = np.repeat(np.arange(n_queries), counts)
    documents = np.concatenate([rng.choice(n_docs, size=n, replace=False) for n in counts])
    order = rng.permutation(len(rows))
    return rows[order], documents[order], rng.integers(-9, 9, size=len(rows)) / 8


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    n_queries=st.integers(1, 4),
    most=st.sampled_from([3, 40, 400]),
    depth=st.sampled_from([1, 5, 70, 1000]),
)
def test_numbers_are_sorted_as_a_loop_does(seed: int, n_queries: int, most: int, depth: int) -> None:
    """Also where there are more documents than the depth, and many of them with the score of the last that stays."""
    rng = np.random.default_rng(seed)
    ids, queries = [f"{i:x}" for i in rng.permutation(500)], [f"q{i}" for i in range(n_queries)]
    rows, documents, found = numbers(seed, n_queries, 500, most)
    run = Run.from_numbers(queries, ids, rows, documents, found, depth)
    for row, query in enumerate(queries):
        listed = [(ids[d], s) for r, d, s in zip(rows, documents, found, strict=True) if r == row]
        assert run[query] == sorted(listed, key=lambda pair: (-pair[1], pair[0]))[:depth]
    again = Run.from_numbers(queries, ids, *(part[::-1] for part in (rows, documents, found)), depth)
    assert again == run


def test_the_arrays_a_run_is_made_of_stay_the_callers() -> None:
    rows, documents, found = np.array([0, 0, 0]), np.array([2, 1, 0]), np.array([1.0, 1.0, 0.5])
    run = Run.from_numbers(["q"], ["a", "b", "c"], rows, documents, found)
    assert documents.tolist() == [2, 1, 0]
    expected = run.to_frame()
    rows[:], documents[:], found[:] = 1, 1, 1
    assert run.to_frame().equals(expected)


def test_runs_with_tables_of_their_own() -> None:
    a = Run.from_numbers(["q"], ["x", "y", "z"], [0, 0], [1, 2], [1.0, 1.0])
    b = Run.from_numbers(["q"], ["z", "y"], [0, 0], [0, 1], [1.0, 1.0])
    assert a == b
    assert a != Run.from_numbers(["q"], ["z", "x"], [0, 0], [0, 1], [1.0, 1.0])


@given(ranking=rankings, data=st.data())
def test_some_queries_in_any_order(ranking: dict[str, dict[str, float]], data: st.DataObject) -> None:
    run = Run.from_frame(frame(ranking))
    asked = data.draw(st.permutations(run.query_ids))[: data.draw(st.integers(0, 3))]
    taken = run.take(asked)
    assert taken.query_ids == asked
    assert all(taken[query] == run[query] for query in asked)


@settings(deadline=None)
@given(
    ranking=st.dictionaries(
        st.sampled_from(["q1", "q2"]),
        st.dictionaries(
            st.sampled_from([f"d{i}" for i in range(30)]),
            st.one_of(
                st.sampled_from([0.0, 1.0, 1 + 1e-12, 1 - 1e-12, 1e39, 1e300, -1e39, -1e300, 1e-46, -1e-46]),
                st.floats(allow_nan=False, allow_infinity=False),
            ),
        ),
        min_size=1,
    )
)
def test_a_trec_file_comes_back_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, ranking: dict[str, dict[str, float]]
) -> None:
    path = tmp_path_factory.mktemp("runs") / "run.trec"
    run = Run.from_frame(frame(ranking))
    run.to_trec(path, tag="me")
    again = Run.from_trec(path)
    columns = ["query_id", "doc_id", "rank"]
    assert again.to_frame()[columns].equals(run.to_frame()[columns])
    assert [p.name for p in path.parent.iterdir()] == ["run.trec"]  # nothing is left aside
    for query in again.query_ids:
        ours, theirs = ([score for _, score in each[query]] for each in (run, again))
        with np.errstate(over="ignore"):
            single, wanted = (np.array(of).astype(np.float32) for of in (theirs, ours))
        assert (single[1:] < single[:-1]).all()
        if theirs and theirs[-1] < -3e38:  # no room below: those above may have moved
            continue
        assert theirs[:1] == ours[:1]
        for i, before in enumerate(single[:-1], start=1):
            expected = ours[i] if wanted[i] < before else np.nextafter(before, np.float32(-np.inf))
            assert theirs[i] == expected


def test_others_measure_the_file_as_we_measure_the_run(tmp_path: Path) -> None:
    """trec_eval, by pytrec_eval, breaks ties by falling document id, and older ones read float32."""
    rng = np.random.default_rng(0)
    queries, ids = [f"q{i}" for i in range(20)], [f"d{i:03}" for i in range(200)]
    rows, documents, found = numbers(1, 20, 200, 200)
    close = 1 + rng.integers(4, size=len(rows)) * 1e-10  # apart as float64, one number as float32
    qrels = pd.DataFrame({"query_id": np.repeat(queries, 5), "doc_id": np.tile(ids[::40], 20), "relevance": 1})
    measures = [ir_measures.nDCG @ 10, ir_measures.AP, ir_measures.RR, ir_measures.P @ 5]
    for scores in (found, close, np.zeros(len(rows))):
        run = Run.from_numbers(queries, ids, rows, documents, scores)
        run.to_trec(tmp_path / "run")
        expected = evaluate(run, qrels, ["nDCG@10", "MAP", "MRR", "P@5"]).to_numpy()
        read = list(ir_measures.read_trec_run(str(tmp_path / "run")))
        single = [doc._replace(score=float(np.float32(doc.score))) for doc in read]
        for theirs in (read, single, single[::-1]):
            values = {(m.query_id, m.measure): m.value for m in ir_measures.iter_calc(measures, qrels, theirs)}
            assert [[values[query, measure] for measure in measures] for query in queries] == expected.tolist()


def test_trec_lines(tmp_path: Path) -> None:
    run, lines = Run.from_frame(frame({"q": {"a": 1.0, "b": 2.5}})), b"q Q0 b 1 2.5 bm25\nq Q0 a 2 1.0 bm25\n"
    for name in ("r", "r.gz"):
        run.to_trec(tmp_path / name, tag="bm25")
        assert Run.from_trec(tmp_path / name) == run
    assert (tmp_path / "r").read_bytes() == gzip.decompress((tmp_path / "r.gz").read_bytes()) == lines


def test_ids_with_spaces_are_refused_before_a_file_is_begun(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'§ 1 BGB' cannot stand in a TREC file"):
        Run.from_frame(frame({"q": {"§ 1 BGB": 1.0}})).to_trec(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_bad_runs_are_refused() -> None:
    with pytest.raises(InputError, match="query 'q' has a score that is no number"):
        Run.from_frame(frame({"q": {"a": np.nan}}))
    with pytest.raises(InputError, match="twice"):
        Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "a"], "score": [1.0, 2.0]}))
    with pytest.raises(InputError, match="no column score"):
        Run.from_frame(pd.DataFrame({"query_id": ["q"], "doc_id": ["a"]}))
    run = Run.from_frame(frame({"q": {"a": 1.0}, "r": {"a": 1.0}}))
    with pytest.raises(InputError, match="unknown query id 'x'"):
        run["x"]
    with pytest.raises(InputError, match="unknown query id 'x'"):
        run.take(["q", "x"])
    with pytest.raises(InputError, match="query ids: 'q' occurs twice"):
        run.take(["q", "r", "q"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_ids": ["q", "q"]}, "query ids: 'q' occurs twice"),
        ({"query_ids": ["q", None]}, "query ids: expected strings"),
        ({"query_ids": ["q", "r\0"]}, "holds a NUL"),
        ({"doc_ids": ["a", "b", "a"]}, "document ids: 'a' occurs twice"),
        ({"rows": [0, 2]}, "row numbers lie between 0 and 1, found 0 and 2"),
        ({"documents": [0, 3]}, "document numbers lie between 0 and 2, found 0 and 3"),
        ({"rows": [0]}, "1 rows, 2 documents and 2 scores"),
        ({"scores": [1.0, np.inf]}, "query 'r' has a score that is no number"),
    ],
)
def test_bad_numbers_are_refused(change: dict[str, Any], message: str) -> None:
    good = {"query_ids": ["q", "r"], "doc_ids": ["a", "b", "c"], "rows": [0, 1], "documents": [0, 0], "scores": [1, 2]}
    assert len(Run.from_numbers(**good)) == 2
    with pytest.raises(InputError, match=message):
        Run.from_numbers(**good | change)


def test_a_document_twice_is_refused_in_small_and_large_runs() -> None:
    for n_docs in (3, 10_000):
        with pytest.raises(InputError, match="a document occurs twice for one query"):
            Run.from_numbers(["q"], [str(i) for i in range(n_docs)], [0, 0, 0], [1, 2, 1], [1.0, 2.0, 3.0])


@given(a=rankings, b=rankings, c=rankings)
def test_fusion_is_the_sum_of_reciprocal_ranks(a, b, c) -> None:
    queries = sorted({q for ranking in (a, b, c) for q, docs in ranking.items() if docs})
    runs = [
        Run.from_numbers(
            queries,
            list("abcdefgh"),
            [queries.index(q) for q in r for _ in r[q]],
            ["abcdefgh".index(d) for q in r for d in r[q]],
            [x for q in r for x in r[q].values()],
        )
        for r in (a, b, c)
    ]
    fused = reciprocal_rank_fusion(runs)
    for query in queries:
        expected: dict[str, float] = defaultdict(float)
        for run in runs:
            for rank, (doc, _) in enumerate(run[query], start=1):
                expected[doc] += 1 / (60 + rank)
        assert dict(fused[query]) == pytest.approx(expected)
    assert reciprocal_rank_fusion(runs[::-1]) == fused
    table = id_table("hgfedcba"[i] for i in range(8))  # one that all share, sorted in another way
    same = [
        Run.from_numbers(queries, table, rows, 7 - codes, found) for rows, _, codes, _, found in map(Run.coded, runs)
    ]
    assert reciprocal_rank_fusion(same) == fused


def test_fusion_refuses_what_does_not_belong_together() -> None:
    a, b = Run.from_frame(frame({"q1": {"a": 1.0}})), Run.from_frame(frame({"q2": {"a": 1.0}}))
    with pytest.raises(InputError, match="same queries"):
        reciprocal_rank_fusion([a, b])
    with pytest.raises(InputError, match="at least one run"):
        reciprocal_rank_fusion([])
    for wrong in (-1, np.nan, np.inf):
        with pytest.raises(InputError, match="'rrf_k' parameter"):
            reciprocal_rank_fusion([a], rrf_k=wrong)
