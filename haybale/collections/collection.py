"""Hold a test collection in memory: documents, their passages, queries, and relevance judgements by split.

Texts and ids are Arrow arrays, numbers are NumPy arrays; there is no Python object for each passage, since GerDaLIR has
3.1 million of them. Documents, passages, sections and queries are numbered from 0 in the order of the files. Other
packages work with these numbers; string ids serve input and output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.arrow import number_array
from haybale.collections.ids import Ints as Ints
from haybale.collections.ids import Lookup, first_in_both
from haybale.collections.ids import Strings as Strings
from haybale.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

_CHUNKS = 64  # of a column; more are copied into one


@dataclass(frozen=True)
class Sections:
    """Section trees of all documents; the sections of a document stand together.

    ``parents`` is the number of the enclosing section, -1 for a root; section ``s`` belongs to the document
    ``d`` with ``doc_offsets[d] <= s < doc_offsets[d + 1]``.
    """

    ids: Strings  # (n_sections,)
    titles: Strings  # (n_sections,)
    parents: Ints  # (n_sections,)
    doc_offsets: Ints  # (n_documents + 1,)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Links:
    """References in the text; each row is ``(from, to)`` in numbers.

    ``internal`` links a passage with a section of the same document; the other two link a passage, or (if the citing
    passage is unknown) a section, with a document.
    """

    internal: Ints  # (n, 2) passage -> section
    passage_to_document: Ints  # (n, 2)
    section_to_document: Ints  # (n, 2)

    def renumbered(self, passages: Ints, sections: Ints, documents: Ints) -> Links:
        """Return the links with new numbers of their ends; a link with an end of number -1 is left out."""
        ends = (passages, sections), (passages, documents), (sections, documents)
        moved = [
            np.stack([new[edges[:, i]] for i, new in enumerate(pair)], axis=1)
            for edges, pair in zip(vars(self).values(), ends, strict=True)
        ]
        return Links(*(edges[(edges >= 0).all(axis=1)] for edges in moved))


@dataclass(frozen=True)
class Passages:
    """All passages; ``doc_offsets[d]:doc_offsets[d + 1]`` are those of document d."""

    ids: Strings  # (n_passages,)
    texts: Strings  # (n_passages,)
    doc_offsets: Ints  # (n_documents + 1,)
    sections: Ints | None = None  # (n_passages,) number of the section, if documents have sections

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def doc_of(self) -> Ints:
        """Return the document of each passage, (n_passages,)."""
        return np.repeat(np.arange(len(self.doc_offsets) - 1), np.diff(self.doc_offsets))


class LazyPassages(Passages):
    """Passages whose texts are read, or made, on first use, since ranking does not need them."""

    def __init__(
        self, ids: Strings, texts: Callable[[], Strings] | Strings, doc_offsets: Ints, sections: Ints | None = None
    ) -> None:
        vars(self).update(ids=ids, doc_offsets=doc_offsets, sections=sections, _given=texts)

    @cached_property
    def texts(self) -> Strings:
        """Return the texts, (n_passages,)."""
        given: Any = vars(self)["_given"]  # dataclasses.replace passes texts
        return given() if callable(given) else given

    def __reduce__(self) -> tuple[type[Passages], tuple[Any, ...]]:
        """Pickle passages with their texts, for other processes."""
        return Passages, (self.ids, self.texts, self.doc_offsets, self.sections)


@dataclass(frozen=True)
class Queries:
    """Queries of one or several paragraphs: query i is ``paragraphs[offsets[i]:offsets[i + 1]]``.

    ``own`` is the document a query was taken from, which its ranking must leave out; -1 where there is none.
    """

    ids: Strings  # (n_queries,)
    paragraphs: Strings  # (n_paragraphs,)
    offsets: Ints  # (n_queries + 1,)
    own: Ints  # (n_queries,)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def groups(self) -> Ints:
        """Return (n_queries,) numbers; queries that were taken from one document share a number."""
        alone = -1 - np.arange(len(self))
        return np.unique(np.where(self.own >= 0, self.own, alone), return_inverse=True)[1]

    def texts(self, numbers: Sequence[int] | Ints) -> list[str]:
        """Return the whole text of each query, its paragraphs joined by newlines."""
        return ["\n".join(self.paragraphs_of(int(i))) for i in numbers]

    def paragraphs_of(self, number: int) -> list[str]:
        """Return the paragraphs of one query."""
        return list(self.paragraphs[self.offsets[number] : self.offsets[number + 1]].to_pylist())

    def take(self, numbers: Sequence[int] | Ints) -> Queries:
        """Return some of the queries by number, in this order; unknown and repeated numbers are refused."""
        chosen = numbers_below(numbers, len(self), "query")
        if len(np.unique(chosen)) != len(chosen):
            raise InputError("queries to be taken must be different ones")
        rows, offsets = ragged_take(self.offsets, chosen)
        return Queries(strings_at(self.ids, chosen), strings_at(self.paragraphs, rows), offsets, self.own[chosen])


@dataclass(frozen=True)
class Split:
    """The queries of one split and their judgements (grade > 0 is relevant)."""

    name: str
    queries: Ints  # (n,) query numbers
    judged_queries: Ints  # (n_judgements,)
    judged_documents: Ints  # (n_judgements,)
    grades: Ints  # (n_judgements,)

    def relevant(self) -> tuple[Ints, Ints]:
        """Return ``(query numbers, document numbers)`` of the relevant pairs."""
        keep = self.grades > 0
        return self.judged_queries[keep], self.judged_documents[keep]

    def relevant_rows(self) -> tuple[Ints, Ints]:
        """Return the same with the position of each query in ``queries`` instead of its number."""
        queries, documents = self.relevant()
        order = np.argsort(self.queries)
        return order[np.searchsorted(self.queries, queries, sorter=order)], documents


@dataclass(frozen=True)
class Collection:
    """Documents, passages, queries and judgements; made by a reader of :mod:`haybale.collections`.

    Parameters
    ----------
    name : str
    doc_ids, doc_titles : (n_documents,) Arrow arrays of large_string
    passages, queries : Passages, Queries
    splits : dict of str to Split
        By name, such as ``"train"``: the queries of each with their judgements.
    sections, links : Sections, Links, optional
    language : str, optional
        Language of stop words and stemmer; None: detected.

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
        """Return the split of that name; an unknown name raises an error that lists the splits."""
        try:
            return self.splits[name]
        except KeyError:
            raise UnknownNameError(f"split of {self.name}", name, self.splits) from None

    def document_texts(self) -> list[str]:
        """Return whole documents, their passages joined by newlines: (n_documents,) strings."""
        texts, offsets = self.passages.texts.to_pylist(), self.passages.doc_offsets
        return ["\n".join(texts[start:end]) for start, end in pairwise(offsets)]

    def qrels_frame(self, split: str) -> pd.DataFrame:
        """Return the judgements of a split by id: columns ``query_id``, ``doc_id``, ``relevance``."""
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
        """Return the ids of the relevant documents of each query of a split, in the order of its queries."""
        part = self.split(split)
        ids: list[list[str]] = [[] for _ in part.queries]
        rows, documents = part.relevant_rows()
        for row, doc_id in zip(rows, take_strings(self.doc_ids, documents), strict=True):
            ids[row].append(doc_id)
        return ids

    def query_numbers(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers of query ids, (n,); an unknown id raises an error that names it."""
        return self._lookups["query"].numbers(ids, "query")

    def passage_numbers(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers of passage ids, (n,); an unknown id raises an error that names it."""
        return self._lookups["passage"].numbers(ids, "passage")

    def document_numbers(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers of document ids, (n,); an unknown id raises an error that names it."""
        return self._lookups["document"].numbers(ids, "document")

    def find_documents(self, ids: Iterable[Any]) -> Ints:
        """Return the same, -1 for unknown ids."""
        return self._lookups["document"].find(ids, "document")

    @cached_property
    def _lookups(self) -> dict[str, Lookup]:
        columns = {"query": self.queries.ids, "passage": self.passages.ids, "document": self.doc_ids}
        return {kind: Lookup(ids) for kind, ids in columns.items()}

    def take(self, documents: Sequence[int] | Ints) -> Collection:
        """Return some of the documents, by rising numbers (n,), with all queries; they are numbered anew, from 0.

        Judgements and links of other documents are left out, and queries from other documents have no own document.
        Numbers that are unknown or do not rise are refused, and documents without any passage.
        """
        chosen = rising_numbers(documents, self.n_documents, "document")
        rows, offsets = ragged_take(self.passages.doc_offsets, chosen)
        if not len(rows):
            raise InputError(f"collection {self.name!r}: none of the {len(chosen)} documents to be taken has a passage")
        old, of_section = self.sections or _no_sections(self.n_documents), self.passages.sections
        numbers, section_offsets = ragged_take(old.doc_offsets, chosen)
        new_section, new = _renumbered(numbers, len(old)), _renumbered(chosen, self.n_documents)
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
            there = judged >= 0
            splits[name] = Split(name, part.queries, part.judged_queries[there], judged[there], part.grades[there])
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
        )

    def extended(self, other: Collection) -> Collection:
        """Return these documents and those of ``other``, without its queries, judgements, name and language.

        An id of a document, passage or section that occurs in both raises an error that names it.
        """
        both = (self, other)
        one, two = (part.sections or _no_sections(part.n_documents) for part in both)
        columns = (self.doc_ids, other.doc_ids), (self.passages.ids, other.passages.ids), (one.ids, two.ids)
        for kind, (mine, others) in zip(("document", "passage", "section"), columns, strict=True):
            if (twice := first_in_both(mine, others)) is not None:
                raise InputError(f"{kind} id {twice!r} is in both collections")

        def behind(mine: Ints, more: Ints) -> Ints:
            """Join numbers of sections; -1 stays."""
            return np.concatenate([mine, np.where(more < 0, -1, more + len(one))])

        sections = Sections(
            ids=joined_strings(one.ids, two.ids),
            titles=joined_strings(one.titles, two.titles),
            parents=behind(one.parents, two.parents),
            doc_offsets=joined_offsets(one.doc_offsets, two.doc_offsets),
        )
        given = [part.passages.sections for part in both]
        of_passages = [np.full(part.n_passages, -1) if a is None else a for part, a in zip(both, given, strict=True)]
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
                sections=None if all(part is None for part in given) else behind(*of_passages),
            ),
            sections=None if all(part.sections is None for part in both) else sections,
            links=links,
        )

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of documents, passages, sections, links, queries and judgements.

        It does not depend on name and language, on the chunks of Arrow arrays, nor on the order of the splits.
        """
        sha = hashlib.sha256(b"haybale collection 1")
        for name, column in self._content():
            sha.update(f"\n{name} {len(column)}\n".encode())
            if isinstance(column, np.ndarray):
                sha.update(np.ascontiguousarray(column, dtype="<i8").ravel().data)
                continue
            for chunk in column.chunks:  # lengths first, which separate the strings
                sha.update(pc.binary_length(chunk).to_numpy().astype("<i8", copy=False).data)
            for chunk in column.chunks:
                sha.update("".join(chunk.to_pylist()).encode())
        return sha.hexdigest()

    def _content(self) -> Iterator[tuple[str, Strings | Ints]]:
        """Yield all columns that exist, by name."""
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
                if column is not None and not isinstance(column, str):
                    yield f"{part} {field.name}", column

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(part.queries):,}" for name, part in self.splits.items())
        counts = (
            f"{self.n_documents:,} documents, {self.n_passages:,} passages, "
            f"{self.n_queries:,} {'query' if self.n_queries == 1 else 'queries'}"
        )
        return f"Collection {self.name!r}: {counts} ({splits})"


def take_strings(strings: Strings, numbers: Ints) -> list[str]:
    """Return the strings at those numbers, as a list."""
    return list(strings_at(strings, numbers).to_pylist())


def strings_of(values: Iterable[str]) -> Strings:
    """Return strings as a column of a collection."""
    return pa.chunked_array([pa.array(list(values), type=pa.large_string())])


def strings_at(strings: Strings, numbers: Ints) -> Strings:
    """Return the strings at those numbers, as a column."""
    return strings.take(number_array(numbers))


@dataclass(frozen=True)
class _Joined:
    """Concatenated texts of passages, flat however often more were added; one call reads them all."""

    parts: tuple[Passages, ...]

    @classmethod
    def of(cls, *passages: Passages) -> _Joined:
        known = [vars(each).get("_given") for each in passages]
        parts = [g.parts if isinstance(g, _Joined) else (p,) for g, p in zip(known, passages, strict=True)]
        return cls(sum(parts, ()))

    def __call__(self) -> Strings:
        return joined_strings(*(part.texts for part in self.parts))


def joined_strings(*columns: Strings) -> Strings:
    """Return concatenated columns, in few chunks."""
    joined = pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=pa.large_string())
    return joined if joined.num_chunks <= _CHUNKS else pa.chunked_array([joined.combine_chunks()])


