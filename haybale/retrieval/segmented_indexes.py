"""The indexes that rankers search, for passages that lie in segments: BM25 and vectors, with the results of one index.

Both hold :class:`~haybale.retrieval.index_segments.IndexSegments` and ask the indexes of these for everything. They
have the methods of :class:`BM25Index` and :class:`PassageIndex` that rankers call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from scipy import sparse

from haybale.analysis import Analyzer, Terms
from haybale.cached import cached_property
from haybale.collections.collection import rising_numbers
from haybale.device import CPU, to_numpy
from haybale.embeddings.counting import TermCounts, Vocabulary
from haybale.errors import InputError
from haybale.parameters import BM25_RANGES, COUNT, check_parameters
from haybale.retrieval.bm25_index import BM25Index, check_queries, counted_terms, query_factors, weighted_terms
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.index_segments import NO_TEXTS, IndexSegment, IndexSegments, Parameters, TermStatistics, terms_in
from haybale.retrieval.merging import FoundDocuments
from haybale.retrieval.passage_index import PassageIndex, add_best_documents
from haybale.retrieval.passages import Columns, Exclude, Ids, PassageTable
from haybale.retrieval.postings import Postings
from haybale.vectors import Floats, Matrix, check_like


class SegmentedBM25(PassageTable):
    """BM25 over passages that lie in segments; scores are equal to the bit to those of a :class:`BM25Index`.

    ``statistics`` returns those of all segments in folders, and ``later`` has those of documents that were added.
    """

    def __init__(
        self,
        segments: IndexSegments,
        columns: Columns,
        analyzer: Analyzer,
        statistics: Callable[[], TermStatistics],
        parameters: Parameters = (1.2, 0.75, None),
        later: TermStatistics = NO_TEXTS,
    ) -> None:
        self.segments = segments.changed(parameters=parameters, later=later)
        self.columns, self.analyzer, self._statistics, self._later = columns, analyzer, statistics, later
        self.k1, self.b, self.k3 = parameters

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The number of each term that occurs in the segments or in later texts."""
        return {term: number for number, term in enumerate(self._statistics().plus(self._later).frequencies)}

    def save(self, folder: Path | str) -> NoReturn:
        """Raise :class:`InputError`: the segments are saved by themselves."""
        raise InputError(f"{folder}: an index in segments cannot be saved; copy the folder of the engine instead")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {len(self):,} passages, {len(self.doc_ids):,} documents, "
            f"{len(self.segments.segments)} segments, k1 {self.k1:g}, b {self.b:g}"
        )

    def _same(self, **changes: Any) -> Self:
        now: dict[str, Any] = {
            "segments": self.segments,
            "columns": self.columns,
            "analyzer": self.analyzer,
            "statistics": self._statistics,
            "parameters": (self.k1, self.b, self.k3),
            "later": self._later,
        }
        return type(self)(**(now | changes))

    def with_parameters(self, k1: float, b: float, k3: float | None = None) -> Self:
        check_parameters("BM25Index", {"k1": k1, "b": b, "k3": k3}, BM25_RANGES)
        return self._same(parameters=(float(k1), float(b), None if k3 is None else float(k3)))

    def take(self, documents: Ints) -> Self:
        _, columns = self.columns.take(documents)
        return self._same(segments=self.segments.take(np.asarray(documents)), columns=columns)

    def extended(
        self, texts: Sequence[str], doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids, distinct: bool = True
    ) -> Self:
        counts = TermCounts.of(texts, self.analyzer)
        new = Columns.validated(len(counts), doc_offsets, passage_ids, doc_ids, distinct=distinct)
        columns, new_postings = self.columns.joined(new, distinct=distinct), Postings.of(counts)
        in_folders, before = self._statistics(), self._later
        # The new segment gets the statistics of those in folders. Opening it adds those of later texts, as in these.
        frequencies = np.array([in_folders.frequencies.get(term, 0) for term in counts.vocabulary], dtype=np.int64)
        n_texts, n_terms = in_folders.n_texts, in_folders.n_terms
        postings = replace(new_postings, frequencies=frequencies, n_texts=n_texts, n_terms=n_terms)
        segment = IndexSegment.in_memory(BM25Index.of_postings(new, postings, counts.vocabulary, self.analyzer))
        added = TermStatistics(
            dict(zip(counts.vocabulary, new_postings.frequencies.tolist(), strict=True)),
            new_postings.n_texts,
            new_postings.n_terms,
        )
        return self._same(
            segments=self.segments.joined(segment, columns.doc_offsets), columns=columns, later=before.plus(added)
        )

    def analysed(self, queries: Sequence[str]) -> Terms:
        check_queries(queries)
        return self.analyzer(queries)  # each segment numbers terms differently, so terms are passed to segments by name

    def weighted(self, terms: Sequence[Sequence[str]], factors: Sequence[Floats]) -> Terms:
        distinct = dict.fromkeys(term for query_terms in terms for term in query_terms)
        return weighted_terms({term: number for number, term in enumerate(distinct)}, terms, factors)

    def factors(self, counts: Ints) -> Floats:
        return query_factors(counts, self.k3)

    def text_frequencies(self, terms: Sequence[str]) -> Ints:
        indexed, later = self._statistics().frequencies, self._later.frequencies
        return np.array([indexed.get(term, 0) + later.get(term, 0) for term in terms], dtype=np.int64)

    def share_table(self, terms: Sequence[str], passages: Ints) -> Floats:
        out = np.zeros((len(terms), len(passages)), dtype=np.float32)
        of = np.searchsorted(self.segments.passages, passages, side="right") - 1
        for segment in np.unique(of).tolist():
            local = passages[of == segment] - self.segments.passages[segment]
            out[:, of == segment] = self.segments.opened(segment).share_table(terms, local)
        return out

    def search(self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None) -> Hits:
        self.check_k(k)
        terms = queries if isinstance(queries, Terms) else self.analysed(queries)
        return self.segments.search(terms, k, self.excluded(exclude, len(terms.ids)), self.columns)

    def documents(
        self, queries: Sequence[str] | Terms, k: int, *, exclude: Exclude | None = None, top: int = 1
    ) -> FoundDocuments:
        check_parameters("documents", {"k": k, "top": top}, {"k": COUNT, "top": COUNT})
        terms = queries if isinstance(queries, Terms) else self.analysed(queries)
        return self.segments.documents(terms, k, top, self.excluded(exclude, len(terms.ids)))

    def similarities(self, queries: Sequence[str] | Terms, document: int) -> Floats:
        terms = queries if isinstance(queries, Terms) else self.analysed(queries)
        if self.doc_offsets[document] == self.doc_offsets[document + 1]:
            return np.zeros((len(terms.ids), 0), dtype=np.float32)
        index, number = self.segments.with_document(document)
        similarities: Floats = index.similarities(terms_in(index, terms), number)
        return similarities

    def passages_with_all(self, terms: Iterable[str]) -> Ints:
        wanted = list(terms)
        return self._joined(lambda index: index.passages_with_all(wanted))

    def passages_with_any(self, terms: Iterable[str]) -> Ints:
        wanted = list(terms)
        return self._joined(lambda index: index.passages_with_any(wanted))

    def _joined(self, passages_of: Callable[[BM25Index], Ints]) -> Ints:
        """Return the numbers of passages that a function returns for the index of each segment, as numbers of all."""
        of_segments = [passages_of(self.segments.opened(number)) for number in range(len(self.segments.segments))]
        firsts = self.segments.passages[:-1]
        return np.concatenate([passages + first for passages, first in zip(of_segments, firsts, strict=True)])

    def term_counts(self, terms: Iterable[str], start: int, end: int) -> list[Counter[str]]:
        wanted, counters = list(terms), []
        while start < end:
            index, number = self.segments.with_passage(start)
            n = min(end - start, len(index) - number)
            counters += index.term_counts(wanted, number, number + n)
            start += n
        return counters

    def term_shares(self, query: str, passage: int) -> dict[str, float]:
        self.check_passage(passage)
        return self.shares_of_terms(self.counted_terms(query), passage)

    def counted_terms(self, query: str) -> list[tuple[str, np.float32]]:
        return list(zip(*counted_terms(self.analyzer.terms(query), self.k3), strict=True))

    def shares_of_terms(self, counted: Sequence[tuple[str, np.float32]], passage: int) -> dict[str, float]:
        index, number = self.segments.with_passage(passage)
        terms_of_part = [(term, times) for term, times in counted if term in index.vocabulary]
        shares: dict[str, float] = index.shares_of_terms(terms_of_part, number)
        return shares


