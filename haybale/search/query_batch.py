"""Queries on an engine with a cache, so that rankers compute their vectors, hits and runs only once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from haybale.cached import cached_property
from haybale.collections import Queries
from haybale.collections.collection import take_strings
from haybale.collections.query_groups import (
    NEAR,
    have_other_numbers,
    joined_groups,
    near_pairs,
    numbers_of,
    term_counts,
    with_few_differences,
)
from haybale.engine import Engine
from haybale.engine.workers import Address, Sendable, opened_engine
from haybale.retrieval import AnyBM25, AnyPassageIndex, Hits, ParagraphHits, ParagraphSearch, Run
from haybale.retrieval.hits import Ints
from haybale.search.encoded_queries import encoded_queries
from haybale.timing import timed
from haybale.vectors import Matrix

if TYPE_CHECKING:
    from scipy import sparse

BLOCK = 512  # queries that are ranked at once; more are ranked in blocks
_MAX_BLOCK_FACTOR = 4  # the factor by which a block is larger for an engine in segments, at most
_MIN_TRAINING_DEPTH = 100  # documents of a training query that are searched at least, because fusion needs as many

T = TypeVar("T")


class QueryBatch:
    """Queries on a snapshot of an engine, with a cache of their vectors, hits and runs that rankers share.

    All that is computed for a batch, however long it takes, uses the documents that the engine had at one moment.

    Parameters
    ----------
    engine : Engine
        The engine, or a snapshot of it.
    queries : Queries
        The queries; ``own`` holds document numbers of this engine. If other threads may change the engine, give the
        snapshot that the numbers are of.
    label : str, default ""
        Added to the names of timed stages. A batch with a label holds training queries, which are searched deeper.
    live_engine : Engine, optional
        The engine that rankers fitted on the batch rank on. Default: ``engine``.

    Attributes
    ----------
    engine : Engine
        The snapshot.
    """

    def __init__(self, engine: Engine, queries: Queries, label: str = "", *, live_engine: Engine | None = None) -> None:
        self.engine = engine.snapshot()
        self.live_engine = engine if live_engine is None else live_engine
        self.queries = queries
        self.label = label
        self._cached: dict[Hashable, Any] = {}
        self._runs: dict[Hashable, tuple[int, Run]] = {}
        self._whole: tuple[QueryBatch, Ints] | None = None  # the batch that this one is taken from, and its rows
        # The same, or the batch on another engine: the groups of the queries are read from it.
        self._source: tuple[QueryBatch, Ints] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: Ints) -> QueryBatch:
        """Return a batch of some queries, which reuses the vectors and runs of this batch."""
        part = QueryBatch(self.engine, self.queries.take(rows), self.label, live_engine=self.live_engine)
        part._whole = part._source = (self, rows)
        return part

    def part(self, rows: Ints) -> QueryBatch:
        """Return :meth:`take` of the rows; equal rows give the same batch, with its cache."""
        return self.once(("rows", rows.dtype.str, rows.tobytes()), lambda: self.take(rows))

    def on_engine(self, engine: Engine) -> QueryBatch:
        """Return the same queries on another engine; own documents get their numbers there by id, or -1.

        Each call for the same engine returns the same snapshot of it.
        """
        if engine is self.engine or engine is self.live_engine:
            return self

        def moved() -> QueryBatch:
            if self._whole is not None:
                return self._whole[0].on_engine(engine).take(self._whole[1])
            has_own, snapshot = self.own >= 0, engine.snapshot()
            own_documents = np.full(len(self), -1)
            ids = take_strings(self.engine.collection.doc_ids, self.own[has_own])
            own_documents[has_own] = snapshot.collection.find_documents(ids)
            batch = QueryBatch(snapshot, replace(self.queries, own=own_documents), self.label, live_engine=engine)
            batch._source = (self, np.arange(len(self)))
            return batch

        return self.once(("engine", engine), moved)

    def folds(self, n: int, random_state: int | None) -> Ints:
        """Return random folds (m,), independent of the order of the queries; a group's queries share a fold."""
        groups = self.groups_by_id()
        n_groups = len(np.unique(groups))
        fold = np.empty(n_groups, dtype=np.int64)
        fold[np.random.RandomState(random_state).permutation(n_groups)] = np.arange(n_groups) % n
        return fold[groups]

    def groups_by_id(self) -> Ints:
        """Return the group (m,) of each query; groups are numbered from 0 by their smallest query id."""
        ids, groups = np.array(self.ids), self.groups
        order = np.lexsort((ids, groups))
        firsts = order[np.unique(groups[order], return_index=True)[1]]  # of each group, the query with the smallest id
        return np.unique(ids[firsts][groups], return_inverse=True)[1]

    def timed(self, name: str, where: Any = None) -> AbstractContextManager[None]:
        """Time a stage, whose name gets the batch's label; ``where`` is as in :func:`~haybale.timing.timed`."""
        return timed(f"{name} ({self.label})" if self.label else name, where)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the queries."""
        return list(self.queries.ids.to_pylist())

    @cached_property
    def texts(self) -> list[str]:
        """The text of each query, its paragraphs joined."""
        return self.queries.texts(range(len(self)))

    @cached_property
    def paragraphs(self) -> list[list[str]]:
        """The paragraphs of each query."""
        return [self.queries.paragraphs_of(number) for number in range(len(self))]

    @property
    def own(self) -> Ints:
        """The number of the document (m,) that each query was taken from, -1 for none."""
        return self.queries.own

    @cached_property
    def groups(self) -> Ints:
        """The group (m,) of each query, numbered from 0 by the ids of the documents.

        Queries from the same document share one, as do queries with the same words and queries that are nearly the same
        (:mod:`~haybale.collections.query_groups`). The queries of a part of a batch are grouped as in the whole batch.
        """
        if self._source is not None:
            whole, rows = self._source
            return np.unique(whole.groups[rows], return_inverse=True)[1]
        by_document = self.queries.groups_by_document_id(self.engine.collection.doc_ids)
        return joined_groups(by_document, pairs=self.near_pairs())

    @cached_property
    def term_counts(self) -> sparse.csr_matrix:
        """How often each query (m,) has each term of the engine's analyzer, whether a document has it or not."""
        return term_counts(self.engine.analyzer.numbered(self.texts, {}, grow=True))

    def near_pairs(self, threshold: float = NEAR) -> Ints:
        """Return the pairs (n, 2) of queries that are nearly the same, with a cosine of at least ``threshold``.

        Short queries must not have different numbers, such as those of paragraphs of a law. Of queries with the same
        words, only the first counts.
        """
        firsts = np.unique(self.queries.same_words, return_index=True)[1]
        if len(firsts) < 2:
            return np.empty((0, 2), dtype=np.int64)
        counts = self.term_counts[firsts]
        pairs = firsts[with_few_differences(counts, near_pairs(counts, threshold))]
        numbers = self.numbers
        is_other = [have_other_numbers(numbers[one], numbers[other]) for one, other in pairs.tolist()]
        near: Ints = pairs[~np.array(is_other, dtype=bool)]
        return near

    @cached_property
    def numbers(self) -> list[frozenset[str]]:
        """The words with a digit of each query (m,) that is short."""
        return list(map(numbers_of, self.texts))

    @property
    def single(self) -> bool:
        """Whether every query has exactly one paragraph."""
        return len(self.queries.paragraphs) == len(self) and bool((np.diff(self.queries.offsets) == 1).all())

    @property
    def has_vectors(self) -> bool:
        """Whether :attr:`vectors` were made, here or for the batch that this one is taken from."""
        return "vectors" in vars(self) or (self._whole is not None and self._whole[0].has_vectors)

    @cached_property
    def vectors(self) -> Matrix:
        """The vectors (m, d) of the whole texts of the queries."""
        if self._whole is not None and self._whole[0].has_vectors:
            part: Matrix = self._whole[0].vectors[self._whole[1]]
            return part
        with self.timed("encode queries"):
            return encoded_queries(self.engine, self.texts)

    @cached_property
    def paragraph_vectors(self) -> list[Matrix]:
        """The vectors (n_paragraphs, d) of the paragraphs of each query."""
        if self._whole is not None and "paragraph_vectors" in self._whole[0].__dict__:
            return [self._whole[0].paragraph_vectors[row] for row in self._whole[1]]
        if self.single:
            return [self.vectors[row : row + 1] for row in range(len(self))]
        with self.timed("encode query paragraphs"):
            flat = encoded_queries(self.engine, [text for paragraphs in self.paragraphs for text in paragraphs])
        offsets = self.queries.offsets - self.queries.offsets[0]
        return [flat[start:end] for start, end in pairwise(offsets)]

    def paragraph_hits(self, index: AnyPassageIndex | AnyBM25, n_hits: int) -> ParagraphHits:
        """Return the ``n_hits`` best passages of each paragraph of the queries."""

        def searched() -> ParagraphHits:
            lexical = isinstance(index, AnyBM25)
            paragraphs: Sequence[Any] = self.paragraphs if lexical else self.paragraph_vectors
            where = "cpu" if isinstance(index, AnyBM25) else index.search_device
            with self.timed("search query paragraphs (BM25)" if lexical else "search query paragraphs", where):
                search = ParagraphSearch(index, "rrf", n_hits=n_hits)
                return search.search(paragraphs, exclude=self.own, query_ids=self.ids)

        return self.once((index, n_hits), searched)

    def single_hits(self, index: AnyPassageIndex, n_hits: int) -> Hits | None:
        """Return :meth:`paragraph_hits` of single-paragraph queries if other rankers share them, else None.

        They are shared if they are in the cache. Hits of training queries always count as shared.
        """
        shared = bool(self.label) or (index, n_hits) in self._cached
        return self.paragraph_hits(index, n_hits).hits if shared and self.single else None

    def cached_run(self, key: Hashable, depth: int, make: Callable[[QueryBatch, int], Run]) -> Run:
        """Return ``make(batch, depth)``, or the cached run of this key if it is deep enough.

        Equal rankers have equal keys, so they share one cached run. A batch that was taken from another one uses the
        run of the whole.
        """
        if self._whole is not None:
            cached = self._whole[0]._runs.get(key)
            if cached is not None and cached[0] >= depth:
                return cached[1].take(self.ids).top(depth)
        if not self.has_run(key, depth):
            deep = self.deep(depth)
            self._runs[key] = deep, make(self, deep)
        return self._runs[key][1].top(depth)

    @property
    def block(self) -> int:
        """The number of queries that are not divided; larger in segments, because each block may open them all."""
        return BLOCK * min(_MAX_BLOCK_FACTOR, self.engine.settings.get("segments") or 1)

    def has_run(self, key: Hashable, depth: int) -> bool:
        """Return whether the cache has a run of this key that is deep enough."""
        cached = self._runs.get(key)
        return cached is not None and cached[0] >= depth

    def deep(self, depth: int) -> int:
        """Return how deep the queries are searched if ``depth`` documents are needed."""
        return max(depth, _MIN_TRAINING_DEPTH) if self.label else depth

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value that was made for a key, or make it."""
        if key not in self._cached:
            self._cached[key] = make()
        cached: T = self._cached[key]
        return cached


def sendable_batch(batch: QueryBatch) -> Sendable:
    """Return a batch as an argument of tasks on its engine: its queries are sent, and its vectors if it has dense ones.

    A worker makes sparse vectors itself.
    """

    def values() -> tuple[Queries, str, Matrix | None]:
        is_dense = batch.has_vectors and not getattr(batch.engine.encoder, "is_sparse", False)
        return batch.queries, batch.label, batch.vectors if is_dense else None

    return Sendable(batch, batch_at, values)


def batch_at(address: Address, queries: Queries, label: str, vectors: Matrix | None) -> QueryBatch:
    """Return a batch on the engine at an address."""
    batch = QueryBatch(opened_engine(address), queries, label)
    if vectors is not None:
        batch.vectors = vectors
    return batch
