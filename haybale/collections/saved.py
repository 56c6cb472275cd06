"""Save and load collections: Parquet tables and a manifest with the SHA-256 of each.

``manifest.json`` has the format, version, name, language, the splits in order, and the optional parts; ``_COLUMNS``
lists the tables. Documents, passages, sections and queries are referred to by their row in their file, from 0; -1 means
none. Equal collections give equal bytes, and loading a folder executes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.arrow import numbers_of, text_array, true_rows
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
from haybale.collections.unread import UnreadPart
from haybale.errors import FileFormatError
from haybale.folders import whole_folder
from haybale.manifest import (
    check_file,
    check_files,
    read_any_table,
    read_manifest,
    read_rows,
    read_table,
    write_manifest,
    write_table,
)

FORMAT, VERSION = "haybale collection", 1
_TEXT, _NUMBER = pa.large_string(), pa.int64()
_COLUMNS = {
    "documents": {"id": _TEXT, "title": _TEXT, "passages": _NUMBER, "sections": _NUMBER},  # their numbers
    "texts": {"id": _TEXT, "text": _TEXT, "section": _NUMBER},  # one row per passage, in the order of documents
    "queries": {"id": _TEXT, "paragraphs": _NUMBER, "own": _NUMBER},  # number of paragraphs, own document
    "paragraphs": {"text": _TEXT},  # in the order of queries
    "splits": {"split": _TEXT, "query": _NUMBER},  # one row per query of a split
    "judgements": {"split": _TEXT, "query": _NUMBER, "document": _NUMBER, "grade": _NUMBER},
    "sections": {"id": _TEXT, "title": _TEXT, "parent": _NUMBER},
    "links": {"kind": _TEXT, "source": _NUMBER, "target": _NUMBER},
    "query_dates": {"day": _NUMBER},  # one row per query: the first day, since 1970-01-01, that its date may mean
    "unread": {"file": _TEXT, "part": _TEXT, "reason": _TEXT},
}
# Columns that count the rows of another table, and columns that refer to its rows, with the smallest number allowed.
_COUNTS = (
    ("documents", "passages", "texts"),
    ("documents", "sections", "sections"),
    ("queries", "paragraphs", "paragraphs"),
)
_REFERENCES = (
    ("texts", "section", "sections", -1),
    ("queries", "own", "documents", -1),
    ("splits", "query", "queries", 0),
    ("judgements", "query", "queries", 0),
    ("judgements", "document", "documents", 0),
    ("sections", "parent", "sections", -1),
)
_LINK_ENDS = {
    "internal": ("texts", "sections"),
    "passage_to_document": ("texts", "documents"),
    "section_to_document": ("sections", "documents"),
}
_OPTIONAL_TABLES = ("sections", "links", "query_dates", "unread")
_METADATA_TABLE = "metadata"  # the table of metadata, whose columns are those of the collection
_LAZY_COLUMN = ("texts", "text")  # the table and column that are read on first use
_MANIFEST_TYPES = {"name": str, "language": (str, None), "splits": [str], "parts": [str], "passages_in_sections": bool}


def save_collection(collection: Collection, folder: Path | str) -> None:
    """Write a collection to a folder, completely or not at all; :class:`OutputExistsError` if it is not empty."""
    passages, queries, sections, links = collection.passages, collection.queries, collection.sections, collection.links
    no_sections = np.zeros(collection.n_documents, dtype=np.int64)
    splits = collection.splits

    def joined_splits(name: str) -> Ints:
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
        "splits": [_repeat_names((name, split.queries) for name, split in splits.items()), joined_splits("queries")],
        "judgements": [
            _repeat_names((name, split.grades) for name, split in splits.items()),
            *map(joined_splits, ("judged_queries", "judged_documents", "grades")),
        ],
    }
    if sections is not None:
        tables["sections"] = [sections.ids, sections.titles, sections.parents]
    if links is not None:
        edges = vars(links)
        tables["links"] = [_repeat_names(edges.items()), *np.concatenate(list(edges.values())).T]
    if queries.dates is not None:
        tables["query_dates"] = [queries.dates]
    if collection.unread:
        tables["unread"] = [[getattr(part, name) for part in collection.unread] for name in _COLUMNS["unread"]]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": collection.name,
        "language": collection.language,
        "splits": list(splits),
        "parts": [name for name in _OPTIONAL_TABLES if name in tables]
        + [_METADATA_TABLE] * (collection.metadata is not None),
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
        if collection.metadata is not None:
            write_table(aside / f"{_METADATA_TABLE}.parquet", collection.metadata)
        write_manifest(aside, manifest)


def load_collection(
    folder: Path | str, opening: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Collection:
    """Load a saved collection; the texts of passages are read on first use, within ``opening()``.

    A folder without a saved collection of this version, or with changed files, raises :class:`FileFormatError`.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, "collection", {"format": FORMAT, "version": VERSION}, _MANIFEST_TYPES)
    parts = [part for part in _COLUMNS if part in manifest["parts"] or part not in _OPTIONAL_TABLES]
    has_metadata = _METADATA_TABLE in manifest["parts"]
    check_files(folder, manifest, [f"{part}.parquet" for part in (*parts, *[_METADATA_TABLE] * has_metadata)])
    path, schemas = folder.absolute(), {part: pa.schema(_COLUMNS[part]) for part in parts}
    columns = {part: [name for name in _COLUMNS[part] if (part, name) != _LAZY_COLUMN] for part in parts}
    tables = {part: read_table(path / f"{part}.parquet", schemas[part], columns[part]) for part in parts}

    _check_numbers(path, manifest, tables)

    def read_texts() -> Strings:
        with opening():
            check_file(path / "texts.parquet", manifest["files"]["texts.parquet"])
            return read_table(path / "texts.parquet", schemas["texts"], ["text"])["text"]

    def numbers(part: str, name: str) -> Ints:
        column: Ints = numbers_of(tables[part][name])
        return column

    def rows(part: str, name: str, value: str) -> Any:
        """Return the rows (n,) whose column ``name`` has the given value."""
        return true_rows(pc.equal(tables[part][name], text_array([value])[0]))

    sections = links = None
    if "sections" in parts:
        sections = Sections(
            ids=tables["sections"]["id"],
            titles=tables["sections"]["title"],
            parents=numbers("sections", "parent"),
            doc_offsets=indptr_from_counts(numbers("documents", "sections")),
        )
    if "links" in parts:
        edges = np.stack([numbers("links", "source"), numbers("links", "target")], axis=1)
        links = Links(*(edges[rows("links", "kind", kind.name)] for kind in fields(Links)))
    unread = tables["unread"].to_pylist() if "unread" in parts else []
    splits = {}
    for split in manifest["splits"]:
        pairs = rows("judgements", "split", split)
        splits[split] = Split(
            name=split,
            queries=numbers("splits", "query")[rows("splits", "split", split)],
            judged_queries=numbers("judgements", "query")[pairs],
            judged_documents=numbers("judgements", "document")[pairs],
            grades=numbers("judgements", "grade")[pairs],
        )
    return Collection(
        name=manifest["name"],
        doc_ids=tables["documents"]["id"],
        doc_titles=tables["documents"]["title"],
        passages=LazyPassages(
            ids=tables["texts"]["id"],
            texts=read_texts,
            doc_offsets=indptr_from_counts(numbers("documents", "passages")),
            sections=numbers("texts", "section") if manifest["passages_in_sections"] else None,
        ),
        queries=Queries(
            ids=tables["queries"]["id"],
            paragraphs=tables["paragraphs"]["text"],
            offsets=indptr_from_counts(numbers("queries", "paragraphs")),
            own=numbers("queries", "own"),
            dates=numbers("query_dates", "day") if "query_dates" in parts else None,
        ),
        splits=splits,
        sections=sections,
        links=links,
        language=manifest["language"],
        metadata=read_any_table(folder / f"{_METADATA_TABLE}.parquet") if has_metadata else None,
        unread=tuple(UnreadPart(**part) for part in unread),
    )


