"""Batch scoring of frames: the same pairs come back with the scores of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.worlds import candidates_with_features

from haybale import SVREnsemble, score_frame
from haybale.errors import InputError, VectorError

Trained = tuple[SVREnsemble, np.ndarray, list[str], pd.DataFrame, np.ndarray]


@pytest.fixture(scope="module", params=[0.0, 0.5])
def trained(request: Any) -> Trained:
    """An ensemble, query vectors with ids, a frame of 200 drawn pairs (some twice), and the scores of each."""
    index, queries, relevant, candidates, features = candidates_with_features()
    features = features if request.param else None
    ensemble = SVREnsemble(3, eta=request.param).fit(index, queries, relevant, candidates=candidates, features=features)
    rng, ids = np.random.default_rng(1), [f"q{i}" for i in range(len(queries))]
    rows, columns = rng.integers(0, 12, 200) ** 2 % len(ids), rng.integers(0, 12, 200)
    names = np.array(index.passage_ids.to_pylist())[candidates.passages[rows, columns]]
    frame = pd.DataFrame({"note": rng.permutation(200), "passage_id": names, "query_id": np.array(ids)[rows]})
    if features is not None:
        frame = frame.assign(a=features[rows, columns, 0], b=features[rows, columns, 1])
    expected = ensemble.score_candidates(queries, candidates.passages, features)[rows, columns]
    return ensemble, queries, ids, frame, expected


@pytest.mark.parametrize("made", [lambda frame: frame, pa.Table.from_pandas], ids=["pandas", "arrow"])
@pytest.mark.parametrize("size", [7, 2**18])
def test_scores_of_a_frame_are_those_of_each_pair(trained: Trained, made: Any, size: int, monkeypatch: Any) -> None:
    ensemble, queries, ids, frame, expected = trained
    monkeypatch.setattr("haybale.ensemble.batch_scoring._PAIRS", size)
    given, how = made(frame), {"features": ["a", "b"]} if ensemble.eta else {}
    scored = score_frame(ensemble, queries, ids, given, **how)
    assert type(scored) is type(given)
    table, before = (each if isinstance(each, pd.DataFrame) else each.to_pandas() for each in (scored, given))
    assert table["score"].dtype == np.float32
    np.testing.assert_allclose(table["score"], expected, rtol=1e-5, atol=1e-6)
    pd.testing.assert_frame_equal(table.drop(columns="score"), before)  # which has no score yet
    again = score_frame(ensemble, queries.tolist(), ids, table, **how)
    pd.testing.assert_frame_equal(again, table)
    assert score_frame(ensemble, queries, ids, frame.iloc[:0], **how)["score"].dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_id": ["q0", "nobody", "q1"]}, "row 1 names query 'nobody', which is not among the query_ids"),
        ({"passage_id": ["1", "1", "nothing"]}, "unknown passage id 'nothing'"),
        ({"passage_id": ["1", "1", None]}, "score_frame: row 2 has no passage_id"),
        ({"a": "high"}, "score_frame: column a: expected numbers"),
    ],
)
def test_bad_frames_are_refused_by_row_and_name(trained: Trained, changes: Any, message: str) -> None:
    ensemble, queries, ids, frame, _ = trained
    how = {"features": ["a", "b"]} if ensemble.eta else {}
    if how or "a" not in changes:
        with pytest.raises(InputError, match=message):
            score_frame(ensemble, queries, ids, frame.head(3).assign(**changes), **how)


def test_bad_queries_and_columns_are_refused(trained: Trained) -> None:
    ensemble, queries, ids, frame, _ = trained
    for vectors, names, pairs, message in (
        (queries, ids[1:], frame, "39 query ids for 40 query vectors"),
        (queries, ["q1", *ids[1:]], frame, "query_ids: 'q1' stands there twice"),
        (queries, ids, frame[["passage_id"]], "score_frame: the frame has no column query_id"),
    ):
        with pytest.raises(InputError, match=message):
            score_frame(ensemble, vectors, names, pairs)
    with pytest.raises(VectorError, match="width"):
        score_frame(ensemble, queries[:, :2], ids, frame)
    if ensemble.eta:
        with pytest.raises(InputError, match="which must be given"):
            score_frame(ensemble, queries, ids, frame)
