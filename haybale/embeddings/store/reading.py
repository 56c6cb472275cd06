"""Reading a store: whole, block by block, or by Dask; one folder or the shards of several machines."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.collections import Collection
from haybale.collections.collection import Ints, Strings
from haybale.device import Device, find_device, to_device
from haybale.embeddings.chunking import Chunking, cut
from haybale.embeddings.find import load_fitted, rebuild
from haybale.embeddings.store.chunks import Chunks
from haybale.embeddings.store.files import ENCODER, StoreFiles
from haybale.embeddings.store.manifest import as_json, read_manifest
from haybale.embeddings.store.passages import open_passages
from haybale.errors import InputError, StoreError
from haybale.extras import require
from haybale.progress import track
from haybale.vectors import Floats, stored_type


class EmbeddingStore:
    """The vectors that :func:`~haybale.embeddings.embed` wrote, with the ids and texts of their passages.

    ``path`` is a local folder or fsspec address: a store, or the folder of all its shards, whose rows are put back
    into the order of the input. Rows are read from disk when they are asked for.

    Attributes: ``manifest`` (dict); ``shape`` (n, d); ``dtype``, ``"float32"`` or ``"float16"``, on disk.

    Errors: :class:`StoreError` for a store that is not finished, shards that are missing or do not belong together,
    a damaged chunk (when it is read); :class:`InputError` for a folder that is no store.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        top = StoreFiles(path)
        shards = [name for name in top.names() if name.startswith("shard-")]
        self._files = [StoreFiles(f"{self.path.rstrip('/')}/{name}") for name in shards] or [top]
        manifests = [read_manifest(files) for files in self._files]
        _check_shards(top, manifests)
        order = np.argsort([manifest["shard"][0] for manifest in manifests])
        self._files = [self._files[i] for i in order]
        self.manifest: dict[str, Any] = manifests[order[0]]
        self._parts = [Chunks.open(files) for files in self._files]
        self.shape = (sum(part.rows for part in self._parts), self._parts[0].width)
        self.dtype = str(self.manifest["dtype"])
        if self.shape[0] != self.manifest["input"]["passages"]:
            raise StoreError(f"{self.path}: {self.shape[0]} rows for {self.manifest['input']['passages']} passages")

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"EmbeddingStore {self.path!r}: {self.shape[0]:,} × {self.shape[1]} {self.dtype}"

    @property
    def width(self) -> int:
        return int(self.shape[1])

    # vectors ------------------------------------------------------------------------------------------

    def vectors(self, dtype: str = "float32", device: str | Device = "cpu") -> Any:
        """(n, d) all of them, float32 or float16, as a NumPy array or, on a CUDA device, a CuPy array.

        They are read and converted chunk by chunk: those of a device are never whole on the host.
        """
        there, stored = find_device(device), stored_type(dtype)
        with there.current(), np.errstate(over="ignore"):  # what float16 cannot hold is infinite, which indexes refuse
            out = there.xp.empty(self.shape, dtype=stored)
            for start, rows in track(self.blocks(), "reading vectors", self._n_chunks):
                out[start : start + len(rows)] = to_device(rows.astype(stored, copy=False), there)
        return out

    def blocks(self, library: str = "numpy") -> Iterator[tuple[int, Any]]:
        """Yield ``(first row, (rows, d) float32)`` a chunk at a time, as NumPy or (``"cupy"``) CuPy arrays."""
        if library not in ("numpy", "cupy"):
            raise InputError(f"blocks are 'numpy' or 'cupy' arrays, found {library!r}")
        xp = importlib.import_module("numpy") if library == "numpy" else require("cupy", "gpu")
        start = 0
        for number in range(self._n_chunks):
            rows = self._parts[number % len(self._parts)].read(number // len(self._parts))
            yield start, xp.asarray(rows)
            start += len(rows)

    def rows(self, numbers: Ints) -> Floats:
        """(len(numbers), d) float32, some rows; only the chunks that hold them are read."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise InputError(f"rows lie between 0 and {len(self) - 1}, found {numbers.min()} and {numbers.max()}")
        out = np.empty((len(numbers), self.width), dtype=np.float32)
        chunk, within = np.divmod(numbers, self._parts[0].size)
        for number in np.unique(chunk):
            wanted = chunk == number
            out[wanted] = self._parts[number % len(self._parts)].read(int(number) // len(self._parts))[within[wanted]]
        return out

    def dask(self) -> Any:
        """(n, d) Dask array over the chunks; nothing is read yet. (Extra ``dask``.)"""
        array = require("dask.array", "dask")
        parts = [array.from_zarr(part.array) for part in self._parts]
        if len(parts) == 1:
            return parts[0]
        size = self._parts[0].size
        places = [divmod(number, len(parts)) for number in range(self._n_chunks)]
        return array.concatenate([parts[shard][local * size : (local + 1) * size] for local, shard in places])

    def vectors_of(self, collection: Collection) -> Floats:
        """(n_passages, d) float32 in the order of a collection, which must have the store's passages.

        A store of pieces fits the collection cut the same way: :meth:`cut`.
        """
        if self.passage_ids.equals(collection.passages.ids):
            found: Floats = self.vectors()
            return found
        if len(collection.passages) != len(self):
            raise InputError(f"{self.path} has {len(self):,} passages, {collection.name} {len(collection.passages):,}")
        place = collection.passage_numbers(self.passage_ids)
        out = np.empty(self.shape, dtype=np.float32)
        for start, rows in track(self.blocks(), "reading vectors", self._n_chunks):
            out[place[start : start + len(rows)]] = rows
        return out

    def cut(self, collection: Collection) -> Collection:
        """The collection cut into pieces as the store's passages were; itself, if they were not."""
        chunking = self.manifest["input"]["chunking"]
        return collection if chunking is None else cut(collection, Chunking(**chunking)).collection

    # passages -----------------------------------------------------------------------------------------

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
        size, chunks = self._parts[0].size, []
        for number in range(self._n_chunks):
            local, shard = divmod(number, len(columns))
            chunks += columns[shard].slice(local * size, size).chunks
        return pa.chunked_array(chunks, type=pa.large_string())

    # the encoder --------------------------------------------------------------------------------------

    def encoder(self, **settings: Any) -> Any:
        """The encoder that made the vectors, for queries: kept in the store, or loaded by the name it had.

        ``settings``, such as ``device``, are passed on to one that is loaded by name. Errors: weights that are not
        those the vectors were made with.
        """
        for files in self._files:
            if files.exists(ENCODER):
                with files.local_copy(ENCODER) as folder:
                    return load_fitted(folder)
        encoder = rebuild(self.manifest["encoder"], **settings)
        if as_json(encoder.describe()) != self.manifest["encoder"]:
            raise StoreError(f"{self.path}: the model {self.manifest['encoder'].get('model')!r} is not the one it was")
        return encoder

    @cached_property
    def _n_chunks(self) -> int:
        return sum(len(part) for part in self._parts)


def _check_shards(top: StoreFiles, manifests: list[dict[str, Any]]) -> None:
    first = manifests[0]
    n = first["shard"][1]
    have = sorted(manifest["shard"][0] for manifest in manifests)
    if have != list(range(1, n + 1)):
        missing = sorted(set(range(1, n + 1)) - set(have))
        raise StoreError(f"{top}: expected {n} shards, missing {', '.join(map(str, missing)) or 'none'}, found {have}")
    for key in ("input", "encoder", "dtype", "rows_per_chunk"):
        for manifest in manifests[1:]:
            # The same input may go by another name on another machine; its hash covers texts, ids and pieces.
            then, now = (m["input"]["sha256"] if key == "input" else m[key] for m in (first, manifest))
            if then != now:
                raise StoreError(
                    f"{top}: shards {first['shard'][0]} and {manifest['shard'][0]} do not belong together: "
                    f"{key} {then!r} and {now!r}"
                )
