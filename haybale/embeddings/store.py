"""A resumable embedding store, in a local folder or at any fsspec address.

manifest.json, building.json, digests/, shard-1-of-2/ …    see :mod:`~haybale.embeddings.resumable_store`
passages.parquet     passage_id, doc_id, text; row group i belongs to chunk i; with checksums
vectors.zarr/        (rows, d) float32 or float16, in chunks of whole rows, each with a checksum
encoder/             the fitted encoder, if it was fitted on these passages
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import Ints, Strings
from haybale.device import Device, find_device, to_device
from haybale.embeddings.encoder import description_of, load_fitted, rebuild
from haybale.embeddings.resumable_store import Chunks, Settings, check_same
from haybale.embeddings.store_files import MANIFEST, StoreFiles, as_json
from haybale.errors import InputError, StoreError
from haybale.extras import import_optional
from haybale.manifest import MANY
from haybale.progress import track
from haybale.vectors import Floats, stored_type

PASSAGES, VECTORS, ENCODER = "passages.parquet", "vectors.zarr", "encoder"
CHUNKING = {"length": MANY, "stride": (MANY, None), "unit": str, "tokenizer": (str, None)}
_CHECKSUM_BYTES = 4  # after each chunk

T = TypeVar("T")


class VectorChunks(Chunks[Floats]):
    """(rows, d) vectors in a Zarr array whose chunks hold whole rows.

    The fill value is NaN, which no encoder returns, so a lost chunk cannot be taken for zeros.
    """

    content, command, folder = "embeddings", "embed", VECTORS
    entries: ClassVar = {
        "input": {"sha256": str, "passages": MANY, "chunking": (CHUNKING, None)},
        "encoder": dict,
        "dtype": str,
        "rows_per_chunk": MANY,
        "digests": bool,
    }

    def __init__(self, files: StoreFiles, settings: Settings, writable: bool = False) -> None:
        super().__init__(files, settings)
        zarr = import_optional("zarr")
        try:
            array = zarr.open_array(_zarr_store(files), mode="r+" if writable else "r")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # zarr.json is damaged
            raise StoreError(
                f"{files.at(VECTORS)}: the Zarr array cannot be opened ({error}); remove the store and embed again"
            ) from error
        self.array = array.with_config({"write_empty_chunks": True})
        self.rows, self.dim = array.shape
        self.size: int = array.chunks[0]
        declared, actual = (settings["rows_per_chunk"], self.dim, settings["dtype"]), (*array.chunks, str(array.dtype))
        if actual != declared:
            raise StoreError(f"{files.at(VECTORS)}: expected chunks {declared}, as in {MANIFEST}, found {actual}")
        first, expected = f"{VECTORS}/{self.name_of(0)}", self.size * self.dim * array.dtype.itemsize + _CHECKSUM_BYTES
        if files.exists(first) and (size := files.fs.size(files.at(first))) != expected:
            raise StoreError(
                f"{files.at(first)}: expected {expected:,} bytes, found {size:,}; remove it and embed again"
            )

    @staticmethod
    def shared(settings: Settings) -> Settings:
        """Return the settings that all shards share: the input's digest, since its name may differ by machine."""
        names = ("encoder", "dtype", "rows_per_chunk")
        return {"input": settings["input"]["sha256"], **{name: settings.get(name) for name in names}}

    @classmethod
    def create(cls, files: StoreFiles, settings: Settings, rows: int, dim: int) -> VectorChunks:
        """Create the array, or open the one that an earlier call created."""
        if not files.exists(f"{VECTORS}/zarr.json"):
            files.remove(VECTORS)
            zarr, codecs = import_optional("zarr"), import_optional("zarr.codecs")
            zarr.create_array(
                _zarr_store(files),
                shape=(rows, dim),
                chunks=(settings["rows_per_chunk"], dim),
                dtype=settings["dtype"],
                fill_value=np.nan,
                serializer=codecs.BytesCodec(endian="little"),
                compressors=(codecs.Crc32cCodec(),),  # embeddings hardly compress
                chunk_key_encoding={"name": "default", "separator": "."},
            )
        return cls(files, settings, writable=True)

    def __len__(self) -> int:
        return -(-int(self.rows) // self.size)

    @property
    def sizes(self) -> list[int]:
        """The rows of each chunk."""
        return [min(self.size, self.rows - start) for start in range(0, self.rows, self.size)]

    def name_of(self, number: int) -> str:
        return f"c.{number}.0"

    def load(self, number: int) -> tuple[Floats, bytes]:
        stored = np.asarray(self.array[self._rows_of(number)])
        if np.isnan(stored[:, :1]).any():
            raise FileNotFoundError("it is missing")
        return stored.astype(np.float32, copy=False), stored.tobytes()

    def save(self, number: int, chunk: Floats) -> bytes:
        self.array[self._rows_of(number)] = chunk
        return chunk.tobytes()

    def signature(self) -> bytes:
        shared = self.shared(self.settings) | {"shard": self.settings.get("shard")}
        return json.dumps(shared, sort_keys=True).encode()

    def _rows_of(self, number: int) -> slice:
        return slice(number * self.size, min((number + 1) * self.size, self.rows))


def _zarr_store(files: StoreFiles) -> Any:
    storage = import_optional("zarr.storage")
    if files.is_local:
        return storage.LocalStore(files.at(VECTORS))
    return storage.FsspecStore.from_url(f"{files.url.rstrip('/')}/{VECTORS}")


class PassageFile:
    """An open ``passages.parquet``. Iterating yields the texts and keeps one chunk of them in memory."""

    def __init__(self, files: StoreFiles, file: Any) -> None:
        self._path = files.at(PASSAGES)
        self._parquet = self._checked(lambda: pq.ParquetFile(file, page_checksum_verification=True))

    def __len__(self) -> int:
        return int(self._parquet.metadata.num_rows)

    def __iter__(self) -> Iterator[str]:
        for chunk in range(self._parquet.num_row_groups):
            yield from self.texts(chunk)

    def texts(self, chunk: int) -> list[str]:
        """Return the texts of one chunk."""
        table = self._checked(lambda: self._parquet.read_row_group(chunk, columns=["text"]))
        return list(table.column("text").to_pylist())

    def column(self, name: str) -> Strings:
        """Return a whole column."""
        return self._checked(lambda: self._parquet.read(columns=[name])).column(name)

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (pa.ArrowException, OSError) as error:
            raise StoreError(
                f"{self._path} cannot be read ({error}); remove the file and run the embed command again"
            ) from error


@contextmanager
def open_passages(files: StoreFiles) -> Iterator[PassageFile]:
    """Open the passages of a store; raise :class:`StoreError` if the file is missing or not Parquet."""
    if not files.is_file(PASSAGES):
        raise StoreError(f"{files.at(PASSAGES)} is missing; run the embed command again")
    with files.fs.open(files.at(PASSAGES), "rb") as file:
        yield PassageFile(files, file)


class EmbeddingStore:
    """The vectors that :func:`~haybale.embeddings.embed` wrote. They are read from disk on demand.

    Parameters
    ----------
    path : str or Path
        A local folder or an fsspec address that holds a store, or all shards of a store. Rows are in the order of the
        input, with or without shards.

    Attributes
    ----------
    manifest : dict
        The contents of ``manifest.json``.
    shape : (n, d)
    dtype : {"float32", "float16"}
        The type on disk.

    Raises
    ------
    InputError
        The path holds no store.
    StoreError
        The store is not finished, or its shards do not belong together. A damaged chunk raises it when it is read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._parts = VectorChunks.open(path)
        self.manifest: Settings = self._parts[0].settings
        self.shape = (sum(part.rows for part in self._parts), self._parts[0].dim)
        self.dtype = str(self.manifest["dtype"])
        expected = self.manifest["input"]["passages"]
        if self.shape[0] != expected:
            raise StoreError(f"{self.path}: expected {expected} rows, one for each passage, found {self.shape[0]}")
        for part in self._parts:  # checked before arrays of these sizes are allocated
            with open_passages(part.files) as passages:
                declared, actual = (len(passages), self.dim), (part.rows, part.dim)
                if actual != declared:
                    raise StoreError(f"{part.files}: expected vectors of shape {declared}, found {actual}")

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"EmbeddingStore {self.path!r}: {self.shape[0]:,} × {self.shape[1]} {self.dtype}"

    @property
    def dim(self) -> int:
        """The width d of the vectors."""
        return int(self.shape[1])

    def read(self, number: int) -> Floats:
        """Return one chunk, (rows, d) float32. Chunk i is in shard i modulo the number of shards."""
        return self._parts[number % len(self._parts)].read(number // len(self._parts))

    def vectors(self, dtype: str = "float32", device: str | Device | None = None) -> Any:
        """Return all vectors, (n, d) in float32 or float16.

        ``device`` is ``"cpu"`` (the default), ``"cuda"``, ``"cuda:1"`` or ``"auto"``. On a GPU, a CuPy array is filled
        chunk by chunk.
        """
        target, stored, start = find_device(device or "cpu"), stored_type(dtype), 0
        with target.current(), np.errstate(over="ignore"):  # overflow of float16 gives infinity, which indexes reject
            out = target.xp.empty(self.shape, dtype=stored)
            for number in track(range(count_chunks(self)), "reading vectors"):
                rows = self.read(number).astype(stored, copy=False)
                out[start : start + len(rows)] = to_device(rows, target)
                start += len(rows)
        return out

    def rows(self, numbers: Ints) -> Floats:
        """Return some rows, (len(numbers), d) float32. Only the chunks that contain them are read."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            extremes = f"{numbers.min()} to {numbers.max()}"
            raise InputError(f"row numbers must be between 0 and {len(self) - 1}, found {extremes}")
        out = np.empty((len(numbers), self.dim), dtype=np.float32)
        chunk, within = np.divmod(numbers, rows_per_chunk(self))
        for number in np.unique(chunk).tolist():
            wanted = chunk == number
            out[wanted] = self.read(number)[within[wanted]]
        return out

    def dask(self) -> Any:
        """Return a lazy (n, d) Dask array over the chunks (extra ``dask``)."""
        array = import_optional("dask.array", "dask")
        parts = [array.from_zarr(part.array) for part in self._parts]
        return parts[0] if len(parts) == 1 else array.concatenate(list(self._chunks_in_order(parts)))

    def vectors_of(self, collection: Collection) -> Floats:
        """Return (n_passages, d) float32 in the order of a collection's passages (or pieces).

        Raise :class:`InputError` if the passages of the collection are not those of the store.
        """
        vectors: Floats = self.vectors()
        if self.passage_ids.equals(collection.passages.ids):
            return vectors
        if len(collection.passages) != len(self):
            n = len(collection.passages)
            raise InputError(f"{collection.name}: expected the {len(self):,} passages of {self.path}, found {n:,}")
        out = np.empty_like(vectors)
        out[collection.passage_numbers(self.passage_ids)] = vectors
        return out

    @cached_property
    def passage_ids(self) -> Strings:
        """The passage id of each row, (n,)."""
        return self._column("passage_id")

    @cached_property
    def doc_ids(self) -> Strings:
        """The document id of each row, (n,)."""
        return self._column("doc_id")

    def texts(self) -> Strings:
        """Return the text of each row, (n,)."""
        return self._column("text")

    def _column(self, name: str) -> Strings:
        columns = []
        for part in self._parts:
            with open_passages(part.files) as passages:
                columns.append(passages.column(name))
        if len(columns) == 1:
            return columns[0]
        chunks = [chunk for part in self._chunks_in_order(columns) for chunk in part.chunks]
        return pa.chunked_array(chunks, type=pa.large_string())

    def _chunks_in_order(self, columns: Sequence[Any]) -> Iterator[Any]:
        """Yield the chunks of an array or column in the order of the input; ``columns`` has one of each shard."""
        size = rows_per_chunk(self)
        for number in range(count_chunks(self)):
            local, shard = divmod(number, len(columns))
            yield columns[shard][local * size : (local + 1) * size]

    def encoder(self) -> Any:
        """Return the encoder that made the vectors; raise :class:`StoreError` if its model has changed since."""
        files = self._parts[0].files
        if files.exists(ENCODER):
            return load_encoder(files)
        encoder = rebuild(self.manifest["encoder"], "the store")
        if as_json(description_of(encoder)) != self.manifest["encoder"]:
            model = self.manifest["encoder"].get("model")
            raise StoreError(f"{self.path}: the model {model!r} is not the one that made the vectors; embed again")
        return encoder


def load_encoder(files: StoreFiles) -> Any:
    """Load the encoder that was saved in a store."""
    if files.is_local:
        return load_fitted(files.at(ENCODER))
    with tempfile.TemporaryDirectory() as folder:
        files.fs.get(files.at(ENCODER), f"{folder}/copy", recursive=True)
        return load_fitted(f"{folder}/copy")


def load_same_encoder(encoder: Any, files: StoreFiles) -> Any:
    """Load the encoder that was saved in a store; raise :class:`StoreError` unless class and parameters are equal."""
    saved = load_encoder(files)
    then, now = ({"class": type(compared).__name__, **compared.get_params()} for compared in (saved, encoder))
    check_same(files, then, now, "the encoder")
    return saved


def save_encoder(encoder: Any, files: StoreFiles) -> None:
    """Save a fitted encoder in a store, and write its manifest last."""
    for name in files.names():
        if name == ENCODER or name.startswith(f".{ENCODER}."):  # left by a killed writer
            files.remove(name)
    if files.is_local:
        encoder.save(Path(files.at(ENCODER)))
        return
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder, ENCODER))
        for path in sorted(Path(folder, ENCODER).iterdir(), key=lambda path: path.name == MANIFEST):
            files.fs.put_file(str(path), files.at(f"{ENCODER}/{path.name}"))


def check_storable(encoder: Any) -> None:
    """Raise :class:`InputError` for an encoder whose vectors are sparse."""
    if getattr(encoder, "is_sparse", False):
        name = type(encoder).__name__
        raise InputError(f"{name} makes sparse vectors, but a store needs dense ones; save the encoder instead")


def rows_per_chunk(store: EmbeddingStore) -> int:
    """Return the number of rows in a chunk; the last chunk may have fewer."""
    return int(store._parts[0].size)


def count_chunks(store: EmbeddingStore) -> int:
    """Return the number of chunks in all shards."""
    return sum(map(len, store._parts))


def fingerprint_of(store: EmbeddingStore) -> str:
    """Return the SHA-256 of the manifest, which contains the input, the encoder and the settings."""
    return hashlib.sha256(json.dumps(store.manifest, sort_keys=True).encode()).hexdigest()
