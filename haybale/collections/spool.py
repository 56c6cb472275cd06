"""Passages of a collection too large for memory: streamed from its files to one Parquet file, and hashed on the way."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.builder import At, CollectionBuilder, Column
from haybale.collections.collection import Collection
from haybale.collections.open import find_layout, ir_datasets_id
from haybale.collections.readers.ir_datasets import add_ir_datasets_documents
from haybale.collections.readers.pydocs import read_pydocs
from haybale.errors import InputError

SCHEMA = pa.schema([(name, pa.large_string()) for name in ("passage_id", "doc_id", "text")])
Split = Callable[[str], list[tuple[int, int]]]  # a passage to the spans of its pieces


class Spooled(NamedTuple):
    """``rows`` were written, of ``passages`` in all; ``sha256`` is of all of them, ids and texts, in order."""

    passages: int
    rows: int
    documents: int
    empty: int
    sha256: str


class PassageSpool(CollectionBuilder):
    """A builder that keeps ids alone, since they must not repeat: rows of (passage id, document id, text) go to a file.

    A row group has ``rows_per_group`` rows; of the groups numbered from 0, those with ``number % n == i`` are
    written for ``shard = (i, n)``, and all are hashed. Without a ``file`` nothing is written. ``split`` cuts a
    passage into pieces, whose ids are ``<passage id>#<number>``.
    """

    def __init__(
        self, file: BinaryIO | None, rows_per_group: int, shard: tuple[int, int] = (0, 1), split: Split | None = None
    ) -> None:
        super().__init__("spool")
        self._writer = None
        if file is not None:
            self._writer = pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True)
        self._size, self._shard, self._cut = rows_per_group, shard, split
        self._rows: list[tuple[str, str, str]] = []
        self._n_seen = self._n_written = 0
        self._hash = hashlib.sha256()

    def add_document(self, doc_id: str, passages: Iterable[str] = (), title: str = "", at: At = None) -> int:
        return super().add_document(doc_id, passages, at=at)  # without its title

    def add_passages(
        self, doc_ids: Column, texts: Column, passage_ids: Column | None = None, first_row: int = 0
    ) -> None:
        given = [None] * len(texts) if passage_ids is None else passage_ids
        columns = (column.to_pylist() if isinstance(column, pa.Array) else column for column in (doc_ids, texts, given))
        for row, (doc_id, text, passage_id) in enumerate(zip(*columns, strict=True), first_row):
            try:
                self.add_passage(self._number(doc_id), text, passage_id)
            except InputError as error:
                raise InputError(f"row {row}: {error}") from None

    def add_section(self, document: int, section_id: str, title: str, parent: str | None, at: At = None) -> int:
        return 0  # passages are all that is kept

    def add_internal_link(self, passage_id: str, section_id: str, at: At = None) -> None: ...

    def add_external_link(self, source_id: str, doc_id: str, at: At = None) -> None: ...

    def _keep(self, document: int, passage_id: str, text: str, section: int) -> None:
        self.add_row(passage_id, self._doc_ids[document], text)

    def add_row(self, passage_id: str, doc_id: str, text: str) -> None:
        """One passage, or its pieces."""
        if self._cut is None:
            self._add(passage_id, doc_id, text)
            return
        for number, (start, end) in enumerate(self._cut(text)):
            self._add(piece_id(passage_id, number), doc_id, text[start:end])

    def _add(self, *row: str) -> None:
        for value in row:
            data = value.encode()
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)
        if self._writer is not None and (self._n_seen // self._size) % self._shard[1] == self._shard[0]:
            self._rows.append(row)  # type: ignore[arg-type]
        self._n_seen += 1
        if self._n_seen % self._size == 0:
            self._flush()

    def _flush(self) -> None:
        if self._rows and self._writer is not None:
            columns = [pa.array(column, type=pa.large_string()) for column in zip(*self._rows, strict=True)]
            self._writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=self._size)
            self._n_written += len(self._rows)
            self._rows = []

    def close(self) -> Spooled:
        """Write what is left. A collection without a passage is refused."""
        self._flush()
        self.abandon()
        if not self._n_seen:
            raise InputError("the collection is empty: no document has a passage")
        return Spooled(self._n_seen, self._n_written, len(self._doc_ids), self.n_blank, self._hash.hexdigest())

    def abandon(self) -> None:
        """End the file as it is, while it is open: the writer would do so later, and fail."""
        if self._writer is not None:
            self._writer.close()


def spool(source: str | Path | Collection, sink: PassageSpool, layout: str | None = None) -> Spooled:
    """Read all passages of a collection into a :class:`PassageSpool`.

    A folder, or a dataset of ir_datasets, is not held in memory.
    """
    try:
        _read(source, sink, layout)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


def first_passages(source: str | Path | Collection, n: int, layout: str | None = None) -> list[str]:
    """The texts of the first n passages of a collection, read no further than that."""
    texts: list[str] = []

    def keep(text: str) -> list[tuple[int, int]]:
        texts.append(text)
        if len(texts) == n:
            raise _Enough
        return []

    with contextlib.suppress(_Enough):
        _read(source, PassageSpool(None, 1, split=keep), layout)
    return texts


class _Enough(Exception):
    """As many passages as were wanted have been read."""


def _read(source: str | Path | Collection, sink: PassageSpool, layout: str | None) -> None:
    if source == "pydocs":
        source = read_pydocs()
    if isinstance(source, Collection):
        for doc_id in (doc_ids := source.doc_ids.to_pylist()):
            sink.add_document(doc_id)
        passages = source.passages
        for number, document in enumerate(passages.doc_of):
            sink.add_row(passages.ids[number].as_py(), doc_ids[document], passages.texts[number].as_py())
    elif (dataset_id := ir_datasets_id(source)) is not None:
        add_ir_datasets_documents(sink, dataset_id)
    else:
        find_layout(Path(source), layout).add_documents(sink, Path(source))


def piece_id(passage_id: str, number: int) -> str:
    """The id of a piece of a passage, counted from 0.

    >>> piece_id("bgb:12", 0)
    'bgb:12#0'
    """
    return f"{passage_id}#{number}"
