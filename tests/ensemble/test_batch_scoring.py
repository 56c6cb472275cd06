"""Batch scoring of frames: the same pairs come back with the scores of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from worlds import candidates_with_features, world

from haybale import SVREnsemble, score_frame
from haybale.errors import InputError, VectorError

in_every_library = pytest.mark.parametrize("made", [lambda frame: frame, pa.Table.from_pandas], ids=["pandas", "arrow"])


def to_pandas(frame: Any) -> pd.DataFrame:
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas(ignore_metadata=True)


@pytest.fixture(scope="module")
def trained() -> tuple[SVREnsemble, np.ndarray, list[str], pd.DataFrame, list[float]]:
    """An ensemble, query vectors with ids, a frame of 200 random pairs (some twice), and their scores by `score`."""
    index, queries, relevant = world()
    ensemble = SVREnsemble(n_bags=4, n_jobs=1).fit(index, queries, relevant)
    rng = np.random.default_rng(1)
    ids = [f"q{i}" for i in range(len(queries))]
    rows, passages = rng.integers(0, 12, 200) ** 2 % len(ids), rng.integers(0, 30, 200)
    names = np.array(index.passage_ids.to_pylist())[passages]
    frame = pd.DataFrame({"note": rng.permutation(200), "passage_id": names, "query_id": np.array(ids)[rows]})
    pairs = zip(rows, frame["passage_id"], strict=True)
    expected = [float(ensemble.score(queries[row : row + 1], [[passage]])[0][0]) for row, passage in pairs]
    return ensemble, queries, ids, frame, expected


@in_every_library
@pytest.mark.parametrize("size", [1, 7, 2**18])
def test_scores_of_a_frame_are_those_of_each_pair(trained: Any, made: Any, size: int, monkeypatch: Any) -> None:
    ensemble, queries, ids, frame, expected = trained
    assert frame.duplicated(["query_id", "passage_id"]).any()
    monkeypatch.setattr("haybale.ensemble.batch_scoring._PAIRS", size)
    given = made(frame)
    scored = score_frame(ensemble, queries, ids, given)
    assert type(scored) is type(given)
    table = to_pandas(scored)
    assert list(table.columns) == [*frame.columns, "score"]
    assert table["score"].dtype == np.float32
    np.testing.assert_allclose(table["score"], expected, rtol=1e-5, atol=1e-6)
    pd.testing.assert_frame_equal(table.drop(columns="score"), to_pandas(given), check_dtype=False)
    assert "score" not in to_pandas(given).columns  # the user's frame is left alone
    again = to_pandas(score_frame(ensemble, queries.tolist(), ids, scored))
    pd.testing.assert_frame_equal(again, table)
    assert to_pandas(score_frame(ensemble, queries, ids, made(frame.iloc[:0])))["score"].dtype == np.float32


@in_every_library
def test_features_are_columns_of_the_frame_or_an_array(made: Any) -> None:
    index, queries, relevant, candidates, features = candidates_with_features()
    ensemble = SVREnsemble(n_bags=3, eta=0.5, n_jobs=1)
    ensemble.fit(index, queries, relevant, candidates=candidates, features=features)
    expected = ensemble.score_candidates(queries, candidates.passages, features)
    ids = [str(i) for i in range(len(queries))]
    rows, columns = np.nonzero(candidates.passages >= 0)
    names = index.passage_ids.take(candidates.passages[rows, columns]).to_pylist()
    frame = pd.DataFrame({"query_id": np.array(ids)[rows], "passage_id": names})
    frame = frame.assign(a=features[rows, columns, 0], b=features[rows, columns, 1])
    given = made(frame)
    for values in (["a", "b"], features[rows, columns]):
        scored = to_pandas(score_frame(ensemble, queries, ids, given, features=values))
        np.testing.assert_allclose(scored["score"], expected[rows, columns], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="score_frame: column a: expected numbers"):
        score_frame(ensemble, queries, ids, made(frame.assign(a="high")), features=["a", "b"])
    with pytest.raises(InputError, match="no column c"):
        score_frame(ensemble, queries, ids, given, features=["a", "c"])
    with pytest.raises(InputError, match=f"features: expected {len(frame)} rows"):
        score_frame(ensemble, queries, ids, given, features=features[0])
    with pytest.raises(InputError, match="which must be given"):
        score_frame(ensemble, queries, ids, given)


def test_bad_frames_are_refused_by_row_and_name(trained: Any) -> None:
    ensemble, queries, ids, frame, _ = trained
    pairs = frame[["query_id", "passage_id"]].head(3)
    first = pairs["passage_id"][0]
    bad = {
        "row 1 names query 'nobody', which is not among the query_ids": pairs.assign(query_id=["q0", "nobody", "q1"]),
        "unknown passage id 'nothing'": pairs.assign(passage_id=[first, first, "nothing"]),
        "score_frame: row 2 has no passage_id": pairs.assign(passage_id=[first, first, None]),
        "score_frame: the frame has no column query_id": pairs[["passage_id"]],
    }
    for message, broken in bad.items():
        with pytest.raises(InputError, match=message):
            score_frame(ensemble, queries, ids, broken)
    with pytest.raises(InputError, match="39 query ids for 40 query vectors"):
        score_frame(ensemble, queries, ids[1:], pairs)
    with pytest.raises(InputError, match="query_ids: 'q1' stands there twice"):
        score_frame(ensemble, queries, ["q1", *ids[1:]], pairs)
    with pytest.raises(VectorError, match="width"):
        score_frame(ensemble, queries[:, :2], ids, pairs)
    with pytest.raises(Exception, match="not fitted"):
        score_frame(SVREnsemble(), queries, ids, pairs)
