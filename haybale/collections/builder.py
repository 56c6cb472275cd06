"""Assemble a :class:`Collection` document by document, and reject invalid input.

Readers pass their position as ``at`` (file and line), so that every error names it.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from haybale.collections.collection import (
    Collection,
    Links,
    Passages,
    Queries,
    Sections,
    Split,
    indptr_from_counts,
    strings_of,
)
from haybale.collections.dates import UNDATED, first_day
from haybale.collections.ids import Ints, Strings, check_characters
from haybale.collections.metadata import metadata_table, plain_value
from haybale.errors import FileFormatError, InputError, told_apart
from haybale.parameters import check_parameters, one_of

At = tuple[Path, int] | None  # file and line
# The strings, and their characters, that a column holds before they become an Arrow chunk, which takes less memory.
_STRINGS_PER_CHUNK, _CHARACTERS_PER_CHUNK = 2**14, 2**22


class StringColumn:
    """A growing column of strings, made of Arrow chunks."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []
        self._buffer: list[str] = []
        self._n_characters = 0  # of the buffer

    def append(self, value: str) -> None:
        self._buffer.append(value)
        self._n_characters += len(value)
        if len(self._buffer) == _STRINGS_PER_CHUNK or self._n_characters >= _CHARACTERS_PER_CHUNK:
            self._flush()

    def _flush(self) -> None:
        self._chunks.append(pa.array(self._buffer, type=pa.large_string()))
        self._buffer, self._n_characters = [], 0

    def finish(self, order: Ints) -> Strings:
        """Return the strings in the given order."""
        self._flush()
        strings = pa.chunked_array(self._chunks, type=pa.large_string())
        # Files usually list the passages of a document together, so that nothing has to be reordered.
        return strings if (np.diff(order) == 1).all() else strings.take(pa.array(order))