def load_documents(folder: Path, first: int, end: int) -> Collection:
    """Load some documents of a saved collection, without those of the others; their texts are read on first use."""
    documents = read_table(folder / "documents.parquet", pa.schema(_COLUMNS["documents"]), ["id", "passages"])
    offsets = indptr_from_counts(numbers_of(documents["passages"]))

    def read(column: str) -> Strings:
        return read_rows(folder / "texts.parquet", int(offsets[first]), int(offsets[end]), [column])[column]

    ids, none = documents["id"].slice(first, end - first), pa.chunked_array([], type=_TEXT)
    no_numbers = np.empty(0, dtype=np.int64)
    return Collection(
        name=folder.name,
        doc_ids=ids,
        doc_titles=ids,
        passages=LazyPassages(read("id"), lambda: read("text"), offsets[first : end + 1] - offsets[first]),
        queries=Queries(none, none, np.zeros(1, dtype=np.int64), no_numbers),
        splits={},
    )


def _check_numbers(path: Path, manifest: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    """Raise FileFormatError for a count or a row number that does not fit the other tables, such as a forged one."""

    def check(part: str, column: str, is_right: Any, expected: str) -> None:
        if not np.all(is_right):
            message = f"column {column!r} must have {expected}, found others; save the collection again"
            raise FileFormatError(path / f"{part}.parquet", None, message)

    n_rows = {part: len(tables[part]) if part in tables else 0 for part in _COLUMNS}
    for part, column, target in _COUNTS:
        counts = numbers_of(tables[part][column])
        is_right = (counts >= 0).all() and counts.sum() == n_rows[target] and (counts <= n_rows[target]).all()
        check(part, column, is_right, f"counts that sum to the {n_rows[target]:,} {target}")
    if "query_dates" in tables:
        n_queries = n_rows["queries"]
        check("query_dates", "day", n_rows["query_dates"] == n_queries, f"a row for each of the {n_queries:,} queries")
    for part, column, target, lowest in _REFERENCES:
        if part in tables and not (column == "section" and not manifest["passages_in_sections"]):
            row_numbers = numbers_of(tables[part][column])
            in_range = (row_numbers >= lowest) & (row_numbers < n_rows[target])
            check(part, column, in_range, f"row numbers from {lowest} to {n_rows[target] - 1}")
    for part in ("splits", "judgements"):
        names = set(pc.unique(tables[part]["split"]).to_pylist())
        check(part, "split", names <= set(manifest["splits"]), f"names of the splits {', '.join(manifest['splits'])}")
    if "links" in tables:
        kinds = tables["links"]["kind"]
        check("links", "kind", set(pc.unique(kinds).to_pylist()) <= set(_LINK_ENDS), f"one of {', '.join(_LINK_ENDS)}")
        for kind, targets in _LINK_ENDS.items():
            links = tables["links"].filter(pc.equal(kinds, text_array([kind])[0]))
            for column, target in zip(("source", "target"), targets, strict=True):
                row_numbers = numbers_of(links[column])
                in_range = (row_numbers >= 0) & (row_numbers < n_rows[target])
                check("links", column, in_range, f"row numbers from 0 to {n_rows[target] - 1}")


def _repeat_names(names: Iterable[tuple[str, Any]]) -> pa.Array:
    """Return a column with each name repeated once for each of its values."""
    return pa.array([name for name, values in names for _ in range(len(values))], type=_TEXT)
