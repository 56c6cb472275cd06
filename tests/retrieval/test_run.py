"""Runs and their fusion: the total order, TREC files, and independence of the order of the input."""

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
def test_frames_are_sorted_by_score_then_id(ranking: dict[str, dict[str, float]], shuffle) -> None:
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


def numbers(seed: int, n_queries: int, n_docs: int, max_ranked: int) -> tuple[Any, ...]:
    """Return rows, documents and scores in random order; many scores are equal."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(max_ranked + 1, size=n_queries)
    rows = np.repeat(np.arange(n_queries), counts)
    documents = np.concatenate([rng.choice(n_docs, size=n, replace=False) for n in counts])
    order = rng.permutation(len(rows))
    return rows[order], documents[order], rng.integers(-9, 9, size=len(rows)) / 8


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    n_queries=st.integers(1, 4),
    max_ranked=st.sampled_from([3, 40, 400]),
    depth=st.sampled_from([1, 5, 70, 1000]),
)
def test_numbers_are_sorted_by_score_then_id(seed: int, n_queries: int, max_ranked: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    ids, queries = [f"{i:x}" for i in rng.permutation(500)], [f"q{i}" for i in range(n_queries)]
    rows, documents, found = numbers(seed, n_queries, 500, max_ranked)
    run = Run.from_numbers(queries, ids, rows, documents, found, depth)
    for row, query in enumerate(queries):
        listed = [(ids[d], s) for r, d, s in zip(rows, documents, found, strict=True) if r == row]
        assert run[query] == sorted(listed, key=lambda pair: (-pair[1], pair[0]))[:depth]
    again = Run.from_numbers(queries, ids, *(part[::-1] for part in (rows, documents, found)), depth)
    assert again == run


def test_runs_share_no_memory_with_their_input() -> None:
    rows, documents, found = np.array([0, 0, 0]), np.array([2, 1, 0]), np.array([1.0, 1.0, 0.5])
    run = Run.from_numbers(["q"], ["a", "b", "c"], rows, documents, found)
    assert documents.tolist() == [2, 1, 0]
    expected = run.to_frame()
    rows[:], documents[:], found[:] = 1, 1, 1
    assert run.to_frame().equals(expected)


def test_equal_runs_with_different_id_tables() -> None:
    a = Run.from_numbers(["q"], ["x", "y", "z"], [0, 0], [1, 2], [1.0, 1.0])
    b = Run.from_numbers(["q"], ["z", "y"], [0, 0], [0, 1], [1.0, 1.0])
    assert a == b
    assert a != Run.from_numbers(["q"], ["z", "x"], [0, 0], [0, 1], [1.0, 1.0])


@given(ranking=rankings, data=st.data())
def test_take_returns_queries_in_the_given_order(ranking: dict[str, dict[str, float]], data: st.DataObject) -> None:
    run = Run.from_frame(frame(ranking))
    chosen = data.draw(st.permutations(run.query_ids))[: data.draw(st.integers(0, 3))]
    taken = run.take(chosen)
    assert taken.query_ids == chosen
    assert all(taken[query] == run[query] for query in chosen)


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
def test_frames_and_files_keep_the_order(
    tmp_path_factory: pytest.TempPathFactory, ranking: dict[str, dict[str, float]]
) -> None:
    """Scores are distinct, also in float32; a frame has the true ones, too, and so have its files."""
    path = tmp_path_factory.mktemp("runs") / "run.trec"
    run = Run.from_frame(frame(ranking))
    run.to_trec(path, tag="me")
    again = Run.from_trec(path)
    columns = ["query_id", "doc_id", "rank"]
    assert again.to_frame()[columns].equals(run.to_frame()[columns])
    assert [p.name for p in path.parent.iterdir()] == ["run.trec"]  # no temporary file is left
    table = run.to_frame()
    table.to_csv(path, index=False)
    table.to_parquet(path.with_suffix(".parquet"))
    for read in (
        table.iloc[::-1],
        pd.read_csv(path, converters={"score": float, "true_score": float}),  # with every digit
        pd.read_parquet(path.with_suffix(".parquet")),
    ):
        back = Run.from_frame(read)
        assert {query: back[query] for query in back.query_ids} == {query: run[query] for query in back.query_ids}
        assert set(back.query_ids) == {query for query in run.query_ids if run[query]}
    assert table["score"].tolist() == [score for query in again.query_ids for _, score in again[query]]
    assert table["true_score"].tolist() == run.flat()[3].tolist()
    for query in again.query_ids:
        ours, theirs = ([score for _, score in each[query]] for each in (run, again))
        with np.errstate(over="ignore"):
            single, wanted = (np.array(of).astype(np.float32) for of in (theirs, ours))
        assert (single[1:] < single[:-1]).all()
        if theirs and theirs[-1] < -3e38:  # there is no float32 below, so that scores above may have changed
            continue
        assert theirs[:1] == ours[:1]
        for i, before in enumerate(single[:-1], start=1):
            expected = ours[i] if wanted[i] < before else np.nextafter(before, np.float32(-np.inf))
            assert theirs[i] == expected


def test_other_evaluators_give_the_same_values(tmp_path: Path) -> None:
    """trec_eval breaks ties by falling document id, and its older versions read float32."""
    rng = np.random.default_rng(0)
    queries, ids = [f"q{i}" for i in range(20)], [f"d{i:03}" for i in range(200)]
    rows, documents, found = numbers(1, 20, 200, 200)
    close = 1 + rng.integers(4, size=len(rows)) * 1e-10  # differ in float64 only
    qrels = pd.DataFrame({"query_id": np.repeat(queries, 5), "doc_id": np.tile(ids[::40], 20), "relevance": 1})
    measures = [ir_measures.nDCG @ 10, ir_measures.AP, ir_measures.RR, ir_measures.P @ 5]
    for scores in (found, close, np.zeros(len(rows))):
        run = Run.from_numbers(queries, ids, rows, documents, scores)
        expected = evaluate(run, qrels, ["nDCG@10", "MAP", "MRR", "P@5"]).to_numpy()
        run.to_trec(tmp_path / "run")
        run.to_frame().to_csv(tmp_path / "csv")
        read = list(ir_measures.read_trec_run(str(tmp_path / "run")))
        single = [doc._replace(score=float(np.float32(doc.score))) for doc in read]
        frames = run.to_frame(), run.to_frame()[::-1], pd.read_csv(tmp_path / "csv")
        for theirs in (read, single, single[::-1], *frames):
            values = {(m.query_id, m.measure): m.value for m in ir_measures.iter_calc(measures, qrels, theirs)}
            assert [[values[query, measure] for measure in measures] for query in queries] == expected.tolist()


def test_frames_have_the_types_that_ranx_asserts() -> None:
    found = Run.from_numbers(["q"], ["a", "b"], [0, 0], [0, 1], [0.5, 0.5]).to_frame()
    assert found[["query_id", "doc_id"]].dtypes.tolist() == [object, object]
    assert found["score"].dtype == np.float64


def test_ranx_gives_the_same_values() -> None:
    ranx = pytest.importorskip("ranx")
    run = Run.from_numbers(["q", "r"], ["a", "b", "c"], [0, 0, 1], [0, 1, 2], [0.5, 0.5, 1.0])
    qrels = pd.DataFrame({"query_id": ["q", "r"], "doc_id": ["b", "c"], "relevance": 1}).astype({"query_id": object})
    theirs = ranx.Run.from_df(run.to_frame(), q_id_col="query_id", doc_id_col="doc_id")
    judged = ranx.Qrels.from_df(
        qrels.astype({"doc_id": object}), q_id_col="query_id", doc_id_col="doc_id", score_col="relevance"
    )
    expected = evaluate(run, qrels, ["nDCG@10"])["nDCG@10"].mean()
    assert ranx.evaluate(judged, theirs, "ndcg@10") == pytest.approx(expected)


def test_a_fusion_has_ties_and_its_frame_has_none() -> None:
    """Two lists in opposite orders: documents at ranks (i, j) and (j, i) tie."""
    ids, rows = [f"d{i}" for i in range(20)], [0] * 20
    falling = 20.0 - np.arange(20)
    one, other = (Run.from_numbers(["q"], ids, rows, places, falling) for places in (range(20), range(20)[::-1]))
    fused = reciprocal_rank_fusion([one, other])
    assert len(set(fused.flat()[3])) == 10
    table = fused.to_frame()
    assert table["score"].astype(np.float32).is_monotonic_decreasing
    assert table["score"].astype(np.float32).is_unique
    assert table["true_score"].nunique() == 10
    assert Run.from_frame(table) == Run.from_frame(table.drop(columns="score").rename(columns={"true_score": "score"}))


@pytest.mark.parametrize("column", ["score", "true_score"])
def test_a_frame_whose_scores_were_changed_is_refused(column: str) -> None:
    table = Run.from_frame(frame({"q": {"a": 1.0, "b": 1.0, "c": -2.0}})).to_frame()
    for changed in (table[column] * 2, table[column] - 0.001, table[column].where(table["rank"] < 3, np.nan)):
        with pytest.raises(InputError, match=r"true_score|finite"):
            Run.from_frame(table.assign(**{column: changed}))
        if column == "score" and changed.notna().all():
            kept = Run.from_frame(table.assign(score=changed).drop(columns="true_score"))
            assert dict(kept["q"]) == dict(zip(table["doc_id"], changed, strict=True))
    assert Run.from_frame(table[table["rank"] > 1])["q"] == [("b", 1.0), ("c", -2.0)]


def test_lines_of_a_trec_file(tmp_path: Path) -> None:
    run, lines = Run.from_frame(frame({"q": {"a": 1.0, "b": 2.5}})), b"q Q0 b 1 2.5 bm25\nq Q0 a 2 1.0 bm25\n"
    for name in ("r", "r.gz"):
        run.to_trec(tmp_path / name, tag="bm25")
        assert Run.from_trec(tmp_path / name) == run
    assert (tmp_path / "r").read_bytes() == gzip.decompress((tmp_path / "r.gz").read_bytes()) == lines


def test_ids_with_spaces_are_rejected_before_a_file_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'§ 1 BGB'"):
        Run.from_frame(frame({"q": {"§ 1 BGB": 1.0}})).to_trec(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_invalid_frames_and_unknown_queries_are_rejected() -> None:
    run = Run.from_frame(frame({"q": {"a": 1.0}, "r": {"a": 1.0}}))
    for call, named in [
        (lambda: Run.from_frame(frame({"q": {"a": np.nan}})), "'q'.* nan"),
        (lambda: Run.from_frame(pd.DataFrame({"query_id": ["q"], "doc_id": ["a"]})), "score"),
        (lambda: run["x"], "'x'"),
        (lambda: run.take(["q", "x"]), "'x'"),
        (lambda: run.take(["q", "r", "q"]), "'q'"),
        (lambda: Run.joined([run, run]), "'q'"),
    ]:
        with pytest.raises(InputError, match=named):
            call()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"query_ids": ["q", "q"]}, "query ids: 'q'"),
        ({"query_ids": ["q", None]}, "query ids"),
        ({"query_ids": ["q", "r\0"]}, "NUL"),
        ({"doc_ids": ["a", "b", "a"]}, "document ids: 'a'"),
        ({"rows": [0, 2]}, "row.* 0 and 1, found 2"),
        ({"documents": [0, 3]}, "document.* 0 and 2, found 3"),
        ({"rows": [0]}, "1 rows, 2 documents and 2 scores"),
        ({"scores": [1.0, np.inf]}, "'r'.* inf"),
        ({"rows": [1, 1]}, "'a' twice for query 'r'"),
        ({"rows": [1, 1], "doc_ids": ["a", *map(str, range(9_999))]}, "'a' twice for query 'r'"),
    ],
)
def test_invalid_numbers_are_rejected(change: dict[str, Any], named: str) -> None:
    valid = {"query_ids": ["q", "r"], "doc_ids": ["a", "b", "c"], "rows": [0, 1], "documents": [0, 0], "scores": [1, 2]}
    assert len(Run.from_numbers(**valid)) == 2
    with pytest.raises(InputError, match=named):
        Run.from_numbers(**valid | change)


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
    table = id_table("hgfedcba"[i] for i in range(8))  # a shared table in another order
    same = [
        Run.from_numbers(queries, table, rows, 7 - codes, found) for rows, _, codes, _, found in map(Run.coded, runs)
    ]
    assert reciprocal_rank_fusion(same) == fused


def test_fusion_rejects_invalid_arguments() -> None:
    a, b = Run.from_frame(frame({"q1": {"a": 1.0}})), Run.from_frame(frame({"q2": {"a": 1.0}}))
    with pytest.raises(InputError, match="'q1'"):
        reciprocal_rank_fusion([a, b])
    with pytest.raises(InputError, match="found 0"):
        reciprocal_rank_fusion([])
    for rrf_k in (-1, np.nan, np.inf):
        with pytest.raises(InputError, match="rrf_k"):
            reciprocal_rank_fusion([a], rrf_k=rrf_k)