class SegmentedRows:
    """The vectors (n, d) of an index in segments; ``rows[numbers]`` reads only these rows from the segments."""

    dtype = np.dtype(np.float32)

    def __init__(self, segments: IndexSegments) -> None:
        self._parts = segments

    @cached_property
    def _first(self) -> Matrix:
        vectors: Matrix = self._parts.opened(0).vectors[:0]
        return vectors

    @property
    def has_sparse_rows(self) -> bool:
        """Whether rows are returned as CSR matrices."""
        return bool(sparse.issparse(self._first))

    @property
    def shape(self) -> tuple[int, int]:
        return int(self._parts.passages[-1]), int(self._first.shape[1])

    def __getitem__(self, rows: Any) -> Any:
        n = self.shape[0]
        numbers = np.arange(n)[rows] if isinstance(rows, slice) else np.asarray(rows)
        if numbers.dtype == bool:
            numbers = np.flatnonzero(numbers)
        if numbers.ndim == 0:
            row = self[numbers.reshape(1)]
            return row if self.has_sparse_rows else row[0]
        numbers = np.where(numbers < 0, numbers + n, numbers)
        of = np.searchsorted(self._parts.passages, numbers, side="right") - 1
        order = None if (np.diff(of) >= 0).all() else np.argsort(of, kind="stable")
        numbers, of = (numbers, of) if order is None else (numbers[order], of[order])
        blocks: list[Any] = [self._first]
        for segment in np.unique(of).tolist():
            local = numbers[of == segment] - self._parts.passages[segment]
            consecutive = local[-1] - local[0] == len(local) - 1 and bool((np.diff(local) == 1).all())
            vectors = self._parts.opened(segment).vectors
            blocks.append(vectors[int(local[0]) : int(local[-1]) + 1] if consecutive else vectors[local])
        blocks = blocks[1:] or blocks
        joined: Any = sparse.vstack(blocks, format="csr") if self.has_sparse_rows else np.concatenate(blocks)
        if len(blocks) == 1:
            joined = blocks[0]
        if order is not None:
            inverse = np.empty_like(order)
            inverse[order] = np.arange(len(order))
            joined = joined[inverse]
        return joined

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[:], dtype=dtype)


