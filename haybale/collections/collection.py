"""A test collection in memory: documents, their passages, queries, and relevance judgements by split.

Everything is an Arrow array (texts, ids) or a NumPy array (numbers); there is no Python object per passage,
since GerDaLIR has 3.1 million of them. Documents, passages, sections and queries are numbered from 0 in the
order of the files; the numbers are what the other rooms work with, the string ids are for the surface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.errors import InputError, UnknownNameError

Strings: TypeAlias = pa.ChunkedArray  # of large_string: 64-bit offsets, so more than 2 GiB of text fits one array
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sections:
    """The section trees of all documents, a document's sections side by side.

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
    """References in the text, each row ``(from, to)`` in numbers.

    ``internal`` goes from a passage to a section of the same document; the other two go to a document, from
    a passage or (when the citing passage is not kept) from a section.
    """

    internal: Ints  # (n, 2) passage -> section
    passage_to_document: Ints  # (n, 2)
    section_to_document: Ints  # (n, 2)


@dataclass(frozen=True)
class Passages:
    """All passages, those of a document side by side: ``doc_offsets[d]:doc_offsets[d + 1]`` are document d's."""

    ids: Strings  # (n_passages,)
    texts: Strings  # (n_passages,)
    doc_offsets: Ints  # (n_documents + 1,)
    sections: Ints | None = None  # (n_passages,) number of the section, if documents have sections

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def doc_of(self) -> Ints:
        """(n_passages,) the document of each passage."""
        return np.repeat(np.arange(len(self.doc_offsets) - 1), np.diff(self.doc_offsets))


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

    def texts(self, numbers: Sequence[int] | Ints) -> list[str]:
        """The whole text of each query, its paragraphs joined by newlines."""
        return ["\n".join(self.paragraphs_of(int(i))) for i in numbers]

    def paragraphs_of(self, number: int) -> list[str]:
        """The paragraphs of one query."""
        return list(self.paragraphs[self.offsets[number] : self.offsets[number + 1]].to_pylist())


@dataclass(frozen=True)
class Split:
    """The queries of one split and their judgements (grade > 0 is relevant)."""

    name: str
    queries: Ints  # (n,) query numbers
    judged_queries: Ints  # (n_judgements,)
    judged_documents: Ints  # (n_judgements,)
    grades: Ints  # (n_judgements,)

    def relevant(self) -> tuple[Ints, Ints]:
        """``(query numbers, document numbers)`` of the relevant pairs."""
        keep = self.grades > 0
        return self.judged_queries[keep], self.judged_documents[keep]

    def relevant_rows(self) -> tuple[Ints, Ints]:
        """The same with the place of each query in ``queries`` for its number."""
        queries, documents = self.relevant()
        order = np.argsort(self.queries)
        return order[np.searchsorted(self.queries, queries, sorter=order)], documents


@dataclass(frozen=True)
class Collection:
    """Documents, passages, queries and judgements; made by a reader of :mod:`haybale.collections`.

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
        """The split of that name; an unknown one raises and lists those that exist."""
        try:
            return self.splits[name]
        except KeyError:
            raise UnknownNameError(f"split of {self.name}", name, self.splits) from None

    def document_texts(self) -> list[str]:
        """Whole documents, their passages joined by newlines; (n_documents,) strings."""
        texts, offsets = self.passages.texts.to_pylist(), self.passages.doc_offsets
        return ["\n".join(texts[start:end]) for start, end in pairwise(offsets)]

    def qrels_frame(self, split: str) -> pd.DataFrame:
        """The judgements of a split by id: columns ``query_id``, ``doc_id``, ``relevance``."""
        part = self.split(split)
        return pd.DataFrame(
            {
                "query_id": pick(self.queries.ids, part.judged_queries),
                "doc_id": pick(self.doc_ids, part.judged_documents),
                "relevance": part.grades,
            }
        )

    def relevant_ids(self, split: str) -> list[list[str]]:
        """The ids of the relevant documents of each query of a split, in the order of its queries."""
        part = self.split(split)
        ids: list[list[str]] = [[] for _ in part.queries]
        rows, documents = part.relevant_rows()
        for row, doc_id in zip(rows, pick(self.doc_ids, documents), strict=True):
            ids[row].append(doc_id)
        return ids

    def query_numbers(self, ids: Sequence[str]) -> Ints:
        """Numbers of query ids; an unknown id raises and is named."""
        return numbers_of(self.queries.ids, ids, "query")

    def document_numbers(self, ids: Sequence[str]) -> Ints:
        """Numbers of document ids; an unknown id raises and is named."""
        return numbers_of(self.doc_ids, ids, "document")

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(part.queries):,}" for name, part in self.splits.items())
        counts = (
            f"{self.n_documents:,} documents, {self.n_passages:,} passages, "
            f"{self.n_queries:,} {'query' if self.n_queries == 1 else 'queries'}"
        )
        return f"Collection {self.name!r}: {counts} ({splits})"


def pick(strings: Strings, numbers: Ints) -> list[str]:
    """The strings at those numbers, as a list."""
    return list(strings.take(pa.array(numbers)).to_pylist())


def numbers_of(strings: Strings, ids: Sequence[str], kind: str) -> Ints:
    """Position of each id among ``strings``; an unknown one raises :class:`InputError`."""
    found = pc.index_in(pa.array(ids, type=pa.large_string()), value_set=_one_chunk(strings))
    if found.null_count:
        raise InputError(f"unknown {kind} id {ids[found.is_null().to_pylist().index(True)]!r}")
    return np.asarray(found.to_numpy(), dtype=np.int64)


def _one_chunk(strings: Strings) -> pa.Array:
    combined = strings.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
