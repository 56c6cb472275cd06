"""Rankings by similar judged queries: a dictionary oracle, leave-one-out, explanations, errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.saved_folders import change_manifest, change_tensors

from haybale.errors import FileFormatError, InputError, VectorError
from haybale.retrieval import QueryNeighbours

DOCS = list("abcdef")
RELEVANT = "relevant.safetensors"
Case = tuple[np.ndarray, list[list[str]], np.ndarray, int, float]


def oracle(training: Any, relevant: Any, query: Any, k: int, power: float, left: int = -1) -> dict[str, float]:
    """Score by document, with dictionaries; cosines are rounded to float32, as the index has them."""
    unit = [row / np.linalg.norm(row) if row.any() else row for row in [*training, query]]
    cosines = {i: np.float32(unit[i] @ unit[-1]) for i in range(len(training)) if i != left}
    nearest = sorted(cosines, key=lambda i: (-cosines[i], i))[:k]
    scores: dict[str, float] = {}
    for i in nearest:
        for document in set(relevant[i]):
            if cosines[i] > 0:
                scores[document] = scores.get(document, 0.0) + float(cosines[i]) ** power
    return scores


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n, seed = draw(st.integers(1, 9)), draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    # Values whose cosines are far enough apart that rounding does not decide who is a neighbour.
    training = rng.normal(size=(n, 4)).round(2)
    training[rng.random(n) < 0.1] = 0
    relevant = draw(st.lists(st.lists(st.sampled_from(DOCS), max_size=4), min_size=n, max_size=n))
    return (
        training,
        relevant,
        rng.normal(size=(3, 4)).round(2),
        draw(st.integers(1, 12)),
        draw(st.sampled_from([0, 1, 2.5])),
    )


def kinds(matrix: np.ndarray) -> list[Any]:
    return [matrix, sparse.csr_matrix(matrix)]


@settings(deadline=None)
@given(case=cases())
def test_scores_are_the_oracles(case: Case) -> None:
    training, relevant, queries, k, power = case
    for stored, asked in zip(kinds(training), kinds(queries), strict=True):
        run = QueryNeighbours(stored, relevant, DOCS, k=k, power=power).rank(asked, ["x", "y", "z"])
        for row, query in enumerate(run.query_ids):
            assert dict(run[query]) == pytest.approx(
                oracle(training, relevant, queries[row], k, power), rel=1e-5, abs=1e-6
            )


@settings(deadline=None)
@given(case=cases(), numbers=st.lists(st.integers(-3, 12) | st.just(10**9), min_size=9, max_size=9))
def test_a_query_of_a_group_is_ranked_as_if_none_of_it_had_ever_been_there(case: Case, numbers: list[int]) -> None:
    """In the ranking and in explanations; new queries are ranked by all."""
    training, relevant, queries, k, power = case
    n, groups = len(training), np.array(numbers[: len(training)])
    whole = QueryNeighbours(training, relevant, DOCS, k=k, power=power, groups=groups)
    without = QueryNeighbours(training, relevant, DOCS, k=k, power=power)
    assert whole.rank(queries, list("xyz")) == without.rank(queries, list("xyz"))
    rows = [*range(n), -1]
    with TemporaryDirectory() as folder:
        whole.save(Path(folder) / "n")
        for asked in (whole, QueryNeighbours.open(Path(folder) / "n")):
            ranked = asked.rank(training[rows], [str(i) for i in rows], training_rows=rows)
            assert ranked["-1"] == without.rank(training[[-1]], ["q"])["q"]
            for i in range(n):
                others = np.flatnonzero(groups != groups[i])
                expected = oracle(training[others], [relevant[j] for j in others], training[i], k, power)
                assert dict(ranked[str(i)]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
                frame = asked.explain(training[i], "a", training_row=i)
                assert set(frame["row"]) <= set(others)
                assert frame["share"].sum() == pytest.approx(expected.get("a", 0.0), rel=1e-5, abs=1e-6)


@settings(deadline=None)
@given(case=cases())
def test_shares_sum_to_the_score(case: Case) -> None:
    training, relevant, queries, k, power = case
    neighbours = QueryNeighbours(training, relevant, DOCS, k=k, power=power)
    scores = dict(neighbours.rank(queries[:1], ["q"], training_rows=[0])["q"])
    for document in DOCS:
        frame = neighbours.explain(queries[0], document, training_row=0)
        assert 0 not in frame["row"].tolist()
        assert all(document in relevant[row] for row in frame["row"])
        assert frame["share"].sum() == pytest.approx(scores.get(document, 0.0), rel=1e-12)
        assert (frame["cosine"] ** power).tolist() == pytest.approx(frame["share"].tolist())


def test_an_explanation_names_the_training_queries_nearest_first() -> None:
    training = sparse.csr_matrix([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])
    neighbours = QueryNeighbours(training, [["a"], ["a"], ["b"]], ["a", "b"], query_ids=["one", "two", "three"])
    frame = neighbours.explain(sparse.csr_matrix([[2.0, 0.0]]), "a")
    assert frame["query_id"].tolist() == ["two", "one"]
    assert frame["row"].tolist() == [1, 0]
    assert frame["share"].tolist() == pytest.approx([1.0, 0.36])
    assert list(frame.columns) == ["query_id", "row", "cosine", "share"]
    assert neighbours.explain(sparse.csr_matrix([[2.0, 0.0]]), "b").empty


def test_a_query_without_a_neighbour_has_no_documents() -> None:
    neighbours = QueryNeighbours(np.array([[1.0, 0.0]]), [["a"]], ["a", "b"])
    run = neighbours.rank(np.array([[-1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]]), list("wxyz"))
    assert [len(run[query]) for query in "wxyz"] == [0, 0, 0, 1]
    assert neighbours.rank(np.ones((1, 2)), ["q"], training_rows=[0])["q"] == []


def test_excluded_documents_and_depth() -> None:
    neighbours = QueryNeighbours(np.ones((2, 1)), [["a", "b", "a"], ["b", "c"]], ["a", "b", "c"])
    queries = np.ones((2, 1))
    assert neighbours.rank(queries, ["q", "r"], exclude=["b", None])["q"] == [("a", 1.0), ("c", 1.0)]
    assert neighbours.rank(queries, ["q", "r"], exclude=[1, -1], depth=1)["r"] == [("b", 2.0)]
    assert len(neighbours) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "'k' parameter of QueryNeighbours"),
        ({"power": -1.0}, "'power' parameter of QueryNeighbours"),
        ({"power": float("nan")}, "'power' parameter"),
        ({"query_vectors": np.empty((0, 2)), "relevant": []}, "at least one training query"),
        ({"doc_ids": []}, "at least one document"),
        ({"relevant": [["a"]]}, "1 lists of relevant documents for 2 training queries"),
        ({"relevant": ["a", "b"]}, "found a string"),
        ({"relevant": [["a"], ["zz"]]}, "unknown document id 'zz'"),
        ({"doc_ids": ["a", "a"]}, "doc_ids hold an id twice"),
        ({"groups": [1, 1, 2]}, r"groups: expected one of each of 2 training queries, found \(3,\)"),
        ({"query_ids": ["x"]}, "expected 2 passage_ids, found 1"),
        ({"query_vectors": np.array([[1.0, np.nan], [1.0, 0.0]])}, "row 0 has NaN"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"query_vectors": np.eye(2), "relevant": [["a"], ["b"]], "doc_ids": ["a", "b"]} | changes
    with pytest.raises(InputError, match=message):
        QueryNeighbours(given.pop("query_vectors"), given.pop("relevant"), given.pop("doc_ids"), **given)


def test_bad_questions_are_refused() -> None:
    neighbours = QueryNeighbours(np.eye(2), [["a"], ["b"]], ["a", "b"])
    with pytest.raises(InputError, match="1 query ids for 2 query vectors"):
        neighbours.rank(np.eye(2), ["q"])
    for bad in ([0], [0, 2], [0, -2], [0.5, 1.0]):
        with pytest.raises(InputError, match="training_rows must hold 2 rows of training queries, below 2"):
            neighbours.rank(np.eye(2), ["q", "r"], training_rows=bad)
    with pytest.raises(InputError, match="unknown document id 'zz'"):
        neighbours.rank(np.eye(2), ["q", "r"], exclude=["zz", None])
    with pytest.raises(VectorError, match="width 2, found 3"):
        neighbours.rank(np.eye(3), ["q", "r", "s"])
    with pytest.raises(VectorError, match="expected a dense matrix"):
        neighbours.rank(sparse.identity(2, format="csr"), ["q", "r"])
    with pytest.raises(InputError, match="one query vector, found 2"):
        neighbours.explain(np.eye(2), "a")
    with pytest.raises(InputError, match="unknown document id 'zz'"):
        neighbours.explain(np.ones(2), "zz")


# on disk, and over other documents ----------------------------------------------------------------------------


@settings(deadline=None)
@given(case=cases(), there=st.lists(st.sampled_from([*DOCS, "x", "y"]), min_size=1, unique=True))
def test_over_other_documents_is_as_if_the_others_had_never_been_relevant(case: Case, there: list[str]) -> None:
    training, relevant, queries, k, power = case
    for stored, asked in zip(kinds(training), kinds(queries), strict=True):
        whole = QueryNeighbours(stored, relevant, DOCS, k=k, power=power)
        part = whole.with_documents(there)
        left = [[document for document in ids if document in there] for ids in relevant]
        expected = QueryNeighbours(stored, left, there, k=k, power=power)
        own = [there[0], None, None]
        assert part.rank(asked, list("xyz"), exclude=own) == expected.rank(asked, list("xyz"), exclude=own)
        assert part.index is whole.index
        assert part.explain(asked[:1], there[-1]).equals(expected.explain(asked[:1], there[-1]))
        back = whole.with_documents(pa.array(DOCS[::-1]))
        assert back.rank(asked, list("xyz")) == whole.rank(asked, list("xyz"))


@settings(deadline=None)
@given(case=cases())
def test_what_was_saved_ranks_as_it_did(case: Case) -> None:
    training, relevant, queries, k, power = case
    for stored, asked in zip(kinds(training), kinds(queries), strict=True):
        names = [f"t{i}" for i in range(len(training))]
        whole = QueryNeighbours(stored, relevant, DOCS, k=k, power=power, query_ids=names)
        with TemporaryDirectory() as folder:
            whole.save(Path(folder) / "a")
            opened = QueryNeighbours.open(Path(folder) / "a")
            assert opened.rank(asked, list("xyz")) == whole.rank(asked, list("xyz"))
            assert opened.explain(asked[:1], "a").equals(whole.explain(asked[:1], "a"))
            assert not opened._relevant.flags.writeable  # as it lies in the file
            opened.save(Path(folder) / "b")
            for path in (Path(folder) / "a").rglob("*.*"):
                assert path.read_bytes() == (Path(folder) / "b" / path.relative_to(Path(folder) / "a")).read_bytes()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), "is no saved query neighbours"),
        (lambda f: change_manifest(f, version=2), "expected version 1, found 2"),
        (lambda f: change_manifest(f, kind="PassageIndex"), "expected kind 'QueryNeighbours', found 'PassageIndex'"),
        (lambda f: change_manifest(f, k=0), "manifest.json: settings: .*'k' parameter"),
        (lambda f: change_manifest(f, k=None), "manifest.json: settings"),
        (lambda f: change_manifest(f, power="high"), "manifest.json: settings"),
        (lambda f: (f / "documents.parquet").write_bytes(b"x"), "documents.parquet: its content is not what was saved"),
        (
            lambda f: change_manifest(f / "training", more=1),
            "training/manifest.json: its content is not what was",
        ),
        (
            lambda f: (f / "training" / "vectors.safetensors").write_bytes(b"x"),
            "vectors.safetensors: its content is not",
        ),
        (lambda f: shutil.rmtree(f / "training"), "training/manifest.json: not found, the manifest lists it"),
        (
            lambda f: change_tensors(f, RELEVANT, offsets=None),
            "relevant.safetensors: the relevant documents do not fit",
        ),
        (lambda f: change_tensors(f, RELEVANT, documents=[0, 2]), "do not fit the training queries"),
        (lambda f: change_tensors(f, RELEVANT, documents=[0, -1]), "do not fit the training queries"),
        (lambda f: change_tensors(f, RELEVANT, documents=[0.0, 1.0]), "do not fit the training queries"),
        (lambda f: change_tensors(f, RELEVANT, offsets=[0, 2, 1]), "do not fit the training queries"),
        (lambda f: change_tensors(f, RELEVANT, offsets=[0, 3, 2]), "do not fit the training queries"),
        (lambda f: change_tensors(f, RELEVANT, offsets=[0, 2]), "do not fit the training queries"),
        (lambda f: change_tensors(f, RELEVANT, groups=[0]), "do not fit the training queries"),
    ],
)
def test_what_was_not_written_is_refused(tmp_path: Path, harm: Callable[[Path], Any], message: str) -> None:
    QueryNeighbours(np.eye(2), [["a"], ["b"]], ["a", "b"]).save(tmp_path / "n")
    harm(tmp_path / "n")
    with pytest.raises(FileFormatError, match=message):
        QueryNeighbours.open(tmp_path / "n")


def test_no_documents_are_refused() -> None:
    neighbours = QueryNeighbours(np.eye(2), [["a"], ["b"]], ["a", "b"])
    with pytest.raises(InputError, match="there must be at least one document"):
        neighbours.with_documents([])
    with pytest.raises(InputError, match="doc_ids hold an id twice: 'a'"):
        neighbours.with_documents(["a", "a"])