def in_memory(vectors: Any) -> Matrix:
    """Return the vectors of an index as one matrix in memory, without a copy if they are one already."""
    matrix: Matrix = vectors[:] if isinstance(vectors, SegmentedRows) else vectors
    return matrix


class SegmentedPassages(PassageTable):
    """Exact inner-product search over passages that lie in segments, with the hits of a :class:`PassageIndex`.

    The vectors are on the CPU; queries from a device are copied to it.
    """

    device = search_device = CPU

    def __init__(self, segments: IndexSegments, columns: Columns) -> None:
        self.segments, self.columns = segments, columns
        self.vectors: Any = SegmentedRows(segments)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def backend_used(self) -> str:
        """The name of the backend that searches each segment."""
        return str(self.segments.opened(0).backend_used)

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are CSR matrices."""
        return bool(self.vectors.has_sparse_rows)

    def __repr__(self) -> str:
        n, width = self.vectors.shape
        return (
            f"{type(self).__name__}: {n:,} × {width:,} float32{' sparse' if self.is_sparse else ''}, "
            f"{len(self.doc_ids):,} documents, {len(self.segments.segments)} segments"
        )

    def save(self, folder: Path | str) -> NoReturn:
        """Raise :class:`InputError`: the segments are saved by themselves."""
        raise InputError(f"{folder}: an index in segments cannot be saved; copy the folder of the engine instead")

    def take(self, documents: Sequence[int] | Ints) -> Self:
        numbers = rising_numbers(documents, len(self.doc_ids), "document")
        _, columns = self.columns.take(numbers)
        return type(self)(self.segments.take(numbers), columns)

    def extended(
        self, vectors: Matrix, doc_offsets: Ints | None, *, passage_ids: Ids, doc_ids: Ids, distinct: bool = True
    ) -> Self:
        more = to_numpy(check_like(vectors, "passages", self.vectors))
        new_columns = Columns.validated(int(more.shape[0]), doc_offsets, passage_ids, doc_ids, distinct=distinct)
        new = PassageIndex.of_columns(new_columns, more, CPU)
        columns = self.columns.joined(new_columns, distinct=distinct)
        return type(self)(self.segments.joined(IndexSegment.in_memory(new), columns.doc_offsets), columns)

    def search(self, queries: Matrix, k: int, *, exclude: Exclude | None = None) -> Hits:
        queries = self._host_queries(queries)
        self.check_k(k)
        return self.segments.search(queries, k, self.excluded(exclude, int(queries.shape[0])), self.columns)

    def documents(
        self, queries: Matrix, k: int, *, exclude: Exclude | None = None, hits: Hits | None = None, top: int = 1
    ) -> FoundDocuments:
        check_parameters("documents", {"k": k, "top": top}, {"k": COUNT, "top": COUNT})
        queries = self._host_queries(queries)
        excluded = self.excluded(exclude, int(queries.shape[0]))
        ranked: list[FoundDocuments] = []
        left = np.arange(len(excluded))
        if hits is not None and top == 1:
            if len(hits) != len(left):
                raise InputError(f"hits must have one row for each of the {len(left)} queries, found {len(hits)}")
            left = add_best_documents(self, hits, k, left, ranked)
        rows, documents, scores = self.segments.documents(queries[left], k, top, excluded[left])
        ranked.append((left[rows], documents, scores))
        rows, documents, scores = (np.concatenate(column) for column in zip(*ranked, strict=True))
        order = np.argsort(rows, kind="stable")
        return rows[order], documents[order], scores[order]

    def similarities(self, queries: Matrix, document: int) -> Floats:
        host_queries = self._host_queries(queries)
        if self.doc_offsets[document] == self.doc_offsets[document + 1]:
            return np.zeros((int(host_queries.shape[0]), 0), dtype=np.float32)
        index, number = self.segments.with_document(document)
        similarities: Floats = index.similarities(host_queries, number)
        return similarities

    def _host_queries(self, queries: Matrix) -> Any:
        return to_numpy(check_like(queries, "queries", self.vectors))

    def index_of_hits(self, hits: Hits, documents: Sequence[int] = ()) -> tuple[PassageIndex, Hits]:
        """Load the vectors of the passages of hits into an index; return it with the hits renumbered for it.

        The index also has all passages of ``documents``. Documents keep their numbers.
        """
        used, renumbered = self.passages_of(hits, documents)
        ids = self.passage_ids.take(used), self.doc_ids
        columns = Columns(np.searchsorted(used, self.doc_offsets), *ids, whole=(self.columns, used))
        return PassageIndex.of_columns(columns, self.vectors[used], CPU), renumbered


AnyBM25 = BM25Index | SegmentedBM25  # what an engine gives to rankers
AnyPassageIndex = PassageIndex | SegmentedPassages
