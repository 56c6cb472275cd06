"""Batch scoring of frames: every library's, pair by pair what the ensemble gives, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cudf_double
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from worlds import candidates_with_features, world

from haybale import SVREnsemble, score_frame
from haybale.ensemble import batch_scoring as scoring
from haybale.errors import InputError, VectorError
from haybale.frames import LIBRARIES, column_names, in_library, library_of, to_pandas
from haybale.retrieval import hits_frame


@pytest.fixture(autouse=True)
def cudf() -> Iterator[Any]:
    with cudf_double.installed() as double:
        yield double


in_every_library = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture(scope="module")
def trained() -> tuple[SVREnsemble, np.ndarray, list[str], pd.DataFrame, list[float]]:
    """An ensemble, query vectors with ids, a frame of 200 random pairs (some twice), and their scores by `score`."""
    index, queries, relevant = world()
    ensemble = SVREnsemble(n_bags=4, n_jobs=1).fit(index, queries, relevant)
    rng = np.random.default_rng(1)
    ids = [f"q{i}" for i in range(len(queries))]
    rows, passages = rng.integers(0, 12, 200) ** 2 % len(ids), rng.integers(0, 30, 200)
    frame = pd.DataFrame(
        {
            "note": rng.permutation(200),
            "passage_id": np.array(index.passage_ids.to_pylist())[passages],
            "query_id": np.array(ids)[rows],
        },
        index=pd.Index(rng.permutation(200), name="place"),
    )
    expected = [
        float(ensemble.score(queries[row : row + 1], [[passage]])[0][0])
        for row, passage in zip(rows, frame["passage_id"], strict=True)
    ]
    return ensemble, queries, ids, frame, expected


@in_every_library
@pytest.mark.parametrize("size", [1, 7, 2**18])
def test_scores_of_a_frame_are_those_of_each_pair(trained, library: str, size: int, monkeypatch) -> None:
    ensemble, queries, ids, frame, expected = trained
    assert frame.duplicated(["query_id", "passage_id"]).any()
    monkeypatch.setattr(scoring, "_batches", lambda query, m, batches=scoring._batches: batches(query, m, size))
    given = in_library(frame, library)
    scored = score_frame(ensemble, queries, ids, given)
    assert library_of(scored) == library
    assert column_names(scored) == [*column_names(given), "score"]
    table = to_pandas(scored)
    assert table["score"].dtype == np.float32
    np.testing.assert_allclose(table["score"], expected, rtol=1e-5, atol=1e-6)
    pd.testing.assert_frame_equal(table.drop(columns="score"), to_pandas(given), check_dtype=False)
    assert "score" not in column_names(given)  # the user's frame is left alone
    if size > 7:
        nested = score_frame(ensemble, queries.tolist(), ids, given)
        np.testing.assert_array_equal(to_pandas(nested)["score"], table["score"])
    again = score_frame(ensemble, queries, ids, scored)
    assert column_names(again) == column_names(scored)
    np.testing.assert_array_equal(to_pandas(again)["score"], table["score"])


@given(
    query=st.lists(st.integers(0, 5), max_size=30).map(lambda numbers: np.array(numbers, dtype=np.int64)),
    size=st.integers(1, 40),
)
def test_batches_hold_every_pair_once_within_their_size(query: np.ndarray, size: int) -> None:
    batches = list(scoring._batches(query, 6, size))
    assert sorted(pair for batch in batches for pair in batch.pairs) == list(range(len(query)))
    for batch in batches:
        assert np.prod(batch.shape) <= size
        assert (batch.row + batch.first == query[batch.pairs]).all()
        assert len({*zip(batch.row.tolist(), batch.column.tolist(), strict=True)}) == len(batch.pairs)
        assert (batch.row < batch.shape[0]).all()
        assert (batch.column < batch.shape[1]).all()


@in_every_library
def test_features_are_columns_of_the_frame_or_an_array(library: str) -> None:
    index, queries, relevant, candidates, features = candidates_with_features()
    ensemble = SVREnsemble(n_bags=3, blend=True, n_jobs=1)
    ensemble.fit(index, queries, relevant, candidates=candidates, features=features)
    expected = ensemble.score_candidates(queries, candidates.passages, features)
    ids = [str(i) for i in range(len(queries))]
    rows, columns = np.nonzero(candidates.passages >= 0)
    frame = to_pandas(hits_frame(index, ids, candidates)).assign(
        a=features[rows, columns, 0], b=features[rows, columns, 1]
    )
    given = in_library(frame, library)
    for values in (["a", "b"], features[rows, columns]):
        scored = to_pandas(score_frame(ensemble, queries, ids, given, features=values))
        np.testing.assert_allclose(scored["score"], expected[rows, columns], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="score_frame: column a: expected numbers"):
        score_frame(ensemble, queries, ids, in_library(frame.assign(a="high"), library), features=["a", "b"])
    with pytest.raises(InputError, match="score_frame: the column a stands there twice"):
        score_frame(ensemble, queries, ids, pd.concat([frame, frame[["a"]]], axis=1), features=["a", "b"])
    with pytest.raises(InputError, match="no column c"):
        score_frame(ensemble, queries, ids, given, features=["a", "c"])
    with pytest.raises(InputError, match=f"features: expected {len(frame)} rows"):
        score_frame(ensemble, queries, ids, given, features=features[0])


def test_several_spaces_and_sparse_vectors() -> None:
    index, queries, relevant = world()
    more = sparse.csr_matrix(np.abs(index.vectors))
    both = [queries, sparse.csr_matrix(np.abs(queries))]
    ensemble = SVREnsemble(n_bags=3, n_jobs=1).fit(index, both, relevant, spaces=[more])
    candidates = index.search(queries, 5)
    ids = [str(i) for i in range(len(queries))]
    scored = score_frame(ensemble, both, ids, hits_frame(index, ids, candidates).sample(frac=1, random_state=0))
    expected = ensemble.score_candidates(both, candidates.passages)
    found = scored.sort_values(["query_id", "rank"], key=lambda c: c.astype(int))["score"].to_numpy()
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-5, atol=1e-6)


@in_every_library
def test_bad_frames_are_refused_by_row_and_name(trained, library: str) -> None:
    ensemble, queries, ids, frame, _ = trained
    pairs = frame.reset_index(drop=True)[["query_id", "passage_id"]].head(3)
    first = pairs["passage_id"][0]
    bad = {
        "row 1 names query 'nobody', which is not among the query_ids": pairs.assign(query_id=["q0", "nobody", "q1"]),
        "unknown passage id 'nothing'": pairs.assign(passage_id=[first, first, "nothing"]),
        "score_frame: row 2 has no passage_id": pairs.assign(passage_id=[first, first, None]),
        "score_frame: the frame has no column query_id": pairs[["passage_id"]],
    }
    for message, broken in bad.items():
        with pytest.raises(InputError, match=message):
            score_frame(ensemble, queries, ids, in_library(broken, library))
    with pytest.raises(InputError, match="39 query ids for 40 query vectors"):
        score_frame(ensemble, queries, ids[1:], in_library(pairs, library))
    with pytest.raises(InputError, match="query_ids: 'q1' stands there twice"):
        score_frame(ensemble, queries, ["q1", *ids[1:]], in_library(pairs, library))
    with pytest.raises(VectorError, match="width"):
        score_frame(ensemble, queries[:, :2], ids, in_library(pairs, library))


@in_every_library
def test_a_frame_without_rows_gets_an_empty_column(trained, library: str) -> None:
    ensemble, queries, ids, frame, _ = trained
    scored = to_pandas(score_frame(ensemble, queries, ids, in_library(frame.iloc[:0], library)))
    assert len(scored) == 0
    assert scored["score"].dtype == np.float32


def test_scoring_needs_a_trained_ensemble() -> None:
    with pytest.raises(Exception, match="not fitted"):
        score_frame(SVREnsemble(), np.eye(2), ["a", "b"], pd.DataFrame())
