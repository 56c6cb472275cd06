"""Save collections: tables in Parquet, and a manifest with the SHA-256 of each. Nothing in a folder can be executed.

    manifest.json         format, version, name, language, the splits in their order, and which parts there are
    documents.parquet     id, title, passages, sections        how many of each a document has
    texts.parquet         id, text, section                    a row a passage, document by document
    queries.parquet       id, paragraphs, own                  how many paragraphs, and the document it was taken from
    paragraphs.parquet    text                                 query by query
    splits.parquet        split, query                         a row a query of a split
    judgements.parquet    split, query, document, grade
    sections.parquet      id, title, parent                    document by document
    links.parquet         kind, source, target

Documents, passages, sections and queries are named by their row in their file, from 0; -1 is none. The same collection
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.arrow import numbers_of, text_array
from haybale.collections.collection import (
    Collection,
    Ints,
    LazyPassages,
    Links,
    Queries,
    Sections,
    Split,
    Strings,
    indptr_from_counts,
)
from haybale.errors import FileFormatError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, check_file, check_files, read_manifest, read_table, write_manifest, write_table

FORMAT, VERSION = "haybale collection", 1
_TEXT, _NUMBER = pa.large_string(), pa.int64()
_COLUMNS = {
    "documents": {"id": _TEXT, "title": _TEXT, "passages": _NUMBER, "sections": _NUMBER},
    "texts": {"id": _TEXT, "text": _TEXT, "section": _NUMBER},
    "queries": {"id": _TEXT, "paragraphs": _NUMBER, "own": _NUMBER},
    "paragraphs": {"text": _TEXT},
    "splits": {"split": _TEXT, "query": _NUMBER},
    "judgements": {"split": _TEXT, "query": _NUMBER, "document": _NUMBER, "grade": _NUMBER},
    "sections": {"id": _TEXT, "title": _TEXT, "parent": _NUMBER},
    "links": {"kind": _TEXT, "source": _NUMBER, "target": _NUMBER},
}
_OPTIONAL = ("sections", "links")
_LATER = {"texts": "text"}  # a column of a table that is read on first use


def save_collection(collection: Collection, folder: Path | str) -> None:
    """Write a collection to a new folder, whole or not at all (:class:`OutputExistsError` if it has files)."""
    passages, queries, sections, links = collection.passages, collection.queries, collection.sections, collection.links
    no_sections = np.zeros(collection.n_documents, dtype=np.int64)
    splits = collection.splits

    def of_splits(name: str) -> Ints:
        return np.concatenate([np.empty(0, dtype=np.int64), *(getattr(split, name) for split in splits.values())])

    tables: dict[str, list[Any]] = {
        "documents": [
            collection.doc_ids,
            collection.doc_titles,
            np.diff(passages.doc_offsets),
            no_sections if sections is None else np.diff(sections.doc_offsets),
        ],
        "texts": [
            passages.ids,
            passages.texts,
            np.full(len(passages), -1) if passages.sections is None else passages.sections,
        ],
        "queries": [queries.ids, np.diff(queries.offsets), queries.own],
        "paragraphs": [queries.paragraphs],
        "splits": [_repeated((name, split.queries) for name, split in splits.items()), of_splits("queries")],
        "judgements": [
            _repeated((name, split.grades) for name, split in splits.items()),
            *map(of_splits, ("judged_queries", "judged_documents", "grades")),
        ],
    }
    if sections is not None:
        tables["sections"] = [sections.ids, sections.titles, sections.parents]
    if links is not None:
        edges = vars(links)
        tables["links"] = [_repeated(edges.items()), *np.concatenate(list(edges.values())).T]
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "name": collection.name,
        "language": collection.language,
        "splits": list(splits),
        "parts": [name for name in _OPTIONAL if name in tables],
        "passages_in_sections": passages.sections is not None,
    }
    with whole_folder(Path(folder)) as aside:
        for name, columns in tables.items():
            types = _COLUMNS[name].values()
            arrays = [
                column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column, type=kind)])
                for column, kind in zip(columns, types, strict=True)
            ]
            write_table(aside / f"{name}.parquet", pa.table(arrays, schema=pa.schema(_COLUMNS[name])))
        write_manifest(aside, facts)


def load_collection(folder: Path | str, *, verify: bool = True) -> Collection:
    """Return a collection that :func:`save_collection` wrote.

    Parameters
    ----------
    folder : path
        Texts of passages are read on first use, all else at once; :class:`FileFormatError` if a file is not as it was
        written, or of another version.
    verify : bool, default True
        Whether to check the digest of every file.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, "collection", {"format": FORMAT, "version": VERSION})
    name, language, names, parts = (manifest.get(key) for key in ("name", "language", "splits", "parts"))
    if not isinstance(name, str) or not isinstance(language, str | None) or not _names(names) or not _names(parts):
        raise FileFormatError(folder / MANIFEST, None, "expected name, language, splits and parts of a collection")
    there = [part for part in _COLUMNS if part in parts or part not in _OPTIONAL]
    check_files(folder, manifest, [f"{part}.parquet" for part in there], verify=verify)
    tables = {part: _Table(folder / f"{part}.parquet", _COLUMNS[part], _LATER.get(part)) for part in there}
    documents, texts, queries, asked, judged = (
        tables[part] for part in ("documents", "texts", "queries", "splits", "judgements")
    )
    n_documents, n_texts, n_queries = (len(part.table) for part in (documents, texts, queries))
    n_sections = len(tables["sections"].table) if "sections" in parts else 0
    sections = links = None
    if "sections" in parts:
        sections = Sections(
            ids=tables["sections"].table["id"],
            titles=tables["sections"].table["title"],
            parents=tables["sections"].numbers("parent", -1, n_sections),
            doc_offsets=documents.offsets("sections", n_sections),
        )
    if "links" in parts:
        ends = (n_texts, n_sections), (n_texts, n_documents), (n_sections, n_documents)
        kinds = zip(fields(Links), ends, strict=True)
        links = Links(*(tables["links"].edges(kind.name, *counts) for kind, counts in kinds))
    of_section = texts.numbers("section", -1, n_sections)
    splits = {}
    for split in names:
        rows, pairs = asked.rows("split", split), judged.rows("split", split)
        splits[split] = Split(
            name=split,
            queries=asked.numbers("query", 0, n_queries, rows),
            judged_queries=judged.numbers("query", 0, n_queries, pairs),
            judged_documents=judged.numbers("document", 0, n_documents, pairs),
            grades=numbers_of(judged.table["grade"])[pairs],
        )
    return Collection(
        name=name,
        doc_ids=documents.table["id"],
        doc_titles=documents.table["title"],
        passages=LazyPassages(
            ids=texts.table["id"],
            texts=lambda: texts.later("text", manifest["files"]["texts.parquet"] if verify else None),
            doc_offsets=documents.offsets("passages", n_texts),
            sections=of_section if manifest.get("passages_in_sections") is True else None,
        ),
        queries=Queries(
            ids=queries.table["id"],
            paragraphs=tables["paragraphs"].table["text"],
            offsets=queries.offsets("paragraphs", len(tables["paragraphs"].table)),
            own=queries.numbers("own", -1, n_documents),
        ),
        splits=splits,
        sections=sections,
        links=links,
        language=language,
    )


