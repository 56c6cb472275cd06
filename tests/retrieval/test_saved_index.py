"""Indexes on disk, of some documents, and with more of them: always what an index made at once of those finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.engines import change_manifest, tree

from haybale.errors import FileFormatError, InputError, OutputExistsError, UnknownNameError, VectorError
from haybale.retrieval import Hits, PassageIndex

Case = tuple[PassageIndex, Any]


def same(found: Hits, expected: Hits) -> None:
    np.testing.assert_array_equal(found.passages, expected.passages)
    np.testing.assert_array_equal(found.scores, expected.scores)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """An index of few distinct vectors, so that ties are everywhere, and queries; dense, of float16, or sparse."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m, d = draw(st.integers(1, 40)), draw(st.integers(1, 4)), draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["float32", "sparse"]))
    cuts = np.sort(rng.integers(0, n + 1, size=draw(st.integers(0, 6))))
    offsets = np.concatenate(([0], cuts, [n]))
    ids = {
        "passage_ids": [f"p\u00e4{i}" for i in rng.permutation(n)],
        "doc_ids": [f"d{i}" for i in rng.permutation(len(cuts) + 1)],
    }
    vectors, queries = rng.integers(-2, 3, size=(n, d)).astype(np.float32), rng.normal(size=(m, d)).astype(np.float32)
    if kind == "sparse":
        queries = sparse.csr_matrix(np.where(rng.random((m, d)) < 0.7, queries, 0))
        return PassageIndex(sparse.csr_matrix(vectors), offsets, **ids), queries
    return PassageIndex(vectors, offsets, **ids), queries


@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_an_opened_index_finds_what_was_found(case: Case, data: st.DataObject) -> None:
    index, queries = case
    k = data.draw(st.integers(1, len(index)))
    own = data.draw(
        st.lists(st.integers(-1, len(index.doc_ids) - 1), min_size=queries.shape[0], max_size=queries.shape[0])
    )
    expected = index.search(queries, k, exclude=own)
    with TemporaryDirectory() as folder:
        index.save(Path(folder) / "a")
        opened = PassageIndex.open(Path(folder) / "a")
        same(opened.search(queries, k, exclude=own), expected)
        assert repr(opened) == repr(index)
        assert opened.ids(expected) == index.ids(expected)
        assert opened.doc_ids.equals(index.doc_ids)
        assert opened.doc_offsets.tolist() == index.doc_offsets.tolist()
        np.testing.assert_allclose(opened.similarities(queries, 0), index.similarities(queries, 0), rtol=1e-6)
        opened.save(Path(folder) / "b")
        assert tree(Path(folder) / "a") == tree(Path(folder) / "b")


@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_an_index_of_some_documents_finds_what_is_left_of_the_whole(case: Case, data: st.DataObject) -> None:
    index, queries = case
    n = len(index.doc_ids)
    documents = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True).map(sorted))
    rows = np.flatnonzero(np.isin(index.doc_of, documents))
    assume(len(rows))
    part = index.take(np.array(documents))
    assert (part.device, part.backend_used, part.vectors.dtype) == (
        index.device,
        index.backend_used,
        index.vectors.dtype,
    )
    assert part.passage_ids.to_pylist() == [index.passage_ids[int(row)].as_py() for row in rows]
    assert part.doc_ids.to_pylist() == [index.doc_ids[number].as_py() for number in documents]
    own = data.draw(st.lists(st.sampled_from([-1, *documents]), min_size=queries.shape[0], max_size=queries.shape[0]))
    whole = index.search(queries, len(index), exclude=own)
    kept = np.isin(whole.passages, rows)
    found = part.search(queries, len(part), exclude=[documents.index(number) if number >= 0 else -1 for number in own])
    for row in range(queries.shape[0]):
        hits = found.passages[row] >= 0
        np.testing.assert_array_equal(rows[found.passages[row][hits]], whole.passages[row][kept[row]])
        np.testing.assert_array_equal(found.scores[row][hits], whole.scores[row][kept[row]])


