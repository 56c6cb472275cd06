"""Saved, restricted and extended indexes find what an index made from the same documents finds."""

from __future__ import annotations

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


def assert_same_hits(found: Hits, expected: Hits) -> None:
    np.testing.assert_array_equal(found.passages, expected.passages)
    np.testing.assert_array_equal(found.scores, expected.scores)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw an index, dense or sparse, and queries. There are few distinct vectors, so ties are frequent."""
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
def test_opened_index_finds_the_same_hits(case: Case, data: st.DataObject) -> None:
    index, queries = case
    k = data.draw(st.integers(1, len(index)))
    m = queries.shape[0]
    excluded = data.draw(st.lists(st.integers(-1, len(index.doc_ids) - 1), min_size=m, max_size=m))
    expected = index.search(queries, k, exclude=excluded)
    with TemporaryDirectory() as folder:
        index.save(Path(folder) / "a")
        opened = PassageIndex.open(Path(folder) / "a")
        assert_same_hits(opened.search(queries, k, exclude=excluded), expected)
        assert repr(opened) == repr(index)
        assert opened.ids(expected) == index.ids(expected)
        assert opened.doc_ids.equals(index.doc_ids)
        assert opened.doc_offsets.tolist() == index.doc_offsets.tolist()
        np.testing.assert_allclose(opened.similarities(queries, 0), index.similarities(queries, 0), rtol=1e-6)
        opened.save(Path(folder) / "b")
        assert tree(Path(folder) / "a") == tree(Path(folder) / "b")


@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_restricted_index_finds_the_hits_of_its_documents(case: Case, data: st.DataObject) -> None:
    index, queries = case
    n = len(index.doc_ids)
    documents = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True).map(sorted))
    rows = np.flatnonzero(np.isin(index.doc_of, documents))
    assume(len(rows))
    part = index.take(np.array(documents))
    for name in ("device", "backend_used"):
        assert getattr(part, name) == getattr(index, name)
    assert part.vectors.dtype == index.vectors.dtype
    assert part.passage_ids.to_pylist() == [index.passage_ids[int(row)].as_py() for row in rows]
    assert part.doc_ids.to_pylist() == [index.doc_ids[number].as_py() for number in documents]
    m = queries.shape[0]
    excluded = data.draw(st.lists(st.sampled_from([-1, *documents]), min_size=m, max_size=m))
    whole = index.search(queries, len(index), exclude=excluded)
    kept = np.isin(whole.passages, rows)
    in_part = [documents.index(number) if number >= 0 else -1 for number in excluded]
    found = part.search(queries, len(part), exclude=in_part)
    for row in range(m):
        hits = found.passages[row] >= 0
        np.testing.assert_array_equal(rows[found.passages[row][hits]], whole.passages[row][kept[row]])
        np.testing.assert_array_equal(found.scores[row][hits], whole.scores[row][kept[row]])


@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_extended_index_equals_one_made_at_once(case: Case, data: st.DataObject) -> None:
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
    assert_same_hits(grown.search(queries, k), index.search(queries, k))
    assert grown.document_numbers(index.doc_ids).tolist() == list(range(n))
    with TemporaryDirectory() as folder:
        index.save(Path(folder) / "a")
        grown.save(Path(folder) / "b")
        assert tree(Path(folder) / "a") == tree(Path(folder) / "b")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_opening_maps_vectors_without_checking_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    index = PassageIndex(sparse.identity(50, format="csr") if kind == "sparse" else np.eye(50))
    index.save(tmp_path / "i")
    for name in ("check_matrix", "Columns.validated"):
        monkeypatch.setattr(f"haybale.retrieval.passage_index.{name}", None)
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
    monkeypatch.setattr("haybale.retrieval.passage_index.InvertedIndex", None)  # the saved inverted index is used
    queries = sparse.identity(50, format="csr") if kind == "sparse" else np.eye(50)
    assert opened.search(queries, 1).passages.ravel().tolist() == list(range(50))


@pytest.mark.parametrize("kind", ["float32", "sparse"])
def test_index_on_a_device_is_saved_restricted_and_extended(cupy: Any, tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    passages, queries = rng.integers(0, 3, size=(40, 6)).astype("f4"), rng.integers(0, 3, size=(3, 6)).astype("f4")
    if kind == "sparse":
        passages, queries = sparse.csr_matrix(passages), sparse.csr_matrix(queries)
    settings = {"doc_offsets": np.array([0, 10, 25, 40])}
    host, device = (PassageIndex(passages, device=device, **settings) for device in ("cpu", "cuda"))
    host.save(tmp_path / "host")
    device.save(tmp_path / "device")
    assert tree(tmp_path / "host") == tree(tmp_path / "device")
    ids = {"passage_ids": device.passage_ids[25:], "doc_ids": device.doc_ids[2:]}
    extended = device.take([0, 1]).extended(passages[25:], [0, 15], **ids)
    for index in (PassageIndex.open(tmp_path / "host", device="cuda"), extended):
        assert not index.device.is_cpu
        assert repr(index) == repr(device)
        assert_same_hits(index.search(queries, 9), host.search(queries, 9))
    assert_same_hits(device.take([0, 2]).search(queries, 9), host.take([0, 2]).search(queries, 9))


def test_backend_and_device_are_chosen_at_opening(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=(3, 4))
    index = PassageIndex(vectors, backend="auto")
    index.save(tmp_path / "i")
    other = PassageIndex.open(tmp_path / "i", backend="numpy", device="cpu")
    assert other.backend_used == "numpy"
    assert_same_hits(other.search(queries, 9), index.search(queries, 9))
    assert other.take([3, 4, 9]).backend == "numpy"
    assert other.extended(vectors, None, passage_ids=range(30, 60), doc_ids=range(30, 60)).backend == "numpy"
    assert np.shares_memory(index.take([3, 4]).vectors, index.vectors)
    with pytest.raises(UnknownNameError, match="hnsw"):
        PassageIndex.open(tmp_path / "i", backend="hnsw")
    PassageIndex(sparse.identity(2, format="csr")).save(tmp_path / "sparse")
    with pytest.raises(InputError, match=r"'auto'.*'numpy'"):
        PassageIndex.open(tmp_path / "sparse", backend="numpy")


def test_invalid_documents_are_rejected(tmp_path: Path) -> None:
    index = PassageIndex(np.eye(3), [0, 2, 2, 3], passage_ids=list("abc"), doc_ids=list("xyz"))
    for documents in ([2, 0], [0, 3], [1]):  # not rising, unknown, without a passage
        with pytest.raises(InputError, match="document"):
            index.take(documents)
    one, wide, row = np.ones((1, 3)), np.ones((1, 2)), sparse.identity(3, format="csr")[:1]
    for vectors, doc_offsets, passage_ids, doc_ids, named in [
        (one, [0, 1], ["b"], ["w"], "'b'"),
        (one, [0, 1], ["d"], ["y"], "'y'"),
        (one, [0, 1], ["d"], ["v", "w"], "doc_ids.* 2"),
        (np.ones((2, 3)), [0, 2], ["d", "d"], ["w"], "passage_ids.*'d'"),
        (one, [0, 2], ["d"], ["w"], r"doc_offsets.* 1; .*\[0, 2\]"),
        (wide, [0, 1], ["d"], ["w"], "width 3.* 2"),
        (row, [0, 1], ["d"], ["w"], "dense"),
    ]:
        with pytest.raises(InputError, match=named):
            index.extended(vectors, doc_offsets, passage_ids=passage_ids, doc_ids=doc_ids)
    with pytest.raises(VectorError, match="sparse"):
        PassageIndex(row).extended(one, [0, 1], passage_ids=["d"], doc_ids=["w"])
    empty = index.extended(np.empty((0, 3)), [0, 0], passage_ids=[], doc_ids=["w"])
    assert (len(empty), empty.doc_ids.to_pylist()) == (3, ["x", "y", "z", "w"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").touch()
    with pytest.raises(OutputExistsError):
        index.save(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def flip_last_bit(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("kind", "damage", "named"),
    [
        ("dense", lambda f: change_manifest(f, kind="BM25Index"), "'PassageIndex'.*'BM25Index'"),
        ("dense", lambda f: change_manifest(f, files={}), "'files'"),
        ("dense", lambda f: flip_last_bit(f / "vectors.safetensors"), "vectors.safetensors"),
        ("sparse", lambda f: flip_last_bit(f / "documents.parquet"), "documents.parquet"),
    ],
)
def test_damaged_index_is_rejected(tmp_path: Path, kind: str, damage: Callable[[Path], Any], named: str) -> None:
    matrix = np.eye(3, 4) if kind == "dense" else sparse.csr_matrix(np.eye(3, 4))
    PassageIndex(matrix, [0, 2, 3]).save(tmp_path / "i")
    damage(tmp_path / "i")
    with pytest.raises(FileFormatError, match=named) as error:
        PassageIndex.open(tmp_path / "i")
    assert "\n" not in str(error.value)
