"""Hold a test collection in memory: documents, their passages, queries, and relevance judgements by split.

Texts and ids are Arrow arrays, and numbers are NumPy arrays. There is no Python object for each passage, because a
collection may have millions (GerDaLIR: 3.1 million). Documents, passages, sections and queries are numbered from 0 in
the order of the files. All other packages work with these numbers; string ids are for input and output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.arrow import number_array
from haybale.cached import cached_property
from haybale.collections.ids import Ints as Ints
from haybale.collections.ids import Lookup, first_in_both, in_order_of_ids
from haybale.collections.ids import Strings as Strings
from haybale.collections.metadata import documents_table, joined_metadata
from haybale.collections.query_groups import joined_groups, same_words
from haybale.collections.unread import UnreadPart
from haybale.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

_MAX_CHUNKS = 64  # a column with more Arrow chunks is copied into one


@dataclass(frozen=True)
class Sections:
    """The section trees of all documents; ``doc_offsets[d]:doc_offsets[d + 1]`` are the sections of document d.

    ``parents`` has the number of the enclosing section, or -1 for a root.
    """

    ids: Strings  # (n_sections,)
    titles: Strings  # (n_sections,)
    parents: Ints  # (n_sections,)
    doc_offsets: Ints  # (n_documents + 1,)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Links:
    """References in the text, as pairs ``(source, target)`` of numbers.

    ``internal`` links a passage to a section of the same document. The other two link a passage to a document that it
    cites, or a section if the citing passage is unknown.
    """

    internal: Ints  # (n, 2) passage -> section
    passage_to_document: Ints  # (n, 2)
    section_to_document: Ints  # (n, 2)

    def renumbered(self, passages: Ints, sections: Ints, documents: Ints) -> Links:
        """Return the links with new numbers; each argument maps old to new numbers, and -1 drops the link."""
        ends = (passages, sections), (passages, documents), (sections, documents)
        renumbered = [
            np.stack([new[edges[:, i]] for i, new in enumerate(pair)], axis=1)
            for edges, pair in zip(vars(self).values(), ends, strict=True)
        ]
        return Links(*(edges[(edges >= 0).all(axis=1)] for edges in renumbered))


@dataclass(frozen=True)
class Passages:
    """All passages; ``doc_offsets[d]:doc_offsets[d + 1]`` are the passages of document d."""

    ids: Strings  # (n_passages,)
    texts: Strings  # (n_passages,)
    doc_offsets: Ints  # (n_documents + 1,)
    sections: Ints | None = None  # (n_passages,) section numbers, -1 for none; None if no document has sections

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def doc_of(self) -> Ints:
        """Return the document number of each passage, (n_passages,)."""
        return np.repeat(np.arange(len(self.doc_offsets) - 1), np.diff(self.doc_offsets))


class LazyPassages(Passages):
    """Passages whose texts are loaded on first use, because ranking does not need them."""

    def __init__(
        self, ids: Strings, texts: Callable[[], Strings] | Strings, doc_offsets: Ints, sections: Ints | None = None
    ) -> None:
        vars(self).update(ids=ids, doc_offsets=doc_offsets, sections=sections, _source=texts)

    @cached_property
    def texts(self) -> Strings:
        """Return the texts, (n_passages,)."""
        source: Any = vars(self)["_source"]  # a column if dataclasses.replace made this object
        return source() if callable(source) else source

    def __reduce__(self) -> tuple[type[Passages], tuple[Any, ...]]:
        """Pickle the passages with their texts, since a function cannot be pickled."""
        return Passages, (self.ids, self.texts, self.doc_offsets, self.sections)


def utf8_bytes(column: pa.Array) -> memoryview:
    """Return the strings of a column, one after the other, as UTF-8."""
    column = column.cast(pa.large_string())
    _, offsets, values = column.buffers()
    if values is None or not len(column):
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int64)[[column.offset, column.offset + len(column)]]
    return memoryview(values)[ends[0] : ends[1]]


@dataclass(frozen=True)
class Queries:
    """Queries of one or more paragraphs; ``paragraphs[offsets[i]:offsets[i + 1]]`` are the paragraphs of query i.

    ``own`` has the document that each query was taken from, or -1. The ranking of the query excludes this document.
    ``dates`` has the first day that the date of each query may mean (:mod:`~haybale.collections.dates`); None if no
    query has a date.
    ``numbered`` says that the texts came without ids: the ids only count them, and name no query.
    """

    ids: Strings  # (n_queries,)
    paragraphs: Strings  # (n_paragraphs,)
    offsets: Ints  # (n_queries + 1,)
    own: Ints  # (n_queries,)
    dates: Ints | None = None  # (n_queries,) days since 1970-01-01, UNDATED for a query without a date
    numbered: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def groups(self) -> Ints:
        """Return a group number for each query, (n_queries,).

        Queries from the same document share one, as do queries with the same words
        (:mod:`~haybale.collections.query_groups`).
        """
        return self._groups_by(self.own)

    @cached_property
    def same_words(self) -> Ints:
        """Return a number for each query, (n_queries,), which queries with the same words share."""
        return same_words(self.texts(range(len(self))))

    def groups_by_document_id(self, doc_ids: Strings) -> Ints:
        """Return :attr:`groups`, numbered by the ids of the documents, so that their order makes no difference."""
        own_documents, has_own = self.own.copy(), self.own >= 0
        own_documents[has_own] = in_order_of_ids(doc_ids, own_documents[has_own])[1]
        return self._groups_by(own_documents)

    def _groups_by(self, own_documents: Ints) -> Ints:
        alone = -1 - np.arange(len(self))
        return joined_groups(np.where(own_documents >= 0, own_documents, alone), [self.same_words])

    def texts(self, numbers: Sequence[int] | Ints) -> list[str]:
        """Return the text of each query: its paragraphs, joined by newlines."""
        return ["\n".join(self.paragraphs_of(int(i))) for i in numbers]

    def paragraphs_of(self, number: int) -> list[str]:
        """Return the paragraphs of one query."""
        return list(self.paragraphs[self.offsets[number] : self.offsets[number + 1]].to_pylist())

    def take(self, numbers: Sequence[int] | Ints) -> Queries:
        """Return the queries with the given numbers, in this order; unknown or repeated ones raise InputError."""
        chosen = numbers_below(numbers, len(self), "query")
        distinct, counts = np.unique(chosen, return_counts=True)
        if len(distinct) != len(chosen):
            raise InputError(f"query numbers must be distinct, found {distinct[counts.argmax()]} more than once")
        rows, offsets = ragged_take(self.offsets, chosen)
        dates = None if self.dates is None else self.dates[chosen]
        columns = strings_at(self.ids, chosen), strings_at(self.paragraphs, rows), offsets, self.own[chosen], dates
        part = Queries(*columns, self.numbered)
        if "same_words" in vars(self):
            vars(part)["same_words"] = self.same_words[chosen]
        return part


@dataclass(frozen=True)
class Split:
    """The queries of one split and their judgements; a grade above 0 means relevant."""

    name: str
    queries: Ints  # (n,) query numbers
    judged_queries: Ints  # (n_judgements,)
    judged_documents: Ints  # (n_judgements,)
    grades: Ints  # (n_judgements,)

    def relevant(self) -> tuple[Ints, Ints]:
        """Return the relevant pairs as ``(query numbers, document numbers)``."""
        keep = self.grades > 0
        return self.judged_queries[keep], self.judged_documents[keep]

    def relevant_rows(self) -> tuple[Ints, Ints]:
        """Return the relevant pairs as ``(positions in queries, document numbers)``."""
        queries, documents = self.relevant()
        order = np.argsort(self.queries)
        return order[np.searchsorted(self.queries, queries, sorter=order)], documents


@dataclass(frozen=True)
class Collection:
    """Documents, passages, queries and judgements.

    :func:`open_collection` and :class:`CollectionBuilder` create collections.

    Parameters
    ----------
    name : str
    doc_ids, doc_titles : (n_documents,) Arrow arrays of large_string
    passages : Passages
    queries : Queries
    splits : dict of str to Split
        Splits by name, such as ``"train"``.
    sections : Sections, optional
    links : Links, optional
    language : str, optional
        Language of the texts, for stop words and stemming; by default it is detected.
    metadata : pyarrow.Table, optional
        A row for each document, with columns of strings, integers, floats, dates, booleans or lists of strings.
    unread : tuple of UnreadPart, optional
        The parts of files whose text is not in the documents (:mod:`haybale.collections.unread`). Default: none.

    Examples
    --------
    >>> from haybale.collections import CollectionBuilder
    >>> builder = CollectionBuilder("two laws")
    >>> _ = builder.add_document("a", ["Dogs must be kept on a lead.", "Cats need no lead."])
    >>> _ = builder.add_document("b", ["Taxes are due in May."])
    >>> _ = builder.add_query("q", ["Who must pay taxes?"])
    >>> builder.add_judgement("test", "q", "b")
    >>> builder.build()
    Collection 'two laws': 2 documents, 3 passages, 1 query (test 1)
    """

    name: str
    doc_ids: Strings
    doc_titles: Strings
    passages: Passages
    queries: Queries
    splits: dict[str, Split]
    sections: Sections | None = None
    links: Links | None = None
    language: str | None = None
    metadata: pa.Table | None = None
    unread: tuple[UnreadPart, ...] = ()

    @property
    def n_documents(self) -> int:
        return len(self.doc_ids)

    @property
    def n_passages(self) -> int:
        return len(self.passages)

    @property
    def n_queries(self) -> int:
        return len(self.queries)

    def split(self, name: str) -> Split:
        """Return the split with the given name; an unknown name raises :class:`UnknownNameError`."""
        try:
            return self.splits[name]
        except KeyError:
            if not self.splits:
                raise InputError(
                    f"{self.name!r} has no queries, so no split {name!r}; add judged queries (haybale judge)"
                ) from None
            raise UnknownNameError(f"split of {self.name}", name, self.splits) from None

    def document_texts(self) -> list[str]:
        """Return the text of each document: its passages, joined by newlines."""
        texts, offsets = self.passages.texts.to_pylist(), self.passages.doc_offsets
        return ["\n".join(texts[start:end]) for start, end in pairwise(offsets)]

    def documents_table(self) -> pa.Table:
        """Return a table with a row for each document: ``id``, ``title``, ``passages`` (their number) and metadata."""
        n_passages = number_array(np.diff(self.passages.doc_offsets))
        return documents_table(self.doc_ids, self.doc_titles, n_passages, self.metadata)

    def qrels_frame(self, split: str) -> pd.DataFrame:
        """Return the judgements of a split as a frame with the columns ``query_id``, ``doc_id`` and ``relevance``."""
        import pandas as pd

        part = self.split(split)
        return pd.DataFrame(
            {
                "query_id": take_strings(self.queries.ids, part.judged_queries),
                "doc_id": take_strings(self.doc_ids, part.judged_documents),
                "relevance": part.grades,
            }
        )

    def relevant_ids(self, split: str) -> list[list[str]]:
        """Return, for each query of a split in order, the ids of its relevant documents."""
        return self._ids_of_rows(*(part := self.split(split)).relevant_rows(), len(part.queries))

    def irrelevant_ids(self, split: str) -> list[list[str]]:
        """Return, for each query of a split in order, the ids of the documents that are judged irrelevant."""
        part = self.split(split)
        others = replace(part, grades=(part.grades <= 0).astype(np.int64))
        return self._ids_of_rows(*others.relevant_rows(), len(part.queries))

    def _ids_of_rows(self, rows: Ints, documents: Ints, n: int) -> list[list[str]]:
        ids: list[list[str]] = [[] for _ in range(n)]
        for row, doc_id in zip(rows, take_strings(self.doc_ids, documents), strict=True):
            ids[row].append(doc_id)
        return ids

    def query_numbers(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers (n,) of query ids; an unknown id raises :class:`InputError`."""
        return self._lookups["query"].numbers(ids, "query")

    def passage_numbers(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers (n,) of passage ids; an unknown id raises :class:`InputError`."""
        return self._lookups["passage"].numbers(ids, "passage")

    def document_numbers(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers (n,) of document ids; an unknown id raises :class:`InputError`."""
        return self._lookups["document"].numbers(ids, "document")

    def find_documents(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers (n,) of document ids, -1 for unknown ids."""
        return self._lookups["document"].find(ids, "document")

    @cached_property
    def _lookups(self) -> dict[str, Lookup]:
        columns = {"query": self.queries.ids, "passage": self.passages.ids, "document": self.doc_ids}
        return {kind: Lookup(ids) for kind, ids in columns.items()}

    def take(self, documents: Sequence[int] | Ints, latest: Ints | None = None) -> Collection:
        """Return a collection of the documents with the given ascending numbers (n,), renumbered from 0.

        All queries are kept, but a query from another document loses its own document. Judgements and links of other
        documents are dropped. Invalid numbers, or documents without any passage, raise :class:`InputError`.

        With ``latest`` (n_documents,), document ``latest[d]`` replaces document d: it gets the queries, the judgements
        and the links to d.
        """
        chosen = rising_numbers(documents, self.n_documents, "document")
        rows, offsets = ragged_take(self.passages.doc_offsets, chosen)
        if not len(rows):
            raise InputError(f"collection {self.name!r}: expected documents with passages, found {len(chosen)} without")
        old, of_section = self.sections or _no_sections(self.n_documents), self.passages.sections
        numbers, section_offsets = ragged_take(old.doc_offsets, chosen)
        new_section, new = _renumbered(numbers, len(old)), _renumbered(chosen, self.n_documents)
        if latest is not None:
            new = np.append(new[latest], -1)
        links = self.links and self.links.renumbered(_renumbered(rows, self.n_passages), new_section, new)
        sections = Sections(
            ids=strings_at(old.ids, numbers),
            titles=strings_at(old.titles, numbers),
            parents=new_section[old.parents[numbers]],
            doc_offsets=section_offsets,
        )
        splits = {}
        for name, part in self.splits.items():
            judged = new[part.judged_documents]
            kept = judged >= 0
            splits[name] = Split(name, part.queries, part.judged_queries[kept], judged[kept], part.grades[kept])
        return replace(
            self,
            doc_ids=strings_at(self.doc_ids, chosen),
            doc_titles=strings_at(self.doc_titles, chosen),
            passages=LazyPassages(
                ids=strings_at(self.passages.ids, rows),
                texts=lambda: strings_at(self.passages.texts, rows),
                doc_offsets=offsets,
                sections=None if of_section is None else new_section[of_section[rows]],
            ),
            queries=replace(self.queries, own=new[self.queries.own]),
            splits=splits,
            sections=None if self.sections is None else sections,
            links=links,
            metadata=None if self.metadata is None else self.metadata.take(pa.array(chosen)),
        )

    def extended(self, other: Collection, *, distinct: bool = True) -> Collection:
        """Return this collection with the documents of ``other`` added, but not its queries and judgements.

        An id of a document, passage or section that occurs in both collections raises :class:`InputError`, unless
        ``distinct`` is false. Then :meth:`take` only one document with each id before looking ids up.
        """
        both = (self, other)
        one, two = (part.sections or _no_sections(part.n_documents) for part in both)
        columns = (self.doc_ids, other.doc_ids), (self.passages.ids, other.passages.ids), (one.ids, two.ids)
        for kind, (ids, other_ids) in zip(("document", "passage", "section"), columns, strict=True):
            if distinct and (shared := first_in_both(ids, other_ids)) is not None:
                raise InputError(f"{kind} id {shared!r} is in both collections, expected new ids; rename or remove it")

        def joined_section_numbers(first: Ints, second: Ints) -> Ints:
            return np.concatenate([first, np.where(second < 0, -1, second + len(one))])

        sections = Sections(
            ids=joined_strings(one.ids, two.ids),
            titles=joined_strings(one.titles, two.titles),
            parents=joined_section_numbers(one.parents, two.parents),
            doc_offsets=joined_offsets(one.doc_offsets, two.doc_offsets),
        )
        old_sections = [part.passages.sections for part in both]
        of_passages = [
            np.full(part.n_passages, -1) if numbers is None else numbers
            for part, numbers in zip(both, old_sections, strict=True)
        ]
        links = self.links
        if other.links is not None:
            first = links or Links(*3 * (np.empty((0, 2), dtype=np.int64),))
            counts = (self.n_passages, other.n_passages), (len(one), len(two)), (self.n_documents, other.n_documents)
            second = other.links.renumbered(*(np.arange(n, n + more) for n, more in counts))
            links = Links(*map(np.concatenate, zip(vars(first).values(), vars(second).values(), strict=True)))
        return replace(
            self,
            doc_ids=joined_strings(self.doc_ids, other.doc_ids),
            doc_titles=joined_strings(self.doc_titles, other.doc_titles),
            passages=LazyPassages(
                ids=joined_strings(self.passages.ids, other.passages.ids),
                texts=_Joined.of(self.passages, other.passages),
                doc_offsets=joined_offsets(self.passages.doc_offsets, other.passages.doc_offsets),
                sections=None if all(part is None for part in old_sections) else joined_section_numbers(*of_passages),
            ),
            sections=None if all(part.sections is None for part in both) else sections,
            links=links,
            metadata=joined_metadata(self.metadata, self.n_documents, other.metadata, other.n_documents),
            unread=self.unread + other.unread,
        )

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of documents, passages, sections, links, queries and judgements.

        The digest does not depend on the name, the language, the Arrow chunks or the order of the splits.
        """
        sha = hashlib.sha256(b"haybale collection 1")
        for name, column in self._content():
            sha.update(f"\n{name} {len(column)}\n".encode())
            if isinstance(column, np.ndarray):
                sha.update(np.ascontiguousarray(column, dtype="<i8").ravel().data)
                continue
            for chunk in column.chunks:  # lengths first, so that "ab", "c" differs from "a", "bc"
                sha.update(pc.binary_length(chunk).to_numpy().astype("<i8", copy=False).data)
            for chunk in column.chunks:
                sha.update(utf8_bytes(chunk))
        if self.metadata is not None:
            sha.update(json.dumps(self.metadata.to_pydict(), default=str).encode())
        return sha.hexdigest()

    def _content(self) -> Iterator[tuple[str, Strings | Ints]]:
        """Yield the name and the values of every column."""
        names = sorted(self.splits)
        yield from (
            ("documents ids", self.doc_ids),
            ("documents titles", self.doc_titles),
            ("splits", strings_of(names)),
        )
        parts: dict[str, Any] = {name: getattr(self, name) for name in ("passages", "sections", "links", "queries")}
        parts |= {f"split {number}": self.splits[name] for number, name in enumerate(names)}
        for part, columns in parts.items():
            for field in () if columns is None else fields(columns):
                column = getattr(columns, field.name)
                if column is not None and not isinstance(column, str | bool):
                    yield f"{part} {field.name}", column

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(part.queries):,}" for name, part in self.splits.items())
        counts = (
            f"{self.n_documents:,} documents, {self.n_passages:,} passages, "
            f"{self.n_queries:,} {'query' if self.n_queries == 1 else 'queries'}"
        )
        return f"Collection {self.name!r}: {counts} ({splits})"


def take_strings(strings: Strings, numbers: Ints) -> list[str]:
    """Return the strings at the given positions, as a list."""
    return list(strings_at(strings, numbers).to_pylist())


def strings_of(values: Iterable[str]) -> Strings:
    """Return strings as an Arrow column."""
    return pa.chunked_array([pa.array(list(values), type=pa.large_string())])


def strings_at(strings: Strings, numbers: Ints) -> Strings:
    """Return the strings at the given positions, as an Arrow column."""
    return strings.take(number_array(numbers))


@dataclass(frozen=True)
class _Joined:
    """A function that loads and concatenates the texts of several passages.

    The parts of another concatenation are flattened: an engine may be extended a thousand times without deep recursion.
    """

    parts: tuple[Passages, ...]

    @classmethod
    def of(cls, *passages: Passages) -> _Joined:
        sources = [vars(part).get("_source") for part in passages]
        parts = [
            source.parts if isinstance(source, _Joined) else (part,)
            for source, part in zip(sources, passages, strict=True)
        ]
        return cls(sum(parts, ()))

    def __call__(self) -> Strings:
        return joined_strings(*(part.texts for part in self.parts))


def joined_strings(*columns: Strings) -> Strings:
    """Return the concatenated columns, in at most 64 chunks."""
    joined = pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=pa.large_string())
    return joined if joined.num_chunks <= _MAX_CHUNKS else pa.chunked_array([joined.combine_chunks()])


