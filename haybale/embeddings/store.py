"""Vectors on disk, in a local folder or at any address fsspec knows: what such a store holds, and how it is read.

manifest.json        what the vectors are; written last, so a store that has one is whole
building.json        the same while it is being written
passages.parquet     passage_id, doc_id, text; row group i belongs to chunk i; with checksums
vectors.zarr/        (rows, dim) float32 or float16, chunks of whole rows, each with a checksum
digests/0 …          SHA-256 of the store's settings, a chunk's number and its bytes: no other chunk is taken for it
encoder/             the fitted encoder, if it was fitted on these passages
shard-1-of-2/ …      or, in place of all that, one such folder a machine
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from haybale.collections import Collection
from haybale.collections.collection import Ints, Strings
from haybale.device import Device, find_device, to_device
from haybale.embeddings.encoder import Encoder, encode_queries, load_fitted, rebuild
from haybale.embeddings.token_batches import check_texts
from haybale.errors import InputError, StoreError
from haybale.extras import import_optional
from haybale.folders import parsed_json, reading
from haybale.manifest import MANY, check_kinds
from haybale.progress import track
from haybale.vectors import Floats, stored_type

FORMAT, VERSION = "haybale embeddings", 1
MANIFEST, BUILDING = "manifest.json", "building.json"
PASSAGES, VECTORS, DIGESTS, ENCODER = "passages.parquet", "vectors.zarr", "digests", "encoder"

CHUNKING = {"length": MANY, "stride": (MANY, None), "unit": str, "tokenizer": (str, None)}
_INPUT = {"sha256": str, "passages": MANY, "chunking": (CHUNKING, None)}
_KINDS = {"input": _INPUT, "encoder": dict, "dtype": str, "rows_per_chunk": MANY, "shard": [range(1, 2**20)]}
_CHECKSUM = 4  # bytes behind each chunk

T = TypeVar("T")


class StoreFiles:
    """One folder of a file system. Files appear under their names when they are whole."""

    def __init__(self, path: str | Path) -> None:
        self.url = str(path)
        if "\0" in self.url:
            raise InputError(f"{self.url!r} is no path: it holds a NUL")
        try:
            self.fs, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"{self.url}: {error}") from error
        self.root = str(root).rstrip("/")
        self.is_local = isinstance(self.fs, LocalFileSystem)

    def __str__(self) -> str:
        return self.url

    def at(self, name: str) -> str:
        """The full path of a file of the store."""
        return f"{self.root}/{name}"

    def within(self, name: str) -> StoreFiles:
        """A folder of the store."""
        return StoreFiles(f"{self.url.rstrip('/')}/{name}")

    def exists(self, name: str) -> bool:
        return bool(self.fs.exists(self.at(name)))

    def names(self, folder: str = "") -> list[str]:
        """Sorted names of what lies in a folder of the store; none if there is no such folder."""
        try:
            found = self.fs.ls(self.at(folder).rstrip("/"), detail=False, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, name: str) -> None:
        if self.exists(name):
            self.fs.rm(self.at(name), recursive=True)

    @contextmanager
    def whole(self, name: str) -> Iterator[Any]:
        """A binary file to write, which gets its name when it is closed without an error."""
        aside = f"{name}.partial"
        try:
            with self.fs.open(self.at(aside), "wb") as file:
                yield file
        except BaseException:
            self.remove(aside)
            raise
        self.fs.mv(self.at(aside), self.at(name))

    def write_json(self, name: str, value: Any) -> None:
        with self.whole(name) as file:
            file.write((json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode())

    def read_json(self, name: str) -> Any:
        with reading(self.at(name)):
            return parsed_json(self.at(name), self.fs.cat_file(self.at(name)))

    def manifest(self) -> dict[str, Any]:
        """The manifest of a finished store (or shard), checked for kind and version."""
        unfinished = "this store is not finished; run the same embed command again to go on"
        return finished_manifest(self, "embeddings", unfinished, (FORMAT, VERSION), _KINDS)

    def fitted_encoder(self) -> Any:
        """The encoder that the store keeps."""
        if self.is_local:
            return load_fitted(self.at(ENCODER))
        with tempfile.TemporaryDirectory() as folder:
            self.fs.get(self.at(ENCODER), f"{folder}/copy", recursive=True)
            return load_fitted(f"{folder}/copy")

    def zarr(self) -> Any:
        """What zarr is given for the array."""
        storage = import_optional("zarr.storage")
        if self.is_local:
            return storage.LocalStore(self.at(VECTORS))
        return storage.FsspecStore.from_url(f"{self.url.rstrip('/')}/{VECTORS}")


def finished_manifest(
    files: StoreFiles, of: str, unfinished: str, kind: tuple[str, int], kinds: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest of a finished store of something, checked for its kind, which is format and version."""
    if not files.exists(MANIFEST):
        if files.exists(BUILDING):
            raise StoreError(f"{files}: {unfinished}")
        raise InputError(f"{files}: expected a store of {of} (a folder with {MANIFEST})")
    manifest = files.read_json(MANIFEST)
    if not isinstance(manifest, dict) or (manifest.get("format"), manifest.get("version")) != kind:
        raise InputError(f"{files.at(MANIFEST)}: expected the manifest of a store of {of}, version {kind[1]}")
    check_kinds(files.at(MANIFEST), manifest, kinds)
    return manifest


