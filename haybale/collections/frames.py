"""A collection from three frames or tables: passages, queries and judgements.

    passages    doc_id, text, passage_id (optional)             a row a passage, in the order of the document
    queries     query_id, text, split and own (optional)        a line of text is a paragraph
    qrels       query_id, doc_id, relevance and split (optional)

Ids are strings or whole numbers, which become strings. A judgement belongs to the ``split`` in its row; without such a
column to the split of its query; without one there either, to ``test``. A query joins every split that judges it. Where
``relevance`` is absent it is 1. ``own`` is the document a query was taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd
import pyarrow as pa

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.columns import Source, check_columns, grades, refuse, strings
from haybale.collections.split_order import in_usual_order
from haybale.errors import InputError
from haybale.frames import Frame, column_names, library_of, to_arrow

PASSAGES = ("doc_id", "text")
QUERIES = ("query_id", "text")
QRELS = ("query_id", "doc_id")
_OPTIONAL: dict[tuple[str, ...], tuple[str, ...]] = {
    PASSAGES: ("passage_id",),
    QUERIES: ("split", "own"),
    QRELS: ("relevance", "split"),
}


def collection_from_frames(
    name: str, passages: Frame, queries: Frame, qrels: Frame, *, language: str | None = None
) -> Collection:
    """A collection from frames of pandas or cuDF, or tables of pyarrow; their columns are those of the module.

    Rows of a document need not stand side by side. Passages without an id get ``<document id>:<place in the
    document>``. Refused, naming frame, row (counted from 0) and column: a missing id or text, an id used twice,
    judgements of queries or documents that are not there, a grade that is no whole number; and what
    :class:`~haybale.collections.CollectionBuilder` refuses.

    >>> passages = pd.DataFrame({"doc_id": ["a", "a", "b"], "text": ["Dogs bark.", "Cats purr.", "Taxes are due."]})
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["Who must pay?"]})
    >>> collection_from_frames("laws", passages, queries, pd.DataFrame({"query_id": ["q"], "doc_id": ["b"]}))
    Collection 'laws': 2 documents, 3 passages, 1 query (test 1)
    """
    return collection_of_tables(
        CollectionBuilder(name, language),
        [_table(passages, PASSAGES, "passages")],
        _table(queries, QUERIES, "queries"),
        _table(qrels, QRELS, "qrels"),
        ("passages", "queries", "qrels"),
    )


def documents_from_frame(frame: Frame, name: str = "documents") -> Collection:
    """Documents alone, without queries, from a frame of passages.

    >>> documents_from_frame(pd.DataFrame({"doc_id": ["a"], "text": ["Dogs bark."]}))
    Collection 'documents': 1 documents, 1 passages, 0 queries ()
    """
    builder = CollectionBuilder(name)
    add_passages(builder, _table(frame, PASSAGES, name), name)
    return builder.build()


def collection_of_tables(
    builder: CollectionBuilder,
    passages: Iterable[pa.Table],
    queries: pa.Table,
    qrels: pa.Table,
    sources: tuple[Source, Source, Source],
) -> Collection:
    """The same from Arrow tables, the passages in one or several; ``sources`` are what errors call them."""
    row = 0
    for table in passages:
        add_passages(builder, table, sources[0], row)
        row += len(table)
    of_query = _add_queries(builder, queries, sources[1])
    _add_judgements(builder, qrels, sources[2], of_query)
    collection = builder.build()
    return replace(collection, splits=in_usual_order(collection.splits))


def add_passages(builder: CollectionBuilder, table: pa.Table, source: Source, first_row: int = 0) -> None:
    """Add a table of passages, whose first row has the number ``first_row``."""
    columns = passage_columns(table, source, first_row)
    try:
        builder.add_passages(*columns, first_row=first_row)
    except InputError as error:
        refuse(source, str(error))


def passage_columns(table: pa.Table, source: Source, first_row: int) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """Document ids, texts and, if there are any, passage ids."""
    check_columns(table.column_names, PASSAGES, source)
    doc_ids, texts = (strings(table, name, source, first_row) for name in PASSAGES)
    given = "passage_id" in table.column_names
    return doc_ids, texts, strings(table, "passage_id", source, first_row) if given else None


def _add_queries(builder: CollectionBuilder, table: pa.Table, source: Source) -> dict[str, str | None] | None:
    """Add the queries; returns the split of each, if there is such a column."""
    check_columns(table.column_names, QUERIES, source)
    ids, texts = (strings(table, name, source).to_pylist() for name in QUERIES)
    splits, owns = (_optional(table, name, source) for name in ("split", "own"))
    for row, (query_id, text, split, own) in enumerate(zip(ids, texts, splits, owns, strict=True)):
        try:
            builder.add_query(query_id, text.split("\n"), own=own, split=split)
        except InputError as error:
            refuse(source, f"row {row}: {error}")
    return dict(zip(ids, splits, strict=True)) if "split" in table.column_names else None


def _add_judgements(
    builder: CollectionBuilder, table: pa.Table, source: Source, of_query: dict[str, str | None] | None
) -> None:
    check_columns(table.column_names, QRELS, source)
    ids, documents = (strings(table, name, source).to_pylist() for name in QRELS)
    splits: list[str | None] = ["test"] * len(table)
    if "split" in table.column_names:
        splits = strings(table, "split", source).to_pylist()
    elif of_query is not None:
        splits = [of_query.get(query_id, "test") for query_id in ids]
    judged = zip(splits, ids, documents, grades(table, "relevance", source).tolist(), strict=True)
    for row, (split, query_id, doc_id, grade) in enumerate(judged):
        if split is None:
            refuse(source, f"row {row}: query {query_id!r} is in no split")
        try:
            builder.add_judgement(split, query_id, doc_id, grade)
        except InputError as error:
            refuse(source, f"row {row}: {error}")


def _optional(table: pa.Table, name: str, source: Source) -> list[str | None]:
    if name not in table.column_names:
        return [None] * len(table)
    return list(strings(table, name, source, missing=True).to_pylist())


def _table(frame: Frame, needed: tuple[str, ...], source: str) -> pa.Table:
    """The columns that are read of a frame, as Arrow."""
    library, names = library_of(frame), column_names(frame)
    check_columns(names, needed, source)
    wanted = wanted_columns(names, needed)
    if library == "cudf":
        return to_arrow(frame[wanted])
    if library != "pandas":
        return to_arrow(frame).select(wanted)
    return pa.table({name: _column(frame[name], name, source) for name in wanted})


def wanted_columns(names: Sequence[str], needed: tuple[str, ...]) -> list[str]:
    """The columns that are read, of those there are: the needed and the optional ones."""
    return [name for name in (*needed, *_OPTIONAL[needed]) if name in names]


def _column(values: pd.Series, name: str, source: str) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # objects of several types
        for row, value in enumerate(values):
            if not isinstance(value, str) and not pd.isna(value):
                refuse(source, f"row {row}, column {name}: expected a string, found {type(value).__name__}")
        raise