def _names(values: Any) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


class _Table:
    """A file of a collection, which errors name."""

    def __init__(self, path: Path, columns: dict[str, Any], later: str | None = None) -> None:
        self.path, self.schema, self._absolute = path, pa.schema(columns), path.absolute()
        self.table = read_table(path, self.schema, [name for name in columns if name != later])

    def later(self, name: str, expected: str | None) -> Strings:
        """Return a column that was not read yet; the file must still have the expected digest, if one is given."""
        if expected is not None:
            check_file(self._absolute, expected)
        return read_table(self._absolute, self.schema, [name])[name]

    def numbers(self, name: str, least: int, end: int, rows: Any = slice(None)) -> Ints:
        """Return a column of numbers from ``least`` to ``end`` - 1."""
        found: Ints = numbers_of(self.table[name])[rows]
        if len(found) and not least <= found.min() <= found.max() < end:
            raise FileFormatError(self.path, None, f"column {name}: expected numbers from {least} to {end - 1}")
        return found

    def offsets(self, name: str, total: int) -> Ints:
        """Return the offsets for a column of counts, which sum to ``total``."""
        offsets = indptr_from_counts(self.numbers(name, 0, total + 1))
        if offsets[-1] != total:
            raise FileFormatError(self.path, None, f"column {name}: expected numbers that sum to {total}")
        return offsets

    def rows(self, name: str, value: str) -> Any:
        """Return the numbers (n,) of the rows that have a value in a column."""
        return numbers_of(pc.indices_nonzero(pc.equal(self.table[name], text_array([value])[0])))

    def edges(self, kind: str, sources: int, targets: int) -> Ints:
        """Return the links of a kind, (n, 2)."""
        rows = self.rows("kind", kind)
        return np.stack([self.numbers("source", 0, sources, rows), self.numbers("target", 0, targets, rows)], axis=1)


def _repeated(names: Iterable[tuple[str, Any]]) -> pa.Array:
    """Return each name, repeated for each of its values."""
    return pa.array([name for name, values in names for _ in range(len(values))], type=_TEXT)
