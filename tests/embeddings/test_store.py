"""The embedding store returns what was computed, and refuses damaged or mismatched data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from support.damaged_folders import damaged_copies
from support.encoders import HashEncoder
from support.engines import tree

from haybale.collections import Collection, open_collection
from haybale.embeddings import Chunking, EmbeddingStore, cut, embed
from haybale.errors import FileFormatError, InputError, OutputExistsError, StoreError, VectorError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection in GerDaLIR's layout, in which the passages of document d0 are not consecutive."""
    folder = tmp_path / "laws"
    (folder / "queries").mkdir(parents=True)
    (folder / "qrels").mkdir()
    rows = [f"d{i // 3}\tpassage {i} of the law on {'tax' if i % 2 else 'dogs'}" for i in range(100)]
    (folder / "collection.tsv").write_text("\n".join([*rows, "d0\tan afterthought", "d40\t  "]) + "\n")
    (folder / "queries" / "queries.dev.tsv").write_text("q\twhich law\n")
    (folder / "qrels" / "qrels.dev.tsv").write_text("q\td1\n")
    return folder


@pytest.fixture
def collection(folder: Path) -> Collection:
    with pytest.warns(UserWarning, match="1 passages of only whitespace"):
        return open_collection(folder)


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Path:
    with pytest.warns(UserWarning, match="1 passages of only whitespace"):
        embed(folder, HashEncoder(), tmp_path / "store", rows_per_chunk=8)
    return tmp_path / "store"


def test_rows_are_the_passages_vectors(store: Path, collection: Collection) -> None:
    opened = EmbeddingStore(store)
    assert (opened.shape, len(opened), opened.dim, opened.dtype) == ((101, 8), 101, 8, "float32")
    texts = opened.texts().to_pylist()
    assert texts == collection.passages.texts.to_pylist()
    np.testing.assert_array_equal(opened.vectors(), HashEncoder().encode(texts))
    expected = HashEncoder().encode(collection.passages.texts.to_pylist())
    np.testing.assert_array_equal(opened.vectors_of(collection), expected)
    np.testing.assert_array_equal(opened.rows(np.array([100, 0, 17])), opened.vectors()[[100, 0, 17]])
    with pytest.raises(InputError, match="0 and 100, found 101"):
        opened.rows(np.array([101]))
    manifest = json.loads((store / "manifest.json").read_text())
    assert manifest["encoder"] == HashEncoder().describe()
    assert (manifest["input"]["passages"], len(manifest["input"]["sha256"])) == (101, 64)
    assert manifest["versions"]["numpy"] == np.__version__
    chunks = {name for i in range(13) for name in (f"vectors.zarr/c.{i}.0", f"digests/{i}")}
    assert set(tree(store)) - chunks == {"manifest.json", "passages.parquet", "vectors.zarr/zarr.json"}


def test_float16_halves_the_store(tmp_path: Path, collection: Collection) -> None:
    embed(collection, HashEncoder(), tmp_path / "half", rows_per_chunk=8, dtype="float16")
    found = EmbeddingStore(tmp_path / "half").vectors()
    expected = HashEncoder().encode(collection.passages.texts.to_pylist()).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found, expected, strict=True)
    assert (tmp_path / "half" / "vectors.zarr" / "c.0.0").stat().st_size == 8 * 8 * 2 + 4  # and a checksum


def test_lost_and_damaged_chunks_are_named_and_computed_again(store: Path, folder: Path) -> None:
    before, encoder = tree(store), HashEncoder()
    done = embed(folder, encoder, store, rows_per_chunk=8)
    assert (done.passages, done.kept, encoder.calls) == (0, 101, 0)  # no chunk is missing
    chunk = store / "vectors.zarr" / "c.3.0"
    for damage in (b"", chunk.read_bytes()[:100], bytes([1]) + chunk.read_bytes()[1:], None):
        chunk.unlink() if damage is None else chunk.write_bytes(damage)
        opened = EmbeddingStore(store)
        assert len(opened.rows(np.array([0, 99]))) == 2  # from other chunks
        with pytest.raises(StoreError, match=r"c\.3\.0: chunk 3 of 13 .* embed"):
            opened.vectors()
        encoder = HashEncoder()
        assert embed(folder, encoder, store, rows_per_chunk=8).passages == 8
        assert encoder.calls == 1
        assert tree(store) == before


