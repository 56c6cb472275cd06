"""Passages of a collection too large for memory: streamed from its files to one Parquet file, and hashed on the way."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from haybale.collections.collection import Collection
from haybale.collections.ir_datasets import add_ir_datasets_documents
from haybale.collections.names import Names, piece_id
from haybale.collections.open import find_layout, ir_datasets_id
from haybale.collections.pydocs import read_pydocs
from haybale.collections.sink import At
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


class PassageSpool:
    """A sink for documents that keeps none of them: rows of (passage id, document id, text).

    A row group has ``rows_per_group`` rows; of the groups numbered from 0, those with ``number % n == i`` are
    written for ``shard = (i, n)``, and all are hashed. Without a ``file`` nothing is written. ``split`` cuts a
    passage into pieces, whose ids are ``<passage id>#<number>``. Passages of only whitespace are left out and
    counted. Document ids stay in memory, since they must not repeat.
    """

    def __init__(
        self,
        file: BinaryIO | None,
        rows_per_group: int,
        shard: tuple[int, int] = (0, 1),
        split: Split | None = None,
    ) -> None:
        self._writer = None if file is None else _writer(file)
        self._size, self._shard, self._split = rows_per_group, shard, split
        self._names = Names()
        self._buffer: list[tuple[str, str, str]] = []
        self._passages = self._rows = self._empty = 0
        self._hash = hashlib.sha256()

    # the sink -----------------------------------------------------------------------------------------

    def add_document(self, doc_id: str, passages: Iterable[str] = (), title: str = "", at: At = None) -> int:
        number = self._names.add_document(doc_id, at)
        for text in passages:
            self.add_passage(number, text, at=at)
        return number

    def document_number(self, doc_id: str) -> int | None:
        return self._names.documents.get(doc_id)

    def add_passage(
        self, document: int, text: str, passage_id: str | None = None, section: int = -1, at: At = None
    ) -> None:
        if not text.strip():
            self._empty += 1
            return
        self.add_row(self._names.add_passage(document, passage_id, at), self._names.doc_ids[document], text)

    def add_section(self, document: int, section_id: str, title: str, parent: str | None, at: At = None) -> int:
        return 0  # passages are all that is kept

    def add_internal_link(self, passage_id: str, section_id: str, at: At = None) -> None: ...

    def add_external_link(self, source_id: str, doc_id: str, at: At = None) -> None: ...

    # rows ---------------------------------------------------------------------------------------------

    def add_row(self, passage_id: str, doc_id: str, text: str) -> None:
        """One passage, or its pieces."""
        if self._split is None:
            self._add(passage_id, doc_id, text)
            return
        for number, (start, end) in enumerate(self._split(text)):
            self._add(piece_id(passage_id, number), doc_id, text[start:end])

    def _add(self, *row: str) -> None:
        for value in row:
            data = value.encode()
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)
        if self._writer is not None and (self._passages // self._size) % self._shard[1] == self._shard[0]:
            self._buffer.append(row)  # type: ignore[arg-type]
        self._passages += 1
        if self._passages % self._size == 0:
            self._flush()

    def _flush(self) -> None:
        if self._buffer:
            assert self._writer is not None
            columns = [pa.array(column, type=pa.large_string()) for column in zip(*self._buffer, strict=True)]
            self._writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=self._size)
            self._rows += len(self._buffer)
            self._buffer = []

    def close(self) -> Spooled:
        """Write what is left. A collection without a passage is refused."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        if not self._passages:
            raise InputError("the collection is empty: no document has a passage")
        return Spooled(self._passages, self._rows, len(self._names.documents), self._empty, self._hash.hexdigest())

    def abandon(self) -> None:
        """End the file as it is, while it is open: the writer would do so later, and fail."""
        if self._writer is not None:
            self._writer.close()


def _writer(file: BinaryIO) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True)


class _Enough(Exception):
    """As many passages as were wanted have been read."""


class _First(PassageSpool):
    """Keeps the first passages and stops the reader."""

    def __init__(self, n: int) -> None:
        super().__init__(None, rows_per_group=2**62)
        self.n, self.texts = n, list[str]()

    def add_row(self, passage_id: str, doc_id: str, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) == self.n:
            raise _Enough


def first_passages(source: str | Path | Collection, n: int, layout: str | None = None) -> list[str]:
    """The texts of the first n passages of a collection, read no further than that."""
    first = _First(n)
    with contextlib.suppress(_Enough):
        _read(source, first, layout)
    return first.texts


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


def _read(source: str | Path | Collection, sink: PassageSpool, layout: str | None) -> None:
    if isinstance(source, Collection) or source == "pydocs":
        _add_collection(source if isinstance(source, Collection) else read_pydocs(), sink)
    elif (dataset_id := ir_datasets_id(source)) is not None:
        add_ir_datasets_documents(sink, dataset_id)
    else:
        folder = Path(source)
        find_layout(folder, layout).add_documents(sink, folder)


def _add_collection(collection: Collection, sink: PassageSpool) -> None:
    doc_ids = collection.doc_ids.to_pylist()
    for doc_id in doc_ids:
        sink.add_document(doc_id)
    passages = collection.passages
    for number, document in enumerate(passages.doc_of):
        sink.add_row(passages.ids[number].as_py(), doc_ids[document], passages.texts[number].as_py())
