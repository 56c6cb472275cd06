"""The files of a store, in a local folder or at any address fsspec knows.

manifest.json        what the vectors are; written last, so a store that has one is whole
building.json        the same while it is being written
passages.parquet     passage_id, doc_id, text; row group i belongs to chunk i
vectors.zarr/        (rows, width) float32 or float16, chunks of whole rows, each with a checksum
encoder/             the fitted encoder, if it was fitted on these passages
shard-1-of-2/ …      or, in place of all that, one such folder a machine
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from haybale.errors import FileFormatError, InputError
from haybale.extras import require

MANIFEST, BUILDING, PASSAGES, VECTORS, ENCODER, LOCK = (
    "manifest.json",
    "building.json",
    "passages.parquet",
    "vectors.zarr",
    "encoder",
    ".lock",
)


class StoreFiles:
    """One folder of a file system. Files appear under their names when they are whole."""

    def __init__(self, path: str | Path) -> None:
        self.url = str(path)
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

    def exists(self, name: str) -> bool:
        return bool(self.fs.exists(self.at(name)))

    def names(self, folder: str = "") -> list[str]:
        """Sorted names of what lies in a folder of the store; none if there is no such folder."""
        path = f"{self.root}/{folder}".rstrip("/")
        try:
            found = self.fs.ls(path, detail=False, refresh=True) if self.fs.exists(path) else []
        except FileNotFoundError:
            return []
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def make(self) -> None:
        self.fs.makedirs(self.root, exist_ok=True)

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
        try:
            return json.loads(self.fs.cat_file(self.at(name)))
        except FileNotFoundError:
            raise InputError(f"{self}: expected a file {name}") from None
        except ValueError as error:
            raise FileFormatError(self.at(name), None, f"expected JSON: {error}") from None

    @contextmanager
    def local_copy(self, name: str) -> Iterator[Path]:
        """A folder of the store on the local disk."""
        if self.is_local:
            yield Path(self.at(name))
            return
        with tempfile.TemporaryDirectory() as folder:
            self.fs.get(self.at(name), f"{folder}/copy", recursive=True)
            yield Path(folder) / "copy"

    def zarr_store(self) -> Any:
        """What zarr is given for the array."""
        storage = require("zarr.storage")
        if self.is_local:
            return storage.LocalStore(self.at(VECTORS))
        return storage.FsspecStore.from_url(f"{self.url.rstrip('/')}/{VECTORS}")