@pytest.mark.filterwarnings("ignore:.*1 passages of only whitespace")
@pytest.mark.parametrize("with_digest", [True, False])
def test_exchanged_chunks_are_detected(store: Path, folder: Path, tmp_path: Path, with_digest: bool) -> None:
    """Chunks from another place or another store have valid checksums, and are detected even with their digests."""
    other, expected = tmp_path / "other", EmbeddingStore(store).vectors()
    embed(folder, HashEncoder("other"), other, rows_per_chunk=8)
    for here, there in (("1", store / "vectors.zarr" / "c.2.0"), ("3", other / "vectors.zarr" / "c.3.0")):
        (store / "vectors.zarr" / f"c.{here}.0").write_bytes(there.read_bytes())
        if with_digest:
            digest = (store if here == "1" else other) / "digests" / ("2" if here == "1" else "3")
            (store / "digests" / here).write_bytes(digest.read_bytes())
    for number in (1, 3):
        with pytest.raises(StoreError, match=f"chunk {number} of 13 .*digest"):
            EmbeddingStore(store).read(number)
    embed(folder, HashEncoder(), store, rows_per_chunk=8)
    np.testing.assert_array_equal(EmbeddingStore(store).vectors(), expected)


def test_damaged_and_lost_passages_are_written_again(store: Path, folder: Path) -> None:
    before, path = tree(store), store / "passages.parquet"
    middle = len(before[path.name]) // 3
    for damage in (b"", before[path.name][:500], before[path.name][:middle] + b"xx" + before[path.name][middle + 2 :]):
        path.write_bytes(damage)
        with pytest.raises(StoreError, match=r"passages\.parquet"):
            EmbeddingStore(store).texts()
        path.unlink()
        with pytest.raises(StoreError, match=r"passages\.parquet is missing"):
            EmbeddingStore(store).texts()
        with pytest.warns(UserWarning, match="1 passages of only whitespace"):
            assert embed(folder, HashEncoder(), store, rows_per_chunk=8).passages == 0
        assert tree(store) == before


def test_every_damage_is_one_clear_error(store: Path, tmp_path: Path) -> None:
    """Of each file and folder, in each way; what is not read may be damaged unseen."""
    expected, ids = EmbeddingStore(store).vectors(), EmbeddingStore(store).passage_ids
    copy, n_refused = tmp_path / "copy", 0
    for what in damaged_copies(store, copy):
        try:
            opened = EmbeddingStore(copy)
            found = opened.vectors(), opened.passage_ids
        except (StoreError, InputError) as error:
            n_refused += str(copy) in str(error)
        else:
            np.testing.assert_array_equal(found[0], expected, what)
            assert found[1].equals(ids), what
    assert n_refused > 100


def test_other_settings_and_other_input_are_refused(store: Path, folder: Path) -> None:
    before = tree(store)
    for encoder, settings, named in [
        (HashEncoder("x"), {}, "encoder salt '', .* 'x'"),
        (HashEncoder(), {"dtype": "float16"}, "dtype 'float32', .* 'float16'"),
        (HashEncoder(), {"rows_per_chunk": 9}, "rows_per_chunk 8, .* 9"),
        (HashEncoder(), {"chunking": Chunking(2)}, "input .* 101 passages"),
    ]:
        with pytest.raises(StoreError, match=named):
            embed(folder, encoder, store, **{"rows_per_chunk": 8, **settings})
    (folder / "collection.tsv").write_text("d0\tone passage\n")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"input .* 101 passages .* found 1 "):
            embed(folder, HashEncoder(), store, rows_per_chunk=8)
        assert tree(store) == before
        (store / "passages.parquet").unlink(missing_ok=True)
        before.pop("passages.parquet", None)  # the other input must not write it


def test_folders_without_a_finished_store(tmp_path: Path, store: Path, folder: Path) -> None:
    with pytest.raises(InputError, match=r"store of embeddings.* manifest\.json"):
        EmbeddingStore(tmp_path / "nothing")
    with pytest.raises(OutputExistsError, match=r"collection\.tsv"):
        embed(folder, HashEncoder(), folder)
    for content in ("{", "{}", '{"format": "haybale embeddings", "version": 9}'):
        (store / "manifest.json").write_text(content)
        with pytest.raises(InputError, match=r"manifest\.json"):
            EmbeddingStore(store)
    os.rename(store / "manifest.json", store / "building.json")
    with pytest.raises(StoreError, match="embed"):
        EmbeddingStore(store)


class Times(HashEncoder):
    def __init__(self, factor: object) -> None:
        super().__init__()
        self.factor = factor

    def encode(self, texts):  # type: ignore[no-untyped-def]
        return super().encode(texts) @ self.factor


def test_bad_settings_and_bad_vectors(tmp_path: Path, collection: Collection) -> None:
    bad: list[tuple[HashEncoder, dict[str, Any], str]] = [
        (HashEncoder(), {"dtype": "int8"}, "'dtype' parameter of embed"),
        (HashEncoder(), {"shard": (3, 2)}, "shard .* 3/2"),
        (HashEncoder(), {"rows_per_chunk": 0}, "'rows_per_chunk' parameter of embed"),
        (Times(np.eye(8) * np.nan), {}, r"Times\.encode .*row 0 has NaN"),
        (Times(np.ones((8, 16))), {}, r"Times\.encode: .* width 8, found 16"),
        (Times(np.eye(8) * 1e9), {"dtype": "float16"}, "float16"),
    ]
    for number, (encoder, settings, named) in enumerate(bad):
        with pytest.raises((InputError, VectorError), match=named):
            embed(collection, encoder, tmp_path / str(number), **settings)


