"""Assembles a :class:`Collection` document by document, and refuses what no collection may contain.

Readers call the builder with the place they are reading (``at``), so that every refusal names file and line.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from haybale.collections.collection import (
    Collection,
    Ints,
    Links,
    Passages,
    Queries,
    Sections,
    Split,
    Strings,
)
from haybale.collections.names import Names, fail
from haybale.collections.sink import At
from haybale.collections.tables import is_blank
from haybale.errors import InputError


class StringColumn:
    """Appends strings; every 65 536 of them leave Python for one Arrow chunk."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []
        self._buffer: list[str] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, value: str) -> None:
        self._buffer.append(value)
        self._length += 1
        if len(self._buffer) == 65_536:
            self._flush()

    def extend(self, values: pa.Array) -> None:
        """Append an array of large_string as it is."""
        self._flush()
        self._chunks.append(values)
        self._length += len(values)

    def _flush(self) -> None:
        self._chunks.append(pa.array(self._buffer, type=pa.large_string()))
        self._buffer = []

    def finish(self) -> Strings:
        self._flush()
        return pa.chunked_array(self._chunks, type=pa.large_string())


class CollectionBuilder:
    """Collects documents, queries and judgements, in this order, then :meth:`build`.

    Refused, each with one error: a document, passage, section or query id used twice; an empty query; a
    judgement or own document whose id nobody has; two grades for one pair; a collection without a passage.
    Passages of only whitespace are left out, with one warning that counts them.
    """

    def __init__(self, name: str, language: str | None = None) -> None:
        self.name = name
        self.language = language
        self._names = Names()
        self._queries: dict[str, int] = {}
        self._titles = StringColumn()
        self._passage_ids, self._texts = StringColumn(), StringColumn()
        self._passage_doc, self._passage_section = array("q"), array("q")
        self._query_ids, self._paragraphs = StringColumn(), StringColumn()
        self._query_offsets, self._own = array("q", [0]), array("q")
        self._section_numbers: dict[str, int] = {}
        self._section_ids, self._section_titles = StringColumn(), StringColumn()
        self._section_parent, self._section_doc = array("q"), array("q")
        self._links: dict[str, list[tuple[int, int]]] = {"internal": [], "passage": [], "section": []}
        self._split_queries: dict[str, dict[int, None]] = {}
        self._grades: dict[str, dict[tuple[int, int], int]] = {}
        self._n_empty = 0

    # documents ----------------------------------------------------------------------------------------

    def add_document(self, doc_id: str, passages: Iterable[str] = (), title: str = "", at: At = None) -> int:
        """Add a document with its passages; returns its number."""
        number = self._names.add_document(doc_id, at)
        self._titles.append(title)
        for text in passages:
            self.add_passage(number, text, at=at)
        return number

    def document_number(self, doc_id: str) -> int | None:
        """The number of a document added before, or None."""
        return self._names.documents.get(doc_id)

    def add_passage(
        self, document: int, text: str, passage_id: str | None = None, section: int = -1, at: At = None
    ) -> None:
        """Add one passage; without an id it is ``<document id>:<its place in the document, from 0>``."""
        if not text.strip():
            self._n_empty += 1
            return
        self._passage_ids.append(self._names.add_passage(document, passage_id, at))
        self._texts.append(text)
        self._passage_doc.append(document)
        self._passage_section.append(section)

    def add_passages(
        self, doc_ids: pa.Array, texts: pa.Array, passage_ids: pa.Array | None = None, first_row: int = 0
    ) -> None:
        """Add many passages, (n,) large_string each, a row a passage; documents that are new are added on the way.

        The same as a call of :meth:`add_passage` for each row, and faster. Rows of an error are counted from
        ``first_row``.
        """
        documents = self._names.number_documents(doc_ids)
        for _ in range(len(self._names.doc_ids) - len(self._titles)):
            self._titles.append("")
        rows = np.flatnonzero(~is_blank(texts))
        if len(rows) < len(texts):
            self._n_empty += len(texts) - len(rows)
            kept = pa.array(rows)
            documents, doc_ids, texts = documents[rows], doc_ids.take(kept), texts.take(kept)
            passage_ids = None if passage_ids is None else passage_ids.take(kept)
        self._passage_ids.extend(self._names.add_passages(documents, doc_ids, passage_ids, rows + first_row))
        self._texts.extend(texts)
        self._passage_doc.frombytes(documents.tobytes())
        self._passage_section.frombytes(np.full(len(rows), -1, dtype=np.int64).tobytes())

    def add_section(self, document: int, section_id: str, title: str, parent: str | None, at: At = None) -> int:
        """Add a section under ``parent`` (an id added before; None for the root); returns its number."""
        if section_id in self._section_numbers:
            fail(f"duplicate section id {section_id!r}", at)
        above = -1 if parent is None else self._section(parent, at)
        number = self._section_numbers[section_id] = len(self._section_numbers)
        self._section_ids.append(section_id)
        self._section_titles.append(title)
        self._section_parent.append(above)
        self._section_doc.append(document)
        return number

    def add_internal_link(self, passage_id: str, section_id: str, at: At = None) -> None:
        """A passage that refers to a section of its own document."""
        if passage_id not in self._names.given:
            fail(f"unknown passage id {passage_id!r} in an internal link", at)
        self._links["internal"].append((self._names.given[passage_id], self._section(section_id, at)))

    def add_external_link(self, source_id: str, doc_id: str, at: At = None) -> None:
        """A passage or a section that cites another document."""
        target = self._document(doc_id, "an external link", at)
        if source_id in self._names.given:
            self._links["passage"].append((self._names.given[source_id], target))
        else:
            self._links["section"].append((self._section(source_id, at), target))

    def _section(self, section_id: str, at: At) -> int:
        if section_id not in self._section_numbers:
            fail(f"unknown section id {section_id!r}", at)
        return self._section_numbers[section_id]

    def _document(self, doc_id: str, where: str, at: At) -> int:
        if doc_id not in self._names.documents:
            fail(f"{where} names document {doc_id!r}, which is not in the collection", at)
        return self._names.documents[doc_id]

    # queries and judgements ---------------------------------------------------------------------------

    def add_query(
        self, query_id: str, paragraphs: Sequence[str], own: str | None = None, split: str | None = None, at: At = None
    ) -> int:
        """Add a query. ``own`` is the document it was taken from; one outside the collection is no exclusion."""
        self._check_not_empty()  # else the first answer of an empty file would be an unknown id
        if query_id in self._queries:
            fail(f"duplicate query id {query_id!r}", at)
        kept = [paragraph for paragraph in paragraphs if paragraph.strip()]
        if not kept:
            fail(f"query {query_id!r} is empty", at)
        number = self._queries[query_id] = len(self._queries)
        self._query_ids.append(query_id)
        for paragraph in kept:
            self._paragraphs.append(paragraph)
        self._query_offsets.append(len(self._paragraphs))
        self._own.append(-1 if own is None else self._names.documents.get(own, -1))
        if split is not None:
            self._split_queries.setdefault(split, {})[number] = None
        return number

    def add_judgement(self, split: str, query_id: str, doc_id: str, grade: int = 1, at: At = None) -> None:
        """Judge a document for a query; the query joins the split. A repeated line changes nothing."""
        if query_id not in self._queries:
            fail(f"qrels of {split} name query {query_id!r}, which does not exist", at)
        pair = (self._queries[query_id], self._document(doc_id, f"qrels of {split}", at))
        known = self._grades.setdefault(split, {}).setdefault(pair, grade)
        if known != grade:
            fail(f"query {query_id!r} and document {doc_id!r} are judged both {known} and {grade}", at)
        self._split_queries.setdefault(split, {})[pair[0]] = None

    # the result ---------------------------------------------------------------------------------------

    def build(self) -> Collection:
        """Check the whole and return it. Passages of a document end side by side, in the order added."""
        self._check_not_empty()
        if self._n_empty:
            message = f"collection {self.name!r}: {self._n_empty} passages of only whitespace were left out"
            warnings.warn(message, stacklevel=2)
        n = len(self._names.documents)
        passage_doc, order = _grouped(_numbers(self._passage_doc), n)
        section_doc, section_order = _grouped(_numbers(self._section_doc), n)
        new_passage, new_section = _inverse(order), _inverse(section_order)
        sections = links = None
        if len(self._section_numbers):
            parents = _numbers(self._section_parent)[section_order]
            sections = Sections(
                ids=_reordered(self._section_ids, section_order),
                titles=_reordered(self._section_titles, section_order),
                parents=np.where(parents < 0, -1, new_section[parents]),
                doc_offsets=section_doc,
            )
        if any(self._links.values()):
            links = Links(
                internal=_edges(self._links["internal"], new_passage, new_section),
                passage_to_document=_edges(self._links["passage"], new_passage, np.arange(n)),
                section_to_document=_edges(self._links["section"], new_section, np.arange(n)),
            )
        of_section = _numbers(self._passage_section)[order]
        return Collection(
            name=self.name,
            doc_ids=pa.chunked_array([pa.array(self._names.doc_ids, type=pa.large_string())]),
            doc_titles=self._titles.finish(),
            passages=Passages(
                ids=_reordered(self._passage_ids, order),
                texts=_reordered(self._texts, order),
                doc_offsets=passage_doc,
                sections=None if sections is None else np.where(of_section < 0, -1, new_section[of_section]),
            ),
            queries=Queries(
                ids=self._query_ids.finish(),
                paragraphs=self._paragraphs.finish(),
                offsets=_numbers(self._query_offsets),
                own=_numbers(self._own),
            ),
            splits={name: self._split(name) for name in self._split_queries},
            sections=sections,
            links=links,
            language=self.language,
        )

    def _check_not_empty(self) -> None:
        if not len(self._texts):
            raise InputError(f"collection {self.name!r} is empty: no document has a passage")

    def _split(self, name: str) -> Split:
        pairs = self._grades.get(name, {})
        judged = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return Split(
            name=name,
            queries=np.array(list(self._split_queries[name]), dtype=np.int64),
            judged_queries=judged[:, 0],
            judged_documents=judged[:, 1],
            grades=np.array(list(pairs.values()), dtype=np.int64),
        )


def _numbers(values: array[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _grouped(owner: Ints, n: int) -> tuple[Ints, Ints]:
    """``(offsets by owner, stable order that puts each owner's things side by side)``."""
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=n)))).astype(np.int64)
    return offsets, np.argsort(owner, kind="stable")


def _inverse(order: Ints) -> Ints:
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return inverse


def _reordered(column: StringColumn, order: Ints) -> Strings:
    strings = column.finish()
    if np.array_equal(order, np.arange(len(order))):
        return strings  # the usual case: files list a document's passages side by side
    return strings.take(pa.array(order))


def _edges(pairs: list[tuple[int, int]], new_source: Ints, new_target: Ints) -> Ints:
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    if not len(edges):
        return edges
    return np.stack([new_source[edges[:, 0]], new_target[edges[:, 1]]], axis=1)