@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_an_index_that_grew_is_one_made_at_once(case: Case, data: st.DataObject) -> None:
    index, queries = case
    n = len(index.doc_ids)
    assume(n > 1)
    first = data.draw(st.integers(1, n - 1))
    start = int(index.doc_offsets[first])
    assume(start)
    grown = index.take(range(first)).extended(
        index.vectors[start:],
        index.doc_offsets[first:] - start,
        passage_ids=index.passage_ids[start:],
        doc_ids=index.doc_ids[first:],
    )
    assert repr(grown) == repr(index)
    k = data.draw(st.integers(1, len(index)))
    same(grown.search(queries, k), index.search(queries, k))
    assert grown.document_numbers(index.doc_ids).tolist() == list(range(n))
    with TemporaryDirectory() as folder:
        index.save(Path(folder) / "a")
        grown.save(Path(folder) / "b")
        assert tree(Path(folder) / "a") == tree(Path(folder) / "b")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_opening_reads_no_vector_and_checks_none_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    index = PassageIndex(sparse.identity(50, format="csr") if kind == "sparse" else np.eye(50))
    index.save(tmp_path / "i")
    for name in ("check_matrix", "Columns.checked"):
        monkeypatch.setattr(f"haybale.retrieval.index.{name}", None)
    monkeypatch.setattr(sparse.csr_matrix, "tocsc", None)
    opened = PassageIndex.open(tmp_path / "i")
    monkeypatch.undo()
    matrix = opened.vectors
    arrays = [matrix.data, matrix.indices, matrix.indptr] if kind == "sparse" else [matrix]
    if kind == "sparse":
        postings = opened._sparse_search.postings
        arrays += [postings.data, postings.indices, postings.indptr]
        assert matrix.has_canonical_format
    for array in arrays:
        assert not array.flags.writeable
        while isinstance(array.base, np.ndarray):
            array = array.base
        assert isinstance(array, np.memmap)
    monkeypatch.setattr("haybale.retrieval.index.InvertedIndex", None)  # as they were saved
    queries = sparse.identity(50, format="csr") if kind == "sparse" else np.eye(50)
    assert opened.search(queries, 1).passages.ravel().tolist() == list(range(50))


@pytest.mark.parametrize("kind", ["float32", "sparse"])
def test_an_index_on_a_device_is_saved_cut_and_extended_there(cupy: Any, tmp_path: Path, kind: str) -> None:
    """It is the same on disk wherever it was, and stays on its device."""
    rng = np.random.default_rng(3)
    passages, queries = rng.integers(0, 3, size=(40, 6)).astype("f4"), rng.integers(0, 3, size=(3, 6)).astype("f4")
    if kind == "sparse":
        passages, queries = sparse.csr_matrix(passages), sparse.csr_matrix(queries)
    settings = {"doc_offsets": np.array([0, 10, 25, 40])}
    host, there = (PassageIndex(passages, device=device, **settings) for device in ("cpu", "cuda"))
    host.save(tmp_path / "host")
    there.save(tmp_path / "there")
    assert tree(tmp_path / "host") == tree(tmp_path / "there")
    grown = there.take([0, 1]).extended(
        passages[25:], [0, 15], passage_ids=there.passage_ids[25:], doc_ids=there.doc_ids[2:]
    )
    for index in (PassageIndex.open(tmp_path / "host", device="cuda"), grown):
        assert not index.device.is_cpu
        assert repr(index) == repr(there)
        same(index.search(queries, 9), host.search(queries, 9))
    same(there.take([0, 2]).search(queries, 9), host.take([0, 2]).search(queries, 9))