def joined_offsets(first: Ints, second: Ints) -> Ints:
    """Return the offsets of two concatenated ragged arrays."""
    return np.concatenate([first, second[1:] + first[-1]])


def indptr_from_counts(counts: Sequence[int] | Ints) -> Ints:
    """Return the offsets of a ragged array whose rows have the given lengths."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def ragged_take(offsets: Ints, owners: Ints) -> tuple[Ints, Ints]:
    """Select rows of a ragged array: return the positions of their items, and the offsets of the new array.

    >>> ragged_take(np.array([0, 2, 2, 5]), np.array([0, 2]))
    (array([0, 1, 2, 3, 4]), array([0, 2, 5]))
    """
    counts = np.diff(offsets)[owners]
    new = indptr_from_counts(counts)
    return np.repeat(offsets[owners] - new[:-1], counts) + np.arange(new[-1]), new


def rising_numbers(numbers: Sequence[int] | Ints, n: int, kind: str) -> Ints:
    """Return ``numbers`` as int64 (m,); reject numbers outside 0 to n - 1 or not in strictly ascending order."""
    chosen = numbers_below(numbers, n, kind)
    if len(wrong := np.flatnonzero(np.diff(chosen) <= 0)):
        before, after = chosen[wrong[0] : wrong[0] + 2]
        raise InputError(f"{kind} numbers must be in ascending order, found {after} after {before}")
    return chosen


def whole_numbers(numbers: Sequence[int] | Ints, what: str) -> Ints:
    """Return ``numbers`` as int64 (m,); reject floats, which NumPy would truncate, and booleans."""
    chosen = np.asarray(numbers)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and len(chosen)):
        raise InputError(f"expected {what} as integers (n,), found {chosen.dtype} {chosen.shape}")
    return chosen.astype(np.int64, copy=False)


def numbers_below(numbers: Sequence[int] | Ints, n: int, kind: str) -> Ints:
    """Return ``numbers`` as int64 (m,), in any order; reject numbers outside 0 to n - 1."""
    chosen = whole_numbers(numbers, f"{kind} numbers")
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < n:
        invalid_number = chosen.min() if chosen.min() < 0 else chosen.max()
        raise InputError(f"{kind} numbers must be between 0 and {n - 1}, found {invalid_number}")
    return chosen


def _renumbered(kept: Ints, n: int) -> Ints:
    """Map old to new numbers (n + 1,), -1 for items that are not kept; the last entry maps -1 to -1."""
    new = np.full(n + 1, -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))
    return new


def _no_sections(n_documents: int) -> Sections:
    none = pa.chunked_array([], type=pa.large_string())
    return Sections(none, none, np.empty(0, dtype=np.int64), np.zeros(n_documents + 1, dtype=np.int64))
