"""Parse queries in any form, for both the Python API and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from haybale.arrow import text_array
from haybale.collections.collection import Collection, Queries, indptr_from_counts
from haybale.collections.ids import check_characters, distinct_ids
from haybale.collections.splitters import find_splitter
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, check_filled, column_names, to_pandas
from haybale.text_files import STDIN, read_csv, read_jsonl, read_text, read_tsv, suffix_of, text_field

Text: TypeAlias = "str | Sequence[str]"  # a whole text, or its paragraphs
QueriesLike: TypeAlias = "Queries | Mapping[str, Text] | Sequence[Text] | Frame | str | Path"
Columns: TypeAlias = tuple[Iterable[Any], Iterable[Text], Iterable[str | None] | None]  # ids, texts, own documents

_QUERY_FILES = (".jsonl", ".csv", ".tsv")  # files of queries; any other file is one document
_ID, _TEXT = ("query_id", "id", "_id"), ("text", "query")  # accepted names of the columns of a CSV file
# Accepted names of the columns in the header that a TSV file may have.
TSV_HEADER = (
    (*_ID, "query-id", "qid", "queryid", "topic", "topic_id", "query"),
    (*_TEXT, "query_text", "querytext", "title", "question", "topic"),
)


def queries_from(collection: Collection, given: QueriesLike, paragraphs: str | None = None) -> Queries:
    """Convert queries in any form.

    Parameters
    ----------
    collection : Collection
        Defines the names of splits, and the documents that queries were taken from.
    given : Queries, mapping, sequence, frame, str or Path
        - a mapping of query ids to texts, or to lists of paragraphs;
        - a sequence of texts or lists of paragraphs; the query ids are their positions from 0;
        - a frame with the columns ``query_id``, ``text`` and, optionally, ``own``: the id of the document that a query
          was taken from, which is excluded from its ranking; each line of a text is a paragraph;
        - the name of a split; any other string is one text;
        - the path of a file, plain or ``.gz``: ``.jsonl`` with ``query_id`` (or ``_id``), ``text`` and ``own`` as in a
          frame; ``.csv`` with a header of the columns ``query_id`` (or ``id``), ``text`` (or ``query``) and ``own``;
          ``.tsv`` with an id and a text per line, and with or without a header; any other file, or ``-`` for standard
          input, is one document, and its id is the name of the file without the suffix.
    paragraphs : str, optional
        The splitter for a file with one document, one of :data:`~haybale.collections.SPLITTERS`; by default
        ``"blank-lines"``.

    Raises
    ------
    InputError
        There is no query, a text is empty, a query id occurs twice, or a file or frame lacks a column.
    """
    if isinstance(given, Path):
        return queries_of(collection, *_read_file(given, paragraphs), where=f"{given}: ")
    _refuse_paragraphs(paragraphs)
    if isinstance(given, Queries):
        return given
    if isinstance(given, str) and given in collection.splits:
        return collection.queries.take(collection.splits[given].queries)
    columns: Columns
    if isinstance(given, Mapping):
        columns = given, given.values(), None
    elif isinstance(given, str | Sequence):
        texts = [given] if isinstance(given, str) else given
        columns = range(len(texts)), texts, None
    else:
        columns = _read_frame(given)
    return replace(queries_of(collection, *columns), numbered=isinstance(given, str | Sequence))


def queries_argument(text: str) -> str | Path:
    """Return the path of a file or of standard input (``-``); return the name of a split or a text as it is.

    >>> queries_argument("who must pay?")
    'who must pay?'
    """
    path = Path(text)
    try:
        if path == STDIN or path.is_file():
            return path
    except (OSError, ValueError):  # the text is not a valid file name
        return text
    if suffix_of(path) in (".txt", *_QUERY_FILES) and not any(map(str.isspace, text)):
        raise InputError(f"{text}: no such file; check the path")
    return text


def queries_of(
    collection: Collection,
    ids: Iterable[Any],
    texts: Iterable[Text],
    own: Iterable[str | None] | None = None,
    where: str = "",
) -> Queries:
    """Return queries from ids and texts, each a string or a list of paragraphs; error messages begin with ``where``.

    An own document that is not in the collection has no effect, because it may have been removed.
    """
    names = distinct_ids(ids, f"{where}query ids")
    if not names:
        raise InputError(f"{where}expected at least one query, found none")
    paragraphs: list[list[str]] = []
    for name, text in zip(names, texts, strict=True):
        parts = [text] if isinstance(text, str) else text
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise InputError(f"{where}query {name!r}: expected a text or a list of paragraphs, found {text!r:.80}")
        paragraphs.append([part for part in parts if part.strip()])
        if not paragraphs[-1]:
            raise InputError(f"{where}query {name!r} is empty; expected at least one word, add text or remove it")
        check_characters("".join(paragraphs[-1]), f"{where}query {name!r}")
    own_numbers = np.full(len(names), -1, dtype=np.int64)
    with_own = [(row, doc_id) for row, doc_id in enumerate(own or ()) if doc_id is not None]
    if with_own:
        own_numbers[[row for row, _ in with_own]] = collection.find_documents([doc_id for _, doc_id in with_own])
    return Queries(
        ids=pa.chunked_array([text_array(names)]),
        paragraphs=pa.chunked_array([text_array([part for parts in paragraphs for part in parts])]),
        offsets=indptr_from_counts([len(parts) for parts in paragraphs]),
        own=own_numbers,
    )


def _refuse_paragraphs(paragraphs: str | None) -> None:
    if paragraphs is not None:
        raise InputError(f"paragraphs={paragraphs!r} needs a single document; give a text file, or - for stdin")


def _read_file(path: Path, paragraphs: str | None) -> Columns:
    suffix = suffix_of(path)
    if suffix not in _QUERY_FILES:
        paragraphs = paragraphs or "blank-lines"
        splitter, text = find_splitter(paragraphs), read_text(path)
        parts = [part.text for part in splitter(text)]
        if not parts:
            empty = "the text is empty; give a file with text"
            message = f"{paragraphs!r} finds no paragraph; choose another splitter" if text.strip() else empty
            raise FileFormatError(path, None, message)
        return ["stdin" if path == STDIN else path.stem], [parts], None
    _refuse_paragraphs(paragraphs)
    if suffix == ".tsv":
        rows = [columns for _, columns in read_tsv(path, 2, maxsplit=1, header=TSV_HEADER)]
        return [query_id for query_id, _ in rows], [text for _, text in rows], None
    ids, texts, own_ids = list[str](), list[list[str]](), list[str | None]()
    if suffix == ".jsonl":
        for line, record in read_jsonl(path):
            ids.append(text_field(path, line, record, "query_id" if "query_id" in record else "_id"))
            texts.append(text_field(path, line, record, "text").split("\n"))
            own_ids.append(text_field(path, line, record, "own", default="") or None)
    else:
        for _, cells in read_csv(path, {"id": _ID, "text": _TEXT}, {"own": ["own"]}):
            ids.append(cells["id"])
            texts.append(cells["text"].split("\n"))
            own_ids.append(cells.get("own") or None)
    return ids, texts, own_ids


def _read_frame(queries: Frame) -> Columns:
    has_own = "own" in column_names(queries)
    frame = to_pandas(queries, ["query_id", "text", *(["own"] if has_own else [])], "queries")
    check_filled(frame[["query_id", "text"]], "queries")
    own_ids = None
    if has_own:
        missing = frame["own"].isna()
        own_ids = [
            None if absent else str(doc_id) for doc_id, absent in zip(frame["own"].tolist(), missing, strict=True)
        ]
    return frame["query_id"].tolist(), [str(text).split("\n") for text in frame["text"]], own_ids
