"""The store: what is read is what was computed, what is damaged or does not fit is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
from encoders import HashEncoder
from engines import tree

from haybale.collections import Collection, CollectionBuilder, open_collection
from haybale.embeddings import CachedEncoder, Chunking, EmbeddingStore, embed
from haybale.errors import InputError, OutputExistsError, StoreError, UnknownNameError, VectorError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection in GerDaLIR's layout; one document's passages do not stand side by side."""
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
    with pytest.warns(UserWarning, match="1 passages of only whitespace were left out"):
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
    starts, blocks = zip(*opened.blocks(), strict=True)
    assert list(starts) == list(range(0, 101, 8))
    np.testing.assert_array_equal(np.concatenate(blocks), opened.vectors())
    with pytest.raises(InputError, match="rows lie between 0 and 100"):
        opened.rows(np.array([101]))
    manifest = json.loads((store / "manifest.json").read_text())
    assert manifest["encoder"] == HashEncoder().describe()
    assert (manifest["input"]["passages"], len(manifest["input"]["sha256"])) == (101, 64)
    assert manifest["versions"]["numpy"] == np.__version__
    chunks = {f"vectors.zarr/c.{i}.0" for i in range(13)}
    assert set(tree(store)) - chunks == {"manifest.json", "passages.parquet", "vectors.zarr/zarr.json"}


def test_float16_halves_the_store(tmp_path: Path, collection: Collection) -> None:
    embed(collection, HashEncoder(), tmp_path / "half", rows_per_chunk=8, dtype="float16")
    opened = EmbeddingStore(tmp_path / "half")
    expected = HashEncoder().encode(collection.passages.texts.to_pylist())
    np.testing.assert_array_equal(opened.vectors(), expected.astype(np.float16).astype(np.float32))
    assert opened.vectors().dtype == np.float32
    assert (tmp_path / "half" / "vectors.zarr" / "c.0.0").stat().st_size == 8 * 8 * 2 + 4  # and a checksum


def test_a_lost_and_a_damaged_chunk_are_named_and_computed_anew(store: Path, folder: Path) -> None:
    before, encoder = tree(store), HashEncoder()
    done = embed(folder, encoder, store, rows_per_chunk=8)
    assert (done.passages, done.kept, encoder.calls) == (0, 101, 0)  # whole: nothing is
    chunk = store / "vectors.zarr" / "c.3.0"
    for damage in (b"", chunk.read_bytes()[:100], bytes([1]) + chunk.read_bytes()[1:], None):
        chunk.unlink() if damage is None else chunk.write_bytes(damage)
        opened = EmbeddingStore(store)
        assert len(opened.rows(np.array([0, 99]))) == 2  # of other chunks
        with pytest.raises(StoreError, match=r"c\.3\.0: chunk 3 of 13 is damaged .* run the embed command again"):
            opened.vectors()
        encoder = HashEncoder()
        assert embed(folder, encoder, store, rows_per_chunk=8).passages == 8
        assert encoder.calls == 1
        assert tree(store) == before


def test_damaged_and_lost_passages_are_written_anew(store: Path, folder: Path) -> None:
    before, path = tree(store), store / "passages.parquet"
    middle = len(before[path.name]) // 3
    for damage in (b"", before[path.name][:500], before[path.name][:middle] + b"xx" + before[path.name][middle + 2 :]):
        path.write_bytes(damage)
        with pytest.raises(StoreError, match=r"passages\.parquet: damaged .* remove it and run the embed"):
            EmbeddingStore(store).texts()
        path.unlink()
        with pytest.raises(StoreError, match=r"passages\.parquet is missing"):
            EmbeddingStore(store).texts()
        with pytest.warns(UserWarning, match="1 passages of only whitespace"):
            assert embed(folder, HashEncoder(), store, rows_per_chunk=8).passages == 0
        assert tree(store) == before


