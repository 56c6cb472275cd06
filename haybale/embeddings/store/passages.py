"""The passages of a store: one Parquet file, a row group a chunk, with checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.collection import Strings
from haybale.embeddings.store.files import PASSAGES, StoreFiles
from haybale.errors import StoreError

T = TypeVar("T")


class PassageFile:
    """``passages.parquet``, open; texts are read a chunk at a time."""

    def __init__(self, files: StoreFiles, file: Any) -> None:
        self._path = files.at(PASSAGES)
        self._parquet = self._checked(lambda: pq.ParquetFile(file, page_checksum_verification=True))

    def __len__(self) -> int:
        return int(self._parquet.metadata.num_rows)

    def texts(self, chunk: int) -> list[str]:
        """The passages of one chunk."""
        table = self._checked(lambda: self._parquet.read_row_group(chunk, columns=["text"]))
        return list(table.column("text").to_pylist())

    def all_texts(self) -> Iterator[str]:
        for chunk in range(self._parquet.num_row_groups):
            yield from self.texts(chunk)

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
