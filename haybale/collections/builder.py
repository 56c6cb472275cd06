"""Assembles a :class:`Collection` document by document, and refuses what no collection may contain.

Readers call the builder with the place they are reading (``at``), so that every refusal names file and line.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections.collection import (
    LINK_ENDS,
    Collection,
    Ints,
    Passages,
    Queries,
    Sections,
    Split,
    Strings,
    edges_between,
    links_of,
    offsets_of,
    strings_of,
)
from haybale.errors import FileFormatError, InputError

At = tuple[Path, int] | None  # file and line
Column: TypeAlias = "list[str] | pa.Array"  # of large_string


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

    def finish(self, order: Ints | None = None) -> Strings:
        """The column, in another order if need be."""
        self._flush()
        strings = pa.chunked_array(self._chunks, type=pa.large_string())
        # The usual case: files list a document's passages side by side.
        return strings if order is None or (np.diff(order) == 1).all() else strings.take(pa.array(order))


class CollectionBuilder:
    """Collects documents, queries and judgements, in this order, then :meth:`build`.

    Refused, each with one error: a document, passage, section or query id used twice; an empty query; a
    judgement or own document whose id nobody has; two grades for one pair; a collection without a passage.
    Passages of only whitespace are left out, with one warning that counts them.

    Parameters
    ----------
    name : str
    language : str, optional
        Of the collection; None: to be guessed from its texts.
    """

    def __init__(self, name: str, language: str | None = None) -> None:
        self.name = name
        self.language = language
        self.n_blank = 0  # passages left out
        self._doc_ids: list[str] = []
        self._documents: dict[str, int] = {}
        self._in_document = array("q")  # passages of each document so far
        self._titles = StringColumn()
        # Passage ids that were given, with their numbers; generated ones cannot clash.
        self._given: dict[str, int] = {}
        self._n_passages = 0
        self._passage_ids, self._texts = StringColumn(), StringColumn()
        self._passage_doc, self._passage_section = array("q"), array("q")
        self._queries: dict[str, int] = {}
        self._paragraphs = StringColumn()
        self._query_offsets, self._own = array("q", [0]), array("q")
        self._sections: dict[str, int] = {}
        self._section_titles = StringColumn()
        self._section_parent, self._section_doc = array("q"), array("q")
        self._links: dict[str, list[tuple[int, int]]] = {kind: [] for kind in LINK_ENDS}
        self._split_queries: dict[str, dict[int, None]] = {}
        self._grades: dict[str, dict[tuple[int, int], int]] = {}

    # documents ----------------------------------------------------------------------------------------

    def add_document(self, doc_id: str, passages: Iterable[str] = (), title: str = "", at: At = None) -> int:
        """Add a document with its passages; returns its number."""
        if doc_id in self._documents:
            _fail(f"duplicate document id {doc_id!r}", at)
        number = self._documents[doc_id] = len(self._doc_ids)
        self._doc_ids.append(doc_id)
        self._in_document.append(0)
        self._titles.append(title)
        for text in passages:
            self.add_passage(number, text, at=at)
        return number

    def document_number(self, doc_id: str) -> int | None:
        """The number of a document added before, or None."""
        return self._documents.get(doc_id)

    def add_passage(
        self, document: int, text: str, passage_id: str | None = None, section: int = -1, at: At = None
    ) -> None:
        """Add one passage; without an id it is ``<document id>:<its place in the document, from 0>``."""
        if not text.strip():
            self.n_blank += 1
            return
        if passage_id is None:
            passage_id = f"{self._doc_ids[document]}:{self._in_document[document]}"
        else:
            self._give(passage_id, at)
        self._in_document[document] += 1
        self._n_passages += 1
        self._keep(document, passage_id, text, section)

    def _keep(self, document: int, passage_id: str, text: str, section: int) -> None:
        self._passage_ids.append(passage_id)
        self._texts.append(text)
        self._passage_doc.append(document)
        self._passage_section.append(section)

    def add_passages(
        self, doc_ids: Column, texts: Column, passage_ids: Column | None = None, first_row: int = 0
    ) -> None:
        """Add many passages, (n,) each, a row a passage; documents that are new are added on the way.

        The same as a call of :meth:`add_passage` for each row, and faster. Rows of an error are counted from
        ``first_row``.
        """
        ids, passages = (pa.array(column, type=pa.large_string()) for column in (doc_ids, texts))
        given = None if passage_ids is None else pa.array(passage_ids, type=pa.large_string())
        encoded = ids.dictionary_encode()
        numbers = [self._number(doc_id) for doc_id in encoded.dictionary.to_pylist()]
        documents = np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy()]
        rows = np.flatnonzero(~_is_blank(passages))
        if len(rows) < len(passages):
            self.n_blank += len(passages) - len(rows)
            kept = pa.array(rows)
            documents, ids, passages = documents[rows], ids.take(kept), passages.take(kept)
            given = None if given is None else given.take(kept)
        distinct, which, counts = np.unique(documents, return_inverse=True, return_counts=True)
        if given is not None:
            for row, passage_id in zip(rows.tolist(), given.to_pylist(), strict=True):
                self._give(passage_id, None, f"row {first_row + row}: ")
                self._n_passages += 1
        else:
            place = np.empty(len(rows), dtype=np.int64)
            firsts = np.repeat(np.cumsum(counts) - counts, counts)
            place[np.argsort(which, kind="stable")] = np.arange(len(rows)) - firsts
            places = pa.array(place + np.array(self._in_document)[documents]).cast(pa.large_string())
            given = pc.binary_join_element_wise(ids, places, pa.scalar(":", pa.large_string()))
            self._n_passages += len(rows)
        for document, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            self._in_document[document] += count
        self._passage_ids.extend(given)
        self._texts.extend(passages)
        self._passage_doc.frombytes(documents.tobytes())
        self._passage_section.frombytes(np.full(len(rows), -1, dtype=np.int64).tobytes())

    def _number(self, doc_id: str) -> int:
        """The number of a document, which is added where it is new."""
        number = self._documents.get(doc_id)
        return self.add_document(doc_id) if number is None else number

    def _give(self, passage_id: str, at: At, where: str = "") -> None:
        if passage_id in self._given:
            _fail(f"{where}duplicate passage id {passage_id!r}", at)
        self._given[passage_id] = self._n_passages

    def add_section(self, document: int, section_id: str, title: str, parent: str | None, at: At = None) -> int:
        """Add a section under ``parent`` (an id added before; None for the root); returns its number."""
        if section_id in self._sections:
            _fail(f"duplicate section id {section_id!r}", at)
        self._section_parent.append(-1 if parent is None else self._section(parent, at))
        self._section_doc.append(document)
        self._section_titles.append(title)
        return self._sections.setdefault(section_id, len(self._sections))

    def add_internal_link(self, passage_id: str, section_id: str, at: At = None) -> None:
        """A passage that refers to a section of its own document."""
        if passage_id not in self._given:
            _fail(f"unknown passage id {passage_id!r} in an internal link", at)
        self._links["internal"].append((self._given[passage_id], self._section(section_id, at)))

    def add_external_link(self, source_id: str, doc_id: str, at: At = None) -> None:
        """A passage or a section that cites another document."""
        target = self._document(doc_id, "an external link", at)
        if source_id in self._given:
            self._links["passage_to_document"].append((self._given[source_id], target))
        else:
            self._links["section_to_document"].append((self._section(source_id, at), target))

    def _section(self, section_id: str, at: At) -> int:
        if section_id not in self._sections:
            _fail(f"unknown section id {section_id!r}", at)
        return self._sections[section_id]

    def _document(self, doc_id: str, where: str, at: At) -> int:
        if doc_id not in self._documents:
            _fail(f"{where} names document {doc_id!r}, which is not in the collection", at)
        return self._documents[doc_id]

    # queries and judgements ---------------------------------------------------------------------------

    def add_query(
        self, query_id: str, paragraphs: Sequence[str], own: str | None = None, split: str | None = None, at: At = None
    ) -> int:
        """Add a query. ``own`` is the document it was taken from; one outside the collection is no exclusion."""
        self._check_not_empty()  # else the first answer of an empty file would be an unknown id
        if query_id in self._queries:
            _fail(f"duplicate query id {query_id!r}", at)
        kept = [paragraph for paragraph in paragraphs if paragraph.strip()]
        if not kept:
            _fail(f"query {query_id!r} is empty", at)
        number = self._queries[query_id] = len(self._queries)
        for paragraph in kept:
            self._paragraphs.append(paragraph)
        self._query_offsets.append(len(self._paragraphs))
        self._own.append(-1 if own is None else self._documents.get(own, -1))
        if split is not None:
            self._split_queries.setdefault(split, {})[number] = None
        return number

    def add_judgement(self, split: str, query_id: str, doc_id: str, grade: int = 1, at: At = None) -> None:
        """Judge a document for a query; the query joins the split. A repeated line changes nothing."""
        if query_id not in self._queries:
            _fail(f"qrels of {split} name query {query_id!r}, which does not exist", at)
        pair = (self._queries[query_id], self._document(doc_id, f"qrels of {split}", at))
        known = self._grades.setdefault(split, {}).setdefault(pair, grade)
        if known != grade:
            _fail(f"query {query_id!r} and document {doc_id!r} are judged both {known} and {grade}", at)
        self._split_queries.setdefault(split, {})[pair[0]] = None

    # the result ---------------------------------------------------------------------------------------

    def build(self) -> Collection:
        """Check the whole and return it. Passages of a document end side by side, in the order added."""
        self._check_not_empty()
        if self.n_blank:
            message = f"collection {self.name!r}: {self.n_blank} passages of only whitespace were left out"
            warnings.warn(message, stacklevel=2)
        n = len(self._doc_ids)
        doc_offsets, order, new_passage = _grouped(self._passage_doc, n)
        section_offsets, section_order, new_section = _grouped(self._section_doc, n)
        sections = of_section = links = None
        if self._sections:
            parents = np.array(self._section_parent)[section_order]
            sections = Sections(
                ids=strings_of(self._sections).take(pa.array(section_order)),
                titles=self._section_titles.finish(section_order),
                parents=np.where(parents < 0, -1, new_section[parents]),
                doc_offsets=section_offsets,
            )
            of_section = np.array(self._passage_section)[order]
            of_section = np.where(of_section < 0, -1, new_section[of_section])
        if any(self._links.values()):
            ends = (new_passage, new_section, np.arange(n))
            pairs = {kind: np.array(found, dtype=np.int64).reshape(-1, 2) for kind, found in self._links.items()}
            links = links_of(lambda kind, a, b: edges_between(pairs[kind], ends[a], ends[b]))
        return Collection(
            name=self.name,
            doc_ids=strings_of(self._doc_ids),
            doc_titles=self._titles.finish(),
            passages=Passages(self._passage_ids.finish(order), self._texts.finish(order), doc_offsets, of_section),
            queries=Queries(
                ids=strings_of(self._queries),
                paragraphs=self._paragraphs.finish(),
                offsets=np.array(self._query_offsets),
                own=np.array(self._own),
            ),
            splits={name: self._split(name) for name in in_usual_order(self._split_queries)},
            sections=sections,
            links=links,
            language=self.language,
        )

    def _check_not_empty(self) -> None:
        if not self._n_passages:
            raise InputError(f"collection {self.name!r} is empty: no document has a passage")

    def _split(self, name: str) -> Split:
        grades = self._grades.get(name, {})
        queries, documents = np.array(list(grades), dtype=np.int64).reshape(-1, 2).T
        asked = np.array(list(self._split_queries[name]), dtype=np.int64)
        return Split(name, asked, queries, documents, np.array(list(grades.values()), dtype=np.int64))


def in_usual_order(splits: Iterable[str]) -> list[str]:
    """Train, dev and test first, then others by name.

    >>> in_usual_order(["test", "old", "new", "train"])
    ['train', 'test', 'new', 'old']
    """
    usual = {"train": 0, "dev": 1, "test": 2}
    return sorted(splits, key=lambda split: (usual.get(split, 3), split))


def _fail(message: str, at: At) -> NoReturn:
    """Raise the one error of bad input, with file and line where they are known."""
    raise InputError(message) if at is None else FileFormatError(at[0], at[1], message)


def _is_blank(texts: pa.Array) -> np.ndarray:
    """(n,) whether each string is empty or of only whitespace, as Python sees it.

    >>> _is_blank(pa.array(["a", " \\u00a0", ""], type=pa.large_string()))
    array([False,  True,  True])
    """
    blank: np.ndarray = np.logical_not(pc.match_substring_regex(texts, "[!-~]").to_numpy(zero_copy_only=False))
    for row in np.flatnonzero(blank):
        blank[row] = not texts[row].as_py().strip()
    return blank


def _grouped(owner: array[int], n: int) -> tuple[Ints, Ints, Ints]:
    """Offsets by owner; the stable order that puts each owner's things side by side; and their places in it."""
    owners = np.array(owner, dtype=np.int64)
    order = np.argsort(owners, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return offsets_of(np.bincount(owners, minlength=n)), order, places