def test_other_settings_and_other_input_are_refused(store: Path, folder: Path) -> None:
    before = tree(store)
    for encoder, how, message in [
        (HashEncoder("x"), {}, r"begun with encoder salt '', now it is 'x'"),
        (HashEncoder(), {"dtype": "float16"}, "begun with dtype 'float32', now it is 'float16'"),
        (HashEncoder(), {"rows_per_chunk": 9}, "begun with rows_per_chunk 8, now it is 9"),
        (HashEncoder(), {"chunking": Chunking(2)}, "the input has changed since"),
    ]:
        with pytest.raises(StoreError, match=message):
            embed(folder, encoder, store, **{"rows_per_chunk": 8, **how})
    (folder / "collection.tsv").write_text("d0\tone passage\n")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"the input has changed since .*101 passages, now 1 "):
            embed(folder, HashEncoder(), store, rows_per_chunk=8)
        assert tree(store) == before
        (store / "passages.parquet").unlink(missing_ok=True)
        before.pop("passages.parquet", None)  # not written from another input


def test_what_is_no_store(tmp_path: Path, store: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="expected a store of embeddings"):
        EmbeddingStore(tmp_path / "nothing")
    with pytest.raises(OutputExistsError, match=r"holds other files \(collection\.tsv\)"):
        embed(folder, HashEncoder(), folder)
    for content, message in [
        ("{", r"manifest\.json: expected JSON"),
        ("{}", "expected the manifest of a store"),
        ('{"format": "haybale embeddings", "version": 9}', "expected version 1, found 9"),
    ]:
        (store / "manifest.json").write_text(content)
        with pytest.raises(InputError, match=message):
            EmbeddingStore(store)
    os.rename(store / "manifest.json", store / "building.json")
    with pytest.raises(StoreError, match="not finished; run the same embed command again"):
        EmbeddingStore(store)