class CollectionBuilder:
    """Build a collection from documents, queries and judgements, added in this order; :meth:`build` returns it.

    Passages of only whitespace are left out; one warning counts them.

    Parameters
    ----------
    name : str
    language : str, optional
        Language of the texts, for stop words and stemming; by default it is detected.
    missing_judgements : {"refuse", "skip"}, default "refuse"
        What to do with judgements of unknown documents: raise an error, or skip them and count them in one warning.

    Raises
    ------
    InputError
        A document, passage, section or query id occurs twice; a query is empty; a judgement or link names an unknown
        id; one pair has two grades, or a grade does not fit into 32 bits; the collection has no passage; an id, title
        or text contains a lone surrogate; an id contains a NUL character. With ``at`` the error is a
        :class:`FileFormatError` that names file and line.
    """

    def __init__(self, name: str, language: str | None = None, missing_judgements: str = "refuse") -> None:
        allowed = {"missing_judgements": one_of(["refuse", "skip"])}
        check_parameters("CollectionBuilder", {"missing_judgements": missing_judgements}, allowed)
        self.name = name
        self.language = language
        self.missing_judgements = missing_judgements
        self._n_blank = self._n_missing = 0
        self._documents: dict[str, int] = {}
        self._doc_ids: list[str] = []
        self._titles: list[str] = []
        self._metadata: dict[int, dict[str, Any]] = {}
        self._passage_counts = array("q")  # passages of each document so far
        self._explicit_ids: dict[str, int] = {}  # explicit passage ids, with their numbers
        self._passage_ids, self._texts = StringColumn(), StringColumn()
        self._passage_doc, self._passage_section = array("q"), array("q")
        self._queries: dict[str, int] = {}
        self._paragraphs: list[str] = []
        self._query_offsets, self._own, self._query_dates = array("q", [0]), array("q"), array("q")
        self._sections: dict[str, int] = {}
        self._section_titles: list[str] = []
        self._section_parent, self._section_doc = array("q"), array("q")
        self._links: dict[str, list[tuple[int, int]]] = {field.name: [] for field in fields(Links)}
        self._split_queries: dict[str, dict[int, None]] = {}
        self._grades: dict[str, dict[tuple[int, int], int]] = {}

    def add_document(
        self,
        doc_id: str,
        passages: str | Iterable[str] = (),
        title: str = "",
        at: At = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Add a document with its passages, and return its number; a single string is one passage.

        Values of ``metadata`` are strings, numbers, dates, booleans or lists of strings. Each name becomes a column of
        :attr:`Collection.metadata`; strings become numbers, dates (``2015-01-31``) or booleans if all of a column can.
        """
        if doc_id in self._documents:
            _fail(f"duplicate document id {doc_id!r}", at)
        _check_characters(at, doc_id, title)
        texts = _as_texts(passages, f"document {doc_id!r}", at)
        number = self._documents[doc_id] = len(self._doc_ids)
        self._doc_ids.append(doc_id)
        self._passage_counts.append(0)
        self._titles.append(title)
        for text in texts:
            self.add_passage(number, text, at=at)
        if metadata:
            self.add_metadata(number, metadata, at)
        return number

    def add_metadata(self, document: int, metadata: Mapping[str, Any], at: At = None) -> None:
        """Add metadata of a document, given by its number; other values of the same names are replaced."""
        for name, raw_value in metadata.items():
            if not isinstance(name, str) or not name:
                _fail(f"metadata of {self._doc_ids[document]!r} must have names, found {name!r}; rename it", at)
            value = plain_value(raw_value)
            texts = value if isinstance(value, list) else [value]
            _check_characters(at, name, *(text for text in texts if isinstance(text, str)))
            self._metadata.setdefault(document, {})[name] = value

    def set_title(self, document: int, title: str, at: At = None) -> None:
        """Set the title of a document, given by its number."""
        _check_characters(at, "", title)
        self._titles[document] = title

    def document_number(self, doc_id: str) -> int | None:
        """Return the number of a document that was added before, or None."""
        return self._documents.get(doc_id)

    def add_passage(
        self, document: int, text: str, passage_id: str | None = None, section: int = -1, at: At = None
    ) -> None:
        """Add one passage; the default id is ``<document id>:<position in the document, from 0>``."""
        if not isinstance(text, str):
            _fail_type("a passage", text, at)
        if not text.strip():
            self._n_blank += 1
            return
        _check_characters(at, passage_id or "", text)
        if passage_id is None:
            passage_id = f"{self._doc_ids[document]}:{self._passage_counts[document]}"
        elif passage_id in self._explicit_ids:
            _fail(f"duplicate passage id {passage_id!r}", at)
        else:
            self._explicit_ids[passage_id] = len(self._passage_doc)
        self._passage_counts[document] += 1
        self._passage_ids.append(passage_id)
        self._texts.append(text)
        self._passage_doc.append(document)
        self._passage_section.append(section)

    def add_to(self, doc_id: str, text: str, passage_id: str | None = None, at: At = None) -> None:
        """Add one passage to a document, and add the document first if it is new."""
        number = self._documents.get(doc_id)
        self.add_passage(self.add_document(doc_id) if number is None else number, text, passage_id, at=at)

    def add_section(self, document: int, section_id: str, title: str, parent: str | None, at: At = None) -> int:
        """Add a section and return its number; ``parent`` is the id of an earlier section, or None for a root."""
        if section_id in self._sections:
            _fail(f"duplicate section id {section_id!r}", at)
        _check_characters(at, section_id, title)
        self._section_parent.append(-1 if parent is None else self._section(parent, at))
        self._section_doc.append(document)
        self._section_titles.append(title)
        return self._sections.setdefault(section_id, len(self._sections))

    def add_internal_link(self, passage_id: str, section_id: str, at: At = None) -> None:
        """Add a link from a passage, which needs an explicit id, to a section of its own document."""
        if passage_id not in self._explicit_ids:
            _fail(f"unknown passage id {passage_id!r} in an internal link", at)
        self._links["internal"].append((self._explicit_ids[passage_id], self._section(section_id, at)))

    def add_external_link(self, source_id: str, doc_id: str, at: At = None) -> None:
        """Add a link from a passage or a section to a document that it cites."""
        target = self._document(doc_id, "an external link", at)
        if source_id in self._explicit_ids:
            self._links["passage_to_document"].append((self._explicit_ids[source_id], target))
        else:
            self._links["section_to_document"].append((self._section(source_id, at), target))

    def _section(self, section_id: str, at: At) -> int:
        if section_id not in self._sections:
            _fail(f"unknown section id {told_apart(section_id, self._sections)}", at)
        return self._sections[section_id]

    def _document(self, doc_id: str, where: str, at: At) -> int:
        if doc_id not in self._documents:
            shown = told_apart(doc_id, self._documents)
            hint = "; missing_judgements='skip' skips such judgements" if where.startswith("qrels") else ""
            _fail(f"{where} names document {shown}, which is not in the collection{hint}", at)
        return self._documents[doc_id]

    def add_query(
        self,
        query_id: str,
        paragraphs: str | Iterable[str],
        own: str | None = None,
        split: str | None = None,
        at: At = None,
        date: Any = None,
    ) -> None:
        """Add a query, given by its paragraphs; a single string is one paragraph.

        ``own`` is the id of the document that the query was taken from; an id outside the collection has no effect.
        ``date`` is a year, a month or a day (:mod:`~haybale.collections.dates`).
        """
        self._check_not_empty()  # otherwise an empty collection would be reported as an unknown id
        if query_id in self._queries:
            _fail(f"duplicate query id {query_id!r}", at)
        kept = []
        for text in _as_texts(paragraphs, f"query {query_id!r}", at):
            if not isinstance(text, str):
                _fail_type("a paragraph", text, at)
            kept += [text] if text.strip() else []
        if not kept:
            _fail(f"query {query_id!r} is empty", at)
        _check_characters(at, query_id, *kept)
        number = self._queries[query_id] = len(self._queries)
        self._paragraphs += kept
        self._query_offsets.append(len(self._paragraphs))
        self._own.append(-1 if own is None else self._documents.get(own, -1))
        try:
            self._query_dates.append(first_day(date, f"query {query_id!r}"))
        except InputError as error:
            _fail(str(error), at)
        if split is not None:
            self._split_queries.setdefault(split, {})[number] = None

    def add_judgement(self, split: str, query_id: str, doc_id: str, grade: int = 1, at: At = None) -> None:
        """Judge a document for a query, and add the query to the split. A repeated judgement changes nothing."""
        if query_id not in self._queries:
            shown = told_apart(query_id, self._queries)
            _fail(f"qrels of {split} name query {shown}, which does not exist", at)
        if not -(2**31) <= grade < 2**31:
            _fail(f"a grade must fit into 32 bits, found {grade:.3g}", at)
        if self.missing_judgements == "skip" and doc_id not in self._documents:
            self._n_missing += 1
            self._split_queries.setdefault(split, {})[self._queries[query_id]] = None
            return
        pair = (self._queries[query_id], self._document(doc_id, f"qrels of {split}", at))
        first_grade = self._grades.setdefault(split, {}).setdefault(pair, grade)
        if first_grade != grade:
            _fail(f"query {query_id!r} and document {doc_id!r} are judged both {first_grade} and {grade}", at)
        self._split_queries.setdefault(split, {})[pair[0]] = None

    def build(self, *, warn: bool = True) -> Collection:
        """Return the collection. The passages of a document are adjacent, in the order in which they were added.

        ``warn=False`` suppresses the warnings about passages and judgements that were left out.
        """
        self._check_not_empty()
        _check_characters(None, "".join(self._split_queries), self.name)
        if self._n_blank and warn:
            message = (
                f"collection {self.name!r}: {self._n_blank} passages of only whitespace were left out; remove them"
            )
            warnings.warn(message, stacklevel=2)
        if self._n_missing and warn:
            total = self._n_missing + sum(map(len, self._grades.values()))
            message = (
                f"collection {self.name!r}: {self._n_missing:,} of {total:,} judgements name documents that are not in "
                "the collection; they were skipped, and recall does not count them; add the documents to include them"
            )
            warnings.warn(message, stacklevel=2)
        doc_offsets, order = _group_by_document(self._passage_doc, len(self._doc_ids))
        section_offsets, section_order = _group_by_document(self._section_doc, len(self._doc_ids))
        new_section = np.append(np.argsort(section_order), -1)  # the last entry stands for no section
        sections = of_section = links = None
        if self._sections:
            sections = Sections(
                ids=strings_of(self._sections).take(pa.array(section_order)),
                titles=strings_of(self._section_titles).take(pa.array(section_order)),
                parents=new_section[np.array(self._section_parent)[section_order]],
                doc_offsets=section_offsets,
            )
            of_section = new_section[np.array(self._passage_section)[order]]
        if any(self._links.values()):
            links = Links(*(np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in self._links.values()))
            links = links.renumbered(np.argsort(order), new_section, np.arange(len(self._doc_ids)))
        dates = np.array(self._query_dates, dtype=np.int64)
        return Collection(
            name=self.name,
            doc_ids=strings_of(self._doc_ids),
            doc_titles=strings_of(self._titles),
            passages=Passages(self._passage_ids.finish(order), self._texts.finish(order), doc_offsets, of_section),
            queries=Queries(
                ids=strings_of(self._queries),
                paragraphs=strings_of(self._paragraphs),
                offsets=np.array(self._query_offsets),
                own=np.array(self._own, dtype=np.int64),
                dates=dates if (dates != UNDATED).any() else None,
            ),
            splits={name: self._split(name) for name in sorted_splits(self._split_queries)},
            sections=sections,
            links=links,
            language=self.language,
            metadata=metadata_table([self._metadata.get(number, {}) for number in range(len(self._doc_ids))]),
        )

    def _check_not_empty(self) -> None:
        if not self._passage_doc:
            raise InputError(f"collection {self.name!r} is empty: no document has a passage; add one with text")

    def _split(self, name: str) -> Split:
        grades = self._grades.get(name, {})
        judged_queries, documents = np.array(list(grades), dtype=np.int64).reshape(-1, 2).T
        queries = np.array(list(self._split_queries[name]), dtype=np.int64)
        return Split(name, queries, judged_queries, documents, np.array(list(grades.values()), dtype=np.int64))


def sorted_splits(splits: Iterable[str]) -> list[str]:
    """Return the names of splits in the order train, dev, test, then all others by name."""
    first = {"train": 0, "dev": 1, "test": 2}
    return sorted(splits, key=lambda split: (first.get(split, 3), split))


def _fail(message: str, at: At) -> NoReturn:
    raise InputError(message) if at is None else FileFormatError(at[0], at[1], message)


def _fail_type(what: str, value: object, at: At) -> NoReturn:
    _fail(f"{what} must be a string, found {type(value).__name__} {value!r:.40}; convert it with str()", at)


def _as_texts(texts: str | Iterable[str], what: str, at: At) -> Iterable[str]:
    """Return one text as a list; raise an error for what is no text and no iterable."""
    if not isinstance(texts, Iterable):
        _fail(f"{what} must have a string or a list of strings, found {type(texts).__name__}; give its paragraphs", at)
    return [texts] if isinstance(texts, str) else texts


def _check_characters(at: At, name: str, *texts: str) -> None:
    """Reject lone surrogates, which are valid in JSON but not in Arrow, and NUL characters in the id ``name``."""
    for text in (name, *texts):
        if not isinstance(text, str):
            _fail_type("an id, title or text", text, at)
    if "\0" in name:
        _fail(f"an id must not contain NUL characters, found {name!r}", at)
    try:
        check_characters(name + "".join(texts), "an id, title or text")
    except InputError as error:
        _fail(str(error), at)


def _group_by_document(documents: array[int], n: int) -> tuple[Ints, Ints]:
    """Return the offsets (n + 1,) of n documents, and the stable order that sorts items by document."""
    numbers = np.array(documents, dtype=np.int64)
    return indptr_from_counts(np.bincount(numbers, minlength=n)), np.argsort(numbers, kind="stable")
