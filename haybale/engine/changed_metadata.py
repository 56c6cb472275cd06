"""Metadata that changed after documents were added: one table, which replaces the metadata of the segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from haybale.arrow import text_array
from haybale.collections import Collection
from haybale.collections.ids import Strings, check_characters
from haybale.collections.metadata import joined_metadata, with_values
from haybale.errors import FileFormatError, InputError

_ID_COLUMN = "id of the document"
Metadata: TypeAlias = Mapping[str, Mapping[str, Any]]  # by document id and column


@dataclass(frozen=True)
class ChangedMetadata:
    """The metadata of some documents by their ids; other documents keep the metadata of their segments."""

    ids: Strings  # (n,)
    table: pa.Table  # n rows

    @classmethod
    def of(cls, documents: Collection, values: Metadata) -> ChangedMetadata:
        """Return the metadata of all documents, with further values of some."""
        rows = dict(zip(documents.document_numbers(values).tolist(), values.values(), strict=True))
        for name in {name for columns in values.values() for name in columns}:
            if not isinstance(name, str) or not name:
                raise InputError(f"metadata must have names that are strings, found {name!r}; rename it")
            check_characters(name, "metadata")
        for value in (value for columns in values.values() for value in columns.values() if isinstance(value, str)):
            check_characters(value, "metadata")
        return cls(documents.doc_ids, with_values(documents.metadata, documents.n_documents, rows))

    def to_bytes(self) -> bytes:
        """Return a Parquet file with the metadata, and with the ids in the column after them."""
        table = self.table.append_column(_ID_COLUMN, self.ids)
        buffer = pa.BufferOutputStream()
        with pq.ParquetWriter(buffer, table.schema, compression="lz4", use_dictionary=False) as writer:
            writer.write_table(table.combine_chunks())
        return bytes(buffer.getvalue())

    @classmethod
    def from_bytes(cls, path: Path, content: bytes) -> ChangedMetadata:
        """Read what :meth:`to_bytes` returned; FileFormatError for anything else."""
        try:
            with pq.ParquetFile(pa.BufferReader(content)) as file:
                table = file.read(use_threads=False)
            ids, names = table.column(len(table.column_names) - 1), ", ".join(table.column_names)
            if table.column_names[-1] != _ID_COLUMN or ids.type != pa.large_string() or ids.null_count:
                raise FileFormatError(
                    path, None, f"expected the last column {_ID_COLUMN!r}, found {names}; restore the file"
                )
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(path, None, f"expected Parquet, found a damaged file ({error})") from None
        return cls(ids, table.remove_column(len(table.column_names) - 1))

    def onto(self, documents: Collection) -> Collection:
        """Return documents with this metadata in place of theirs; documents without an entry here keep theirs."""
        at = pc.index_in(documents.doc_ids, value_set=self.ids)
        has = np.asarray(pc.is_valid(at))
        others = np.flatnonzero(~has)
        unchanged = None
        if documents.metadata is not None and len(others):
            unchanged = documents.metadata.take(pa.array(others))
        table = joined_metadata(self.table, len(self.ids), unchanged, len(others))
        rows = np.empty(len(has), dtype=np.int64)
        rows[has] = np.asarray(pc.drop_null(at))
        rows[others] = len(self.ids) + np.arange(len(others))
        return documents if table is None else replace(documents, metadata=table.take(pa.array(rows)))

    def without(self, ids: Iterable[str]) -> ChangedMetadata:
        """Return the metadata of the documents whose ids are not among the given ones."""
        kept = pc.invert(pc.is_in(self.ids, value_set=text_array(list(ids))))
        return ChangedMetadata(self.ids.filter(kept), self.table.filter(kept))