def test_settings_are_those_of_opening(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=(3, 4))
    index = PassageIndex(vectors, backend="faiss")
    index.save(tmp_path / "i")
    other = PassageIndex.open(tmp_path / "i", backend="numpy", device="cpu")
    assert other.backend_used == "numpy"
    same(other.search(queries, 9), index.search(queries, 9))
    for part in (
        other.take([3, 4, 9]),
        other.extended(vectors, None, passage_ids=range(30, 60), doc_ids=range(30, 60)),
    ):
        assert part.backend == "numpy"
    assert np.shares_memory(index.take([3, 4]).vectors, index.vectors)
    with pytest.raises(UnknownNameError, match="known: auto, numpy, faiss"):
        PassageIndex.open(tmp_path / "i", backend="hnsw")
    PassageIndex(sparse.identity(2, format="csr")).save(tmp_path / "sparse")
    with pytest.raises(InputError, match="backend must be 'auto'"):
        PassageIndex.open(tmp_path / "sparse", backend="numpy")


def test_what_cannot_be_cut_or_extended_is_refused(tmp_path: Path) -> None:
    index = PassageIndex(np.eye(3), [0, 2, 2, 3], passage_ids=list("abc"), doc_ids=list("xyz"))
    for documents, message in [
        ([2, 0], "document numbers must rise"),
        ([0, 3], "document numbers lie between 0 and 2, found 0 and 3"),
        ([1], "none of the 1 documents to be taken has a passage"),
    ]:
        with pytest.raises(InputError, match=message):
            index.take(documents)
    new: dict[str, Any] = {"passage_ids": ["d"], "doc_ids": ["w"]}
    for changes, message in [
        ({"passage_ids": ["b"]}, "passage id 'b' is in the index already"),
        ({"doc_ids": ["y"]}, "document id 'y' is in the index already"),
        ({"doc_ids": ["v", "w"]}, "expected 1 doc_ids, found 2"),
    ]:
        with pytest.raises(InputError, match=message):
            index.extended(np.ones((1, 3)), [0, 1], **new | changes)
    with pytest.raises(InputError, match="passage_ids hold an id twice: 'd'"):
        index.extended(np.ones((2, 3)), [0, 2], passage_ids=["d", "d"], doc_ids=["w"])
    with pytest.raises(InputError, match="doc_offsets must rise from 0 to the number of passages, 1"):
        index.extended(np.ones((1, 3)), [0, 2], **new)
    for vectors, message in [
        (np.ones((1, 2)), "width 3, found 2"),
        (sparse.identity(3, format="csr")[:1], "expected a dense matrix"),
    ]:
        with pytest.raises(VectorError, match=message):
            index.extended(vectors, [0, 1], **new)
    with pytest.raises(VectorError, match="expected a sparse matrix"):
        PassageIndex(sparse.identity(3, format="csr")).extended(np.ones((1, 3)), [0, 1], **new)
    empty = index.extended(np.empty((0, 3)), [0, 0], passage_ids=[], doc_ids=["w"])
    assert (len(empty), empty.doc_ids.to_pylist()) == (3, ["x", "y", "z", "w"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").touch()
    with pytest.raises(OutputExistsError, match="exists and is not empty"):
        index.save(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


# what is no saved index ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense and a sparse index of two documents, three passages and four columns."""
    folder = tmp_path_factory.mktemp("indexes")
    for name, matrix in [("dense", np.eye(3, 4)), ("sparse", sparse.csr_matrix(np.eye(3, 4)))]:
        PassageIndex(matrix, [0, 2, 3]).save(folder / name)
    return folder


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "harm", "message"),
    [
        ("dense", lambda f: change_manifest(f, kind="BM25Index"), "expected kind 'PassageIndex', found 'BM25Index'"),
        ("dense", lambda f: change_manifest(f, files={}), "expected 'files' documents.parquet, passages.parquet"),
        ("dense", lambda f: _flip(f / "vectors.safetensors"), "vectors.safetensors: its content is not what was saved"),
        ("sparse", lambda f: _flip(f / "documents.parquet"), "documents.parquet: its content is not what was saved"),
    ],
)
def test_what_was_not_written_is_refused(
    saved: Path, tmp_path: Path, kind: str, harm: Callable[[Path], Any], message: str
) -> None:
    folder = tmp_path / "i"
    shutil.copytree(saved / kind, folder)
    harm(folder)
    with pytest.raises(FileFormatError, match=message) as error:
        PassageIndex.open(folder)
    assert "\n" not in str(error.value)