def test_bad_settings_and_bad_vectors(tmp_path: Path, collection: Collection) -> None:
    class Broken(HashEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            return super().encode(texts) * np.nan

    class Wide(HashEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            return np.tile(super().encode(texts), 2)

    for encoder, how, message in [
        (HashEncoder(), {"dtype": "int8"}, "unknown dtype 'int8'; known: float32, float16"),
        (HashEncoder(), {"shard": (3, 2)}, "i from 1 to n, found 3/2"),
        (HashEncoder(), {"rows_per_chunk": 0}, "rows_per_chunk must be at least 1"),
        (Broken(), {}, r"Broken\.encode: row 0 has NaN"),
        (Wide(), {}, r"Wide\.encode: expected vectors of width 8, found 16"),
    ]:
        with pytest.raises((InputError, UnknownNameError, VectorError), match=message):
            embed(collection, encoder, tmp_path / "s", **how)
    assert embed(collection, HashEncoder(), tmp_path / "s").passages == 101  # nothing wrong was kept


@pytest.mark.parametrize("n", [2, 3, 13])
def test_shards_are_put_together_in_order(n: int, store: Path, collection: Collection, tmp_path: Path) -> None:
    whole, parts = EmbeddingStore(store), tmp_path / "parts"
    builder = CollectionBuilder("laws")  # one document a row keeps the order of the rows
    for passage, text in zip(whole.passage_ids.to_pylist(), whole.texts().to_pylist(), strict=True):
        builder.add_passage(builder.add_document(passage), text, passage)
    stream = builder.build()
    for i in range(n, 0, -1):
        if i == n - 1:
            with pytest.raises(StoreError, match=rf"expected {n} shards, missing"):
                EmbeddingStore(parts)
        embed(stream, HashEncoder(), parts, rows_per_chunk=8, shard=(i, n))
    merged = EmbeddingStore(parts)
    assert merged.passage_ids.to_pylist() == whole.passage_ids.to_pylist()
    assert merged.texts().to_pylist() == whole.texts().to_pylist()
    np.testing.assert_array_equal(merged.vectors(), whole.vectors())
    np.testing.assert_array_equal(merged.rows(np.arange(101)[::-1]), whole.vectors()[::-1])
    np.testing.assert_array_equal(merged.vectors_of(collection), whole.vectors_of(collection))


def test_shards_that_do_not_belong_together(collection: Collection, tmp_path: Path) -> None:
    embed(collection, HashEncoder(), tmp_path / "s", rows_per_chunk=8, shard=(1, 2))
    embed(collection, HashEncoder("x"), tmp_path / "s", rows_per_chunk=8, shard=(2, 2))
    with pytest.raises(StoreError, match="shards 1 and 2 do not belong together: encoder"):
        EmbeddingStore(tmp_path / "s")
    with pytest.raises(OutputExistsError, match=r"holds other files \(shard-1-of-2\)"):
        embed(collection, HashEncoder(), tmp_path / "s")
    embed(collection, HashEncoder(), tmp_path / "whole")
    with pytest.raises(OutputExistsError, match="holds a store without shards"):
        embed(collection, HashEncoder(), tmp_path / "whole", shard=(1, 2))


def test_dask_reads_it_as_it_is(store: Path, collection: Collection, tmp_path: Path) -> None:
    array = pytest.importorskip("dask.array")
    for i in (1, 2):
        embed(collection, HashEncoder(), tmp_path / "s", rows_per_chunk=8, shard=(i, 2))
    for opened in (EmbeddingStore(store), EmbeddingStore(tmp_path / "s")):
        lazy = opened.dask()
        assert lazy.numblocks == (13, 1)
        np.testing.assert_array_equal(lazy.compute(), opened.vectors())
    plain = array.from_zarr(str(store / "vectors.zarr"))  # without haybale
    np.testing.assert_array_equal(plain.compute(), EmbeddingStore(store).vectors())


def test_any_fsspec_address(collection: Collection, store: Path) -> None:
    url, memory = "memory://bucket/store", fsspec.filesystem("memory")
    memory.pipe_file("/bucket/store/.lock", b'{"process": 7, "host": "far"}')
    with pytest.raises(StoreError, match=r"process 7 on far is writing this store; if it no longer runs, remove"):
        embed(collection, HashEncoder(), url, rows_per_chunk=8)
    memory.rm("/bucket/store/.lock")
    embed(collection, HashEncoder(), url, rows_per_chunk=8)
    opened = EmbeddingStore(url)
    np.testing.assert_array_equal(opened.vectors_of(collection), EmbeddingStore(store).vectors_of(collection))
    memory.rm("/bucket/store/vectors.zarr/c.5.0")
    with pytest.raises(StoreError, match="chunk 5 of 13 is damaged"):
        opened.vectors()
    assert embed(collection, HashEncoder(), url, rows_per_chunk=8).passages == 8
    np.testing.assert_array_equal(EmbeddingStore(url).vectors(), opened.vectors())
    with pytest.raises(InputError, match="Protocol not known"):
        EmbeddingStore("nowhere://x")


def test_pieces_are_stored_and_mapped(collection: Collection, tmp_path: Path) -> None:
    embed(collection, HashEncoder(), tmp_path / "s", chunking=Chunking(3, 2))
    opened = EmbeddingStore(tmp_path / "s")
    pieces = opened.cut(collection)
    assert len(opened) == pieces.n_passages > collection.n_passages
    expected = HashEncoder().encode(pieces.passages.texts.to_pylist())
    np.testing.assert_array_equal(opened.vectors_of(pieces), expected)
    with pytest.raises(InputError, match="passages"):
        opened.vectors_of(collection)


def test_cached_encoder(store: Path) -> None:
    opened, encoder = EmbeddingStore(store), HashEncoder()
    cached = CachedEncoder(opened, encoder)
    texts = ["new", *opened.texts().to_pylist()[90:], "passage 0 of the law on dogs", "new too"]
    np.testing.assert_array_equal(cached.encode(texts), HashEncoder().encode(texts))
    assert (cached.found, cached.missed, encoder.calls) == (12, 2, 1)
    np.testing.assert_array_equal(cached.encode_queries(["new"]), HashEncoder().encode(["new"]))
    with pytest.raises(InputError, match="was made with"):
        CachedEncoder(opened, HashEncoder("x"))
    with pytest.raises(InputError, match="text 0 of 1 is empty"):
        cached.encode([" "])


def test_a_store_is_written_the_same_in_every_process(store: Path, folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); from encoders import HashEncoder;"
        "from haybale.embeddings import embed; embed(sys.argv[1], HashEncoder(), sys.argv[2], rows_per_chunk=8)"
    )
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", code, str(folder), str(tmp_path / "again")]
    subprocess.run(command, check=True, cwd=tests, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert tree(tmp_path / "again") == tree(store)