def joined_offsets(first: Ints, second: Ints) -> Ints:
    """Return the offsets of two concatenated ragged arrays."""
    return np.concatenate([first, second[1:] + first[-1]])


def indptr_from_counts(counts: Sequence[int] | Ints) -> Ints:
    """Return the offsets of a ragged array with rows of these lengths."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def ragged_take(offsets: Ints, owners: Ints) -> tuple[Ints, Ints]:
    """Return the item numbers of some rows of a ragged array, and the offsets of these rows.

    >>> ragged_take(np.array([0, 2, 2, 5]), np.array([0, 2]))
    (array([0, 1, 2, 3, 4]), array([0, 2, 5]))
    """
    counts = np.diff(offsets)[owners]
    new = indptr_from_counts(counts)
    return np.repeat(offsets[owners] - new[:-1], counts) + np.arange(new[-1]), new


def rising_numbers(numbers: Sequence[int] | Ints, n: int, kind: str) -> Ints:
    """Return (m,) numbers below n, each above the previous one; others are refused."""
    chosen = numbers_below(numbers, n, kind)
    if (np.diff(chosen) <= 0).any():
        raise InputError(f"{kind} numbers must rise, each above the one before")
    return chosen


def whole_numbers(numbers: Sequence[int] | Ints, what: str) -> Ints:
    """Return (m,) whole numbers; others are refused, since NumPy would truncate them."""
    chosen = np.asarray(numbers)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and len(chosen)):
        raise InputError(f"expected {what} (n,), found {chosen.dtype} {chosen.shape}")
    return chosen.astype(np.int64, copy=False)


def numbers_below(numbers: Sequence[int] | Ints, n: int, kind: str) -> Ints:
    """Return (m,) numbers from 0 to n - 1, in any order; others are refused."""
    chosen = whole_numbers(numbers, f"{kind} numbers")
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < n:
        raise InputError(f"{kind} numbers lie between 0 and {n - 1}, found {chosen.min()} and {chosen.max()}")
    return chosen


def _renumbered(kept: Ints, n: int) -> Ints:
    """Return (n + 1,) new numbers, -1 for items that are not kept; the last entry, for no item, is -1 too."""
    new = np.full(n + 1, -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))
    return new


def _no_sections(n_documents: int) -> Sections:
    none = pa.chunked_array([], type=pa.large_string())
    return Sections(none, none, np.empty(0, dtype=np.int64), np.zeros(n_documents + 1, dtype=np.int64))