def test_shards_that_do_not_belong_together(collection: Collection, tmp_path: Path) -> None:
    embed(collection, HashEncoder(), tmp_path / "s", rows_per_chunk=8, shard=(1, 2))
    with pytest.raises(StoreError, match=r"found \[\[1, 2\]\]"):
        EmbeddingStore(tmp_path / "s")
    embed(collection, HashEncoder("x"), tmp_path / "s", rows_per_chunk=8, shard=(2, 2))
    with pytest.raises(StoreError, match="shard 2 has encoder"):
        EmbeddingStore(tmp_path / "s")
    with pytest.raises(OutputExistsError, match="shard-1-of-2"):
        embed(collection, HashEncoder(), tmp_path / "s")
    embed(collection, HashEncoder(), tmp_path / "whole")
    with pytest.raises(OutputExistsError, match="whole"):
        embed(collection, HashEncoder(), tmp_path / "whole", shard=(1, 2))


def test_dask_reads_the_store(store: Path, collection: Collection, tmp_path: Path) -> None:
    array = pytest.importorskip("dask.array")
    for i in (1, 2):
        embed(collection, HashEncoder(), tmp_path / "s", rows_per_chunk=8, shard=(i, 2))
    for opened in (EmbeddingStore(store), EmbeddingStore(tmp_path / "s")):
        lazy = opened.dask()
        assert lazy.numblocks == (13, 1)
        np.testing.assert_array_equal(lazy.compute(), opened.vectors())
    order = np.arange(101)[::-1]
    np.testing.assert_array_equal(opened.rows(order), opened.vectors()[order])
    np.testing.assert_array_equal(opened.vectors_of(collection), EmbeddingStore(store).vectors_of(collection))
    plain = array.from_zarr(str(store / "vectors.zarr"))  # without haybale
    np.testing.assert_array_equal(plain.compute(), EmbeddingStore(store).vectors())


def test_any_fsspec_address(collection: Collection, store: Path) -> None:
    url, memory = "memory://bucket/store", fsspec.filesystem("memory")
    memory.pipe_file("/bucket/store/.lock", b'{"process": 7, "host": "far"}')
    with pytest.raises(StoreError, match=r"process 7 on far .*\.lock"):
        embed(collection, HashEncoder(), url, rows_per_chunk=8)
    memory.rm("/bucket/store/.lock")
    embed(collection, HashEncoder(), url, rows_per_chunk=8)
    opened = EmbeddingStore(url)
    np.testing.assert_array_equal(opened.vectors_of(collection), EmbeddingStore(store).vectors_of(collection))
    memory.rm("/bucket/store/vectors.zarr/c.5.0")
    with pytest.raises(StoreError, match="chunk 5 of 13"):
        opened.vectors()
    assert embed(collection, HashEncoder(), url, rows_per_chunk=8).passages == 8
    np.testing.assert_array_equal(EmbeddingStore(url).vectors(), opened.vectors())
    with pytest.raises(InputError, match="nowhere://x"):
        EmbeddingStore("nowhere://x")


def test_pieces_are_embedded(collection: Collection, tmp_path: Path) -> None:
    embed(collection, HashEncoder(), tmp_path / "s", chunking=Chunking(3, 2))
    opened = EmbeddingStore(tmp_path / "s")
    pieces = cut(collection, Chunking(**opened.manifest["input"]["chunking"]))
    assert len(opened) == pieces.n_passages > collection.n_passages
    expected = HashEncoder().encode(pieces.passages.texts.to_pylist())
    np.testing.assert_array_equal(opened.vectors_of(pieces), expected)
    with pytest.raises(InputError, match="passages"):
        opened.vectors_of(collection)


def test_declared_sizes_are_checked_before_memory_is_allocated(store: Path) -> None:
    names = "manifest.json", "vectors.zarr/zarr.json"
    whole, array = (json.loads((store / name).read_text()) for name in names)
    for name, value in [("shard", [1, 10**13]), ("input", 3), ("encoder", None), ("rows_per_chunk", 10**13)]:
        (store / names[0]).write_text(json.dumps(whole | {name: value}))
        with pytest.raises((FileFormatError, StoreError)):
            EmbeddingStore(store)
    for rows, dim in [(10**13, 8), (101, 10**13)]:
        array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"][1] = [rows, dim], dim
        whole["input"]["passages"] = rows
        for name, content in zip(names, (whole, array), strict=True):
            (store / name).write_text(json.dumps(content))
        with pytest.raises((FileFormatError, StoreError)):
            EmbeddingStore(store)


@pytest.mark.filterwarnings("ignore:collection")
def test_a_shard_without_passages_leaves_no_folder(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shard 9 of 9"):
        embed(folder, HashEncoder(), tmp_path / "new", rows_per_chunk=100, shard=(9, 9))
    assert not (tmp_path / "new" / "shard-9-of-9").exists()