class Chunks:
    """(rows, dim) vectors on disk: chunks of whole rows, each written at once and checked when it is read.

    The fill value is NaN, which no encoder gives: a chunk that is lost reads as missing, not as zeros.
    """

    def __init__(self, files: StoreFiles, settings: dict[str, Any], writable: bool = False) -> None:
        zarr = import_optional("zarr")
        try:
            array = zarr.open_array(files.zarr(), mode="r+" if writable else "r")
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{files.at(VECTORS)}: damaged: {error}") from error
        self.files, self.array = files, array.with_config({"write_empty_chunks": True})
        self.rows, self.dim = array.shape
        self.size: int = array.chunks[0]
        declared, first = (settings["rows_per_chunk"], self.dim), f"{VECTORS}/c.0.0"
        if array.chunks != declared or str(array.dtype) != settings["dtype"]:
            raise StoreError(f"{files.at(VECTORS)}: damaged: chunks of {array.chunks} {array.dtype}, not {declared}")
        size = self.size * self.dim * array.dtype.itemsize + _CHECKSUM
        if files.exists(first) and files.fs.size(files.at(first)) != size:
            raise StoreError(f"{files.at(first)}: damaged: expected {size:,} bytes")
        known = {name: settings.get(name) for name in ("encoder", "dtype", "rows_per_chunk", "shard")}
        known["input"] = settings["input"]["sha256"]
        # None: of a store that an earlier version began, whose chunks have their checksums alone.
        self._whose = json.dumps(known, sort_keys=True).encode() if settings.get("digests") else None

    @classmethod
    def create(cls, files: StoreFiles, settings: dict[str, Any], rows: int, dim: int) -> Chunks:
        zarr, codecs = import_optional("zarr"), import_optional("zarr.codecs")
        zarr.create_array(
            files.zarr(),
            shape=(rows, dim),
            chunks=(settings["rows_per_chunk"], dim),
            dtype=settings["dtype"],
            fill_value=np.nan,
            serializer=codecs.BytesCodec(endian="little"),
            compressors=(codecs.Crc32cCodec(),),  # numbers that look random do not compress
            chunk_key_encoding={"name": "default", "separator": "."},
        )
        return cls(files, settings, writable=True)

    def __len__(self) -> int:
        return -(-int(self.rows) // self.size)

    def rows_of(self, number: int) -> slice:
        """Of one chunk."""
        return slice(number * self.size, min((number + 1) * self.size, self.rows))

    def read(self, number: int) -> Floats:
        """(size, dim) float32 rows of one chunk; one that is lost or whose checksum differs raises."""
        try:
            stored = np.asarray(self.array[self.rows_of(number)])
            rows: Floats = stored.astype(np.float32, copy=False)
            if np.isnan(rows[:, :1]).any():
                raise ValueError("missing")
            if self._whose is not None:
                digest = self.files.fs.cat_file(self.files.at(f"{DIGESTS}/{number}"))
                if digest != self._digest(number, stored):
                    raise ValueError("another chunk, or another store's")
        except (ValueError, RuntimeError, OSError) as error:
            raise StoreError(
                f"{self.files.at(f'{VECTORS}/c.{number}.0')}: chunk {number} of {len(self)} is damaged ({error}); "
                "run the embed command again to compute it anew: nothing else will be"
            ) from error
        return rows

    def write(self, number: int, rows: Floats) -> None:
        """One chunk, and then what it is known by."""
        stored = rows.astype(self.array.dtype, copy=False)
        self.array[self.rows_of(number)] = stored
        if self._whose is not None:
            with self.files.whole(f"{DIGESTS}/{number}") as file:
                file.write(self._digest(number, stored))

    def _digest(self, number: int, stored: Any) -> bytes:
        head = b"%b %d " % (self._whose or b"", number)
        return hashlib.sha256(head + stored.tobytes()).hexdigest().encode()


class PassageFile:
    """``passages.parquet``, open; iterated, the texts, a chunk of them in memory at a time."""

    def __init__(self, files: StoreFiles, file: Any) -> None:
        self._path = files.at(PASSAGES)
        self._parquet = self._checked(lambda: pq.ParquetFile(file, page_checksum_verification=True))

    def __len__(self) -> int:
        return int(self._parquet.metadata.num_rows)

    def __iter__(self) -> Iterator[str]:
        for chunk in range(self._parquet.num_row_groups):
            yield from self.texts(chunk)

    def texts(self, chunk: int) -> list[str]:
        """The passages of one chunk."""
        table = self._checked(lambda: self._parquet.read_row_group(chunk, columns=["text"]))
        return list(table.column("text").to_pylist())

    def column(self, name: str) -> Strings:
        """A whole column."""
        return self._checked(lambda: self._parquet.read(columns=[name])).column(name)

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (pa.ArrowException, OSError) as error:
            raise StoreError(
                f"{self._path}: damaged ({error}); remove it and run the embed command again: it will be written anew"
            ) from error


@contextmanager
def open_passages(files: StoreFiles) -> Iterator[PassageFile]:
    """Open the passages of a store; a file that is not there or not Parquet raises :class:`StoreError`."""
    if not files.exists(PASSAGES):
        raise StoreError(f"{files.at(PASSAGES)} is missing; run the embed command again: it will be written anew")
    with files.fs.open(files.at(PASSAGES), "rb") as file:
        yield PassageFile(files, file)


class EmbeddingStore:
    """The vectors that :func:`~haybale.embeddings.embed` wrote, read from disk when they are asked for.

    Parameters
    ----------
    path : str or Path
        A local folder or fsspec address: a store, or the folder of all its shards, whose rows are put back into the
        order of the input.

    Attributes
    ----------
    manifest, shape, dtype : dict, (n, d), {"float32", "float16"}
        As they are on disk.

    Raises
    ------
    StoreError
        For a store that is not finished, shards that do not belong together, a damaged chunk (when it is read).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        top = StoreFiles(path)
        with reading(path):
            files = [top.within(name) for name in top.names() if name.startswith("shard-")] or [top]
            found = sorted(((each.manifest(), each) for each in files), key=lambda pair: pair[0]["shard"])
        manifests, self._files = [manifest for manifest, _ in found], [each for _, each in found]
        self.manifest: dict[str, Any] = manifests[0]
        _check_shards(top, manifests)
        self._parts = [Chunks(files, manifest) for files, manifest in zip(self._files, manifests, strict=True)]
        self.shape = (sum(part.rows for part in self._parts), self._parts[0].dim)
        self.dtype = str(self.manifest["dtype"])
        if self.shape[0] != self.manifest["input"]["passages"]:
            raise StoreError(f"{self.path}: {self.shape[0]} rows for {self.manifest['input']['passages']} passages")
        for each, part in zip(self._files, self._parts, strict=True):  # before anything is allocated
            with open_passages(each) as passages:
                if len(passages) != part.rows or part.dim != self.dim:
                    raise StoreError(f"{each}: {part.rows} rows of width {part.dim} for {len(passages)} passages")

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"EmbeddingStore {self.path!r}: {self.shape[0]:,} × {self.shape[1]} {self.dtype}"

    @property
    def dim(self) -> int:
        """d, the columns of the vectors."""
        return int(self.shape[1])

    def read(self, number: int) -> Floats:
        """(rows, d) float32, one chunk; the shards have them by turns."""
        return self._parts[number % len(self._parts)].read(number // len(self._parts))

    def vectors(self, dtype: str = "float32", device: str | Device | None = None) -> Any:
        """(n, d) all vectors in float32 or float16, of NumPy or, read there by chunks, on a device of CuPy.

        ``device``: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``; None: the CPU.
        """
        there, stored, start = find_device(device or "cpu"), stored_type(dtype), 0
        with there.current(), np.errstate(over="ignore"):  # what float16 cannot hold is infinite, which indexes refuse
            out = there.xp.empty(self.shape, dtype=stored)
            for number in track(range(count_chunks(self)), "reading vectors"):
                rows = self.read(number).astype(stored, copy=False)
                out[start : start + len(rows)] = to_device(rows, there)
                start += len(rows)
        return out

    def rows(self, numbers: Ints) -> Floats:
        """(len(numbers), d) float32, some rows; only the chunks that hold them are read."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise InputError(f"rows lie between 0 and {len(self) - 1}, found {numbers.min()} and {numbers.max()}")
        out = np.empty((len(numbers), self.dim), dtype=np.float32)
        chunk, within = np.divmod(numbers, rows_per_chunk(self))
        for number in np.unique(chunk).tolist():
            wanted = chunk == number
            out[wanted] = self.read(number)[within[wanted]]
        return out

    def dask(self) -> Any:
        """(n, d) Dask array over the chunks; nothing is read yet. (Extra ``dask``.)"""
        array = import_optional("dask.array", "dask")
        parts = [array.from_zarr(part.array) for part in self._parts]
        return parts[0] if len(parts) == 1 else array.concatenate(list(self._by_turns(parts)))

    def vectors_of(self, collection: Collection) -> Floats:
        """(n_passages, d) float32 in the order of a collection, which must have the store's passages (or pieces)."""
        found: Floats = self.vectors()
        if self.passage_ids.equals(collection.passages.ids):
            return found
        if len(collection.passages) != len(self):
            raise InputError(f"{self.path} has {len(self):,} passages, {collection.name} {len(collection.passages):,}")
        out = np.empty_like(found)
        out[collection.passage_numbers(self.passage_ids)] = found
        return out

    @cached_property
    def passage_ids(self) -> Strings:
        """(n,) in the order of the rows."""
        return self._column("passage_id")

    @cached_property
    def doc_ids(self) -> Strings:
        """(n,) the document of each row's passage."""
        return self._column("doc_id")

    def texts(self) -> Strings:
        """(n,) the passages."""
        return self._column("text")

    def _column(self, name: str) -> Strings:
        columns = []
        for files in self._files:
            with open_passages(files) as passages:
                columns.append(passages.column(name))
        if len(columns) == 1:
            return columns[0]
        chunks = [chunk for part in self._by_turns(columns) for chunk in part.chunks]
        return pa.chunked_array(chunks, type=pa.large_string())

    def _by_turns(self, columns: Sequence[Any]) -> Iterator[Any]:
        """What belongs to each chunk, in order, of what the shards have."""
        size = rows_per_chunk(self)
        for number in range(count_chunks(self)):
            local, shard = divmod(number, len(columns))
            yield columns[shard][local * size : (local + 1) * size]

    def encoder(self) -> Any:
        """The encoder that made the vectors, for queries: kept in the store, or loaded by its name.

        Errors: :class:`StoreError` where the weights that have this name are others now.
        """
        if self._files[0].exists(ENCODER):
            return self._files[0].fitted_encoder()
        encoder = rebuild(self.manifest["encoder"], "the store")
        if as_json(encoder.describe()) != self.manifest["encoder"]:
            raise StoreError(f"{self.path}: the model {self.manifest['encoder'].get('model')!r} is not the one it was")
        return encoder


def _check_shards(top: StoreFiles, manifests: list[dict[str, Any]]) -> None:
    first = manifests[0]
    n, have = len(manifests), [manifest["shard"] for manifest in manifests]
    if have != [[i, n] for i in range(1, n + 1)]:
        expected = " ".join(map(str, first["shard"][1:])) or "numbered"
        raise StoreError(f"{top}: expected {expected} shards, found {[each for shard in have for each in shard[:1]]}")
    for manifest in manifests[1:]:
        for key in ("input", "encoder", "dtype", "rows_per_chunk"):
            # The same input may go by another name on another machine; its hash covers texts, ids and pieces.
            then, now = (m["input"]["sha256"] if key == "input" else m[key] for m in (first, manifest))
            if then != now:
                raise StoreError(
                    f"{top}: shards 1 and {manifest['shard'][0]} do not belong together: {key} {then!r} and {now!r}"
                )


def as_json(value: Any) -> Any:
    """What is left of a value after JSON: tuples become lists."""
    return json.loads(json.dumps(value))


def rows_per_chunk(store: EmbeddingStore) -> int:
    """Rows of every chunk but, perhaps, the last."""
    return int(store._parts[0].size)


def count_chunks(store: EmbeddingStore) -> int:
    """Chunks of the store, over all its shards."""
    return sum(map(len, store._parts))


def read_chunks(store: EmbeddingStore, first: int, last: int) -> Floats:
    """(rows, d) float32 vectors of the chunks ``first`` to ``last``, the latter left out. A damaged one raises."""
    return np.concatenate([store.read(number) for number in range(first, last)])


def address_of(store: EmbeddingStore) -> str:
    """The path of a store as it can be opened from another working directory."""
    return os.path.abspath(store.path) if StoreFiles(store.path).is_local else store.path


def fingerprint_of(store: EmbeddingStore) -> str:
    """SHA-256 of what the store says of itself: its input, encoder and settings."""
    return hashlib.sha256(json.dumps(store.manifest, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=8)
def opened(address: str, fingerprint: str) -> EmbeddingStore:
    """The store at an address, which must be the one that was meant; opened once in a process."""
    try:
        store = EmbeddingStore(address)
    except InputError as error:
        raise StoreError(f"{error} (on {socket.gethostname()}); every worker must reach the store there") from error
    if fingerprint_of(store) != fingerprint:
        raise StoreError(f"{address}: on {socket.gethostname()} this is another store")
    return store


class CachedEncoder:
    """Vectors of texts that are in the store from there, of others, and of queries, by ``encoder``.

    ``encode`` gives what the encoder would have given (rounded as the store is, for float16). Texts are compared by
    128 bits of their hash; the vectors stay on disk but for the chunks that are read.

    Parameters
    ----------
    store : EmbeddingStore
    encoder : Encoder, optional
        The one that the store was made with (:class:`InputError` for another); None: as the store has or loads it.
    """

    def __init__(self, store: EmbeddingStore, encoder: Any = None) -> None:
        self.store = store
        self.encoder: Encoder = store.encoder() if encoder is None else encoder
        if encoder is not None and as_json(encoder.describe()) != self.describe():
            raise InputError(f"{store.path} was made with {self.describe()}, found {encoder.describe()}")

    @property
    def dim(self) -> int:
        """d, the columns of the vectors."""
        return self.store.dim

    def describe(self) -> dict[str, Any]:
        """What the encoder says of itself."""
        return dict(self.store.manifest["encoder"])

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        return {_digest(text.as_py()): row for row, text in enumerate(self.store.texts())}

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32."""
        rows = np.array([self._rows.get(_digest(text), -1) for text in check_texts(texts)], dtype=np.int64)
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        out[rows >= 0] = self.store.rows(rows[rows >= 0])
        others = np.flatnonzero(rows < 0)
        if len(others):
            out[others] = self.encoder.encode([texts[int(i)] for i in others])
        return out

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """(n,) queries to (n, d) float32, by the encoder."""
        return np.asarray(encode_queries(self.encoder, texts))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
