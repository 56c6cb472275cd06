"""Runs and their fusion: a total order, files that come back equal, independence of the input's order."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.errors import InputError
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


@given(ranking=rankings)
def test_a_trec_file_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, ranking: dict[str, dict[str, float]]
) -> None:
    path = tmp_path_factory.mktemp("runs") / "run.trec"
    run = Run.from_frame(frame(ranking))
    run.to_trec(path, tag="me")
    assert Run.from_trec(path) == run
    assert [p.name for p in path.parent.iterdir()] == ["run.trec"]  # nothing is left aside


def test_trec_lines(tmp_path: Path) -> None:
    Run.from_frame(frame({"q": {"a": 1.0, "b": 2.5}})).to_trec(tmp_path / "r", tag="bm25")
    assert (tmp_path / "r").read_text() == "q Q0 b 1 2.5 bm25\nq Q0 a 2 1.0 bm25\n"


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
    with pytest.raises(InputError, match="unknown query id 'x'"):
        Run.from_frame(frame({"q": {"a": 1.0}}))["x"]


@given(ranking=rankings)
def test_two_equal_runs_fuse_to_their_order(ranking: dict[str, dict[str, float]]) -> None:
    run = Run.from_frame(frame(ranking))
    fused = reciprocal_rank_fusion([run, run])
    for query in run.query_ids:
        assert [doc for doc, _ in fused[query]] == [doc for doc, _ in run[query]]


@given(a=rankings, b=rankings, c=rankings)
def test_fusion_is_the_sum_of_reciprocal_ranks(a, b, c) -> None:
    queries = sorted({q for ranking in (a, b, c) for q, docs in ranking.items() if docs})
    runs = [Run.from_frame(frame({q: r.get(q, {}) for q in queries})).reindexed(queries) for r in (a, b, c)]
    fused = reciprocal_rank_fusion(runs, weights=[1, 2, 0.5])
    for query in queries:
        expected: dict[str, float] = defaultdict(float)
        for run, weight in zip(runs, [1, 2, 0.5], strict=True):
            for rank, (doc, _) in enumerate(run[query], start=1):
                expected[doc] += weight / (60 + rank)
        found = dict(fused[query])
        assert found == pytest.approx(expected)
    assert reciprocal_rank_fusion(runs[::-1], weights=[0.5, 2, 1]) == fused


def test_fusion_refuses_what_does_not_belong_together() -> None:
    a, b = Run.from_frame(frame({"q1": {"a": 1.0}})), Run.from_frame(frame({"q2": {"a": 1.0}}))
    with pytest.raises(InputError, match="same queries"):
        reciprocal_rank_fusion([a, b])
    with pytest.raises(InputError, match="at least one run"):
        reciprocal_rank_fusion([])
    with pytest.raises(InputError, match="1 weights for 2 runs"):
        reciprocal_rank_fusion([a, a], weights=[1])


def test_a_query_without_documents_stays_in_the_run() -> None:
    run = Run.from_frame(frame({"q1": {"a": 1.0}})).reindexed(["q0", "q1"])
    assert len(run) == 2
    assert run["q0"] == []
    assert reciprocal_rank_fusion([run, run]).query_ids == ["q0", "q1"]
