"""The array of a store: chunks of whole rows, each written at once and checked when it is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.embeddings.store.files import VECTORS, StoreFiles
from haybale.errors import StoreError
from haybale.extras import require
from haybale.vectors import Floats


class Chunks:
    """(rows, width) vectors on disk, by chunk.

    The fill value is NaN, which no encoder gives: a chunk that is lost reads as missing, not as zeros.
    """

    def __init__(self, files: StoreFiles, array: Any) -> None:
        self.files, self.array = files, array
        self.rows, self.width = array.shape
        self.size: int = array.chunks[0]

    @classmethod
    def create(cls, files: StoreFiles, rows: int, width: int, size: int, dtype: str) -> Chunks:
        zarr, codecs = require("zarr"), require("zarr.codecs")
        array = zarr.create_array(
            files.zarr_store(),
            shape=(rows, width),
            chunks=(size, width),
            dtype=dtype,
            fill_value=np.nan,
            serializer=codecs.BytesCodec(endian="little"),
            compressors=(codecs.Crc32cCodec(),),  # numbers that look random do not compress
            chunk_key_encoding={"name": "default", "separator": "."},
            config={"write_empty_chunks": True},
        )
        return cls(files, array)

    @classmethod
    def open(cls, files: StoreFiles, writable: bool = False) -> Chunks:
        zarr = require("zarr")
        try:
            array = zarr.open_array(files.zarr_store(), mode="r+" if writable else "r")
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{files.at(VECTORS)}: damaged: {error}") from error
        return cls(files, array.with_config({"write_empty_chunks": True}))

    def __len__(self) -> int:
        return -(-int(self.rows) // self.size)

    def path(self, number: int) -> str:
        """The file of a chunk."""
        return self.files.at(f"{VECTORS}/c.{number}.0")

    def bounds(self, number: int) -> tuple[int, int]:
        """First row of a chunk, and the one after its last."""
        return number * self.size, min((number + 1) * self.size, self.rows)

    def present(self) -> set[int]:
        """Chunks that have a file."""
        names = self.files.names(VECTORS)
        return {int(name.split(".")[1]) for name in names if name.startswith("c.") and name.endswith(".0")}

    def read(self, number: int) -> Floats:
        """(size, width) float32 rows of one chunk; one that is lost or whose checksum differs raises."""
        start, end = self.bounds(number)
        try:
            rows: Floats = np.asarray(self.array[start:end], dtype=np.float32)
        except (ValueError, RuntimeError, OSError) as error:
            raise self._damaged(number, str(error)) from error
        if np.isnan(rows[:, :1]).any():
            raise self._damaged(number, "missing")
        return rows

    def write(self, number: int, rows: Floats) -> None:
        start, end = self.bounds(number)
        self.array[start:end] = rows

    def is_whole(self, number: int) -> bool:
        try:
            self.read(number)
        except StoreError:
            return False
        return True

    def remove_unfinished(self) -> None:
        """What a killed writer left aside."""
        for name in self.files.names(VECTORS):
            if name.endswith(".partial"):
                self.files.remove(f"{VECTORS}/{name}")

    def _damaged(self, number: int, why: str) -> StoreError:
        return StoreError(
            f"{self.path(number)}: chunk {number} of {len(self)} is damaged ({why}); "
            "run the embed command again to compute it anew: nothing else will be"
        )
