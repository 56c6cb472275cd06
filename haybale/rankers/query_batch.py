"""Queries asked of an engine: their texts, vectors, hits and runs, each made once, whichever rankers ask for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.utils import check_random_state

from haybale.collections import Collection, Queries
from haybale.collections.collection import take_strings
from haybale.collections.qrels import judgements
from haybale.collections.queries import QueriesLike, queries_from
from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.errors import InputError, told_apart
from haybale.frames import Frame
from haybale.retrieval import BM25Index, Hits, ParagraphHits, ParagraphSearch, PassageIndex, Run
from haybale.retrieval.hits import Ints
from haybale.timing import timed
from haybale.vectors import Matrix

_DEEP = 100  # documents that fusion will ask for, so training queries are searched as deep at once

T = TypeVar("T")


class QueryBatch:
    """Queries, and what is found for them; rankers that share a batch share its searches.

    Parameters
    ----------
    engine : Engine
    queries : Queries
        Their own documents are numbers of the engine's documents.
    label : str, default ""
        What stages of work are marked with: ``"train"``.
    """

    def __init__(self, engine: Engine, queries: Queries, label: str = "") -> None:
        self.engine = engine
        self.queries = queries
        self.label = label
        self._made: dict[Any, Any] = {}
        self._runs: dict[Any, tuple[int, Run]] = {}
        self._from: tuple[QueryBatch, Ints] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: Ints) -> QueryBatch:
        """Some of the queries; their vectors and what was ranked for all of them are not made again."""
        part = QueryBatch(self.engine, self.queries.take(rows), self.label)
        part._from = (self, rows)
        return part

    def part(self, rows: Ints) -> QueryBatch:
        """As :meth:`take`; the same rows are the same part, whoever asks, so what is found for it is found once."""
        key = ("rows", rows.tobytes())
        if key not in self._made:
            self._made[key] = self.take(rows)
        found: QueryBatch = self._made[key]
        return found

    def over(self, engine: Engine) -> QueryBatch:
        """The same queries asked of another engine with documents of these ids; what is found there is made once."""
        if engine is self.engine:
            return self
        if ("over", engine) not in self._made:
            if self._from is not None:
                part = self._from[0].over(engine).take(self._from[1])
            else:
                known = self.own >= 0
                own = np.full(len(self), -1)
                own[known] = engine.collection.find_documents(
                    take_strings(self.engine.collection.doc_ids, self.own[known])
                )
                part = QueryBatch(engine, replace(self.queries, own=own), self.label)
            self._made["over", engine] = part
        found: QueryBatch = self._made["over", engine]
        return found

    def folds(self, n: int, random_state: int | None) -> Ints:
        """(m,) the fold of each query, at random, whatever their order; those of one document are in one fold."""
        first = pd.Series(self.ids).groupby(self.queries.groups).transform("min")
        names, place = np.unique(first, return_inverse=True)
        fold = np.empty(len(names), dtype=np.int64)
        fold[check_random_state(random_state).permutation(len(names))] = np.arange(len(names)) % n
        return fold[place]

    def timed(self, name: str) -> Any:
        return timed(f"{name} ({self.label})" if self.label else name)

    @cached_property
    def ids(self) -> list[str]:
        return list(self.queries.ids.to_pylist())

    @cached_property
    def texts(self) -> list[str]:
        return self.queries.texts(range(len(self)))

    @cached_property
    def paragraphs(self) -> list[list[str]]:
        return [self.queries.paragraphs_of(number) for number in range(len(self))]

    @property
    def own(self) -> Ints:
        """(m,) the document that each query was taken from, -1 for none."""
        return self.queries.own

    @property
    def single(self) -> bool:
        """Whether every query is one paragraph."""
        return len(self.queries.paragraphs) == len(self) and bool((np.diff(self.queries.offsets) == 1).all())

    @cached_property
    def vectors(self) -> Matrix:
        """(m, d), each query one vector."""
        if self._from is not None and "vectors" in self._from[0].__dict__:
            return self._from[0].vectors[self._from[1]]
        encoder = self.engine.encoder
        with self.timed("encode queries"):
            return encode_queries(encoder, self.texts)

    @cached_property
    def paragraph_vectors(self) -> list[Matrix]:
        """Of each query, the vectors of its paragraphs."""
        if self._from is not None and "paragraph_vectors" in self._from[0].__dict__:
            return [self._from[0].paragraph_vectors[row] for row in self._from[1]]
        if self.single:
            return [self.vectors[row : row + 1] for row in range(len(self))]
        encoder = self.engine.encoder
        with self.timed("encode query paragraphs"):
            flat = encode_queries(encoder, [text for each in self.paragraphs for text in each])
        offsets = self.queries.offsets - self.queries.offsets[0]
        return [flat[start:end] for start, end in pairwise(offsets)]

    def paragraph_hits(self, index: PassageIndex | BM25Index, n_hits: int) -> ParagraphHits:
        """The hits of every paragraph of the queries."""
        lexical = isinstance(index, BM25Index)
        if (index, n_hits) not in self._made:
            given: Sequence[Any] = self.paragraphs if lexical else self.paragraph_vectors
            with self.timed("search query paragraphs (BM25)" if lexical else "search query paragraphs"):
                search = ParagraphSearch(index, "rrf", n_hits=n_hits)
                self._made[index, n_hits] = search.search(given, exclude=self.own, query_ids=self.ids)
        found: ParagraphHits = self._made[index, n_hits]
        return found

    def single_hits(self, index: PassageIndex, n_hits: int) -> Hits | None:
        """The same where every query is one paragraph, and somebody has asked for them or will, as in training; or
        None.
        """
        wanted = bool(self.label) or (index, n_hits) in self._made
        return self.paragraph_hits(index, n_hits).hits if wanted and self.single else None

    def cached_run(self, key: Hashable, depth: int, make: Callable[[QueryBatch, int], Run]) -> Run:
        """Return ``make(batch, depth)``; a run of this key that was made before, if it is deep enough.

        Equal rankers have equal keys, so they share one cached run. A part of a batch takes its rows of the run of the
        whole.
        """
        if self._from is not None:
            known = self._from[0]._runs.get(key)
            if known is not None and known[0] >= depth:
                return known[1].take(self.ids).top(depth)
        known = self._runs.get(key)
        if known is None or known[0] < depth:
            deep = max(depth, _DEEP) if self.label else depth
            known = self._runs[key] = (deep, make(self, deep))
        return known[1].top(depth)


class Training:
    """Judged queries that rankers are fitted on; equal rankers are fitted once.

    Parameters
    ----------
    engine : Engine
    queries : Queries
    relevant : list of list of str
        The ids of each query's relevant documents.
    """

    def __init__(self, engine: Engine, queries: Queries, relevant: list[list[str]]) -> None:
        self.batch = QueryBatch(engine, queries, "train")
        self.relevant = relevant
        self._fitted: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.batch)

    @classmethod
    def of(cls, engine: Engine, queries: QueriesLike | None = None, qrels: Frame | None = None) -> Training:
        """The judged queries of a split, or others with their qrels; by default ``"train"``, if there is one."""
        collection = engine.collection
        if qrels is None:
            if queries is None and "train" not in collection.splits:
                return cls(engine, collection.queries.take([]), [])
            if queries is not None and not isinstance(queries, str):
                raise InputError("queries to learn from need their judgements: give qrels, or the name of a split")
            split = queries or "train"
            return cls(engine, collection.queries.take(collection.split(split).queries), collection.relevant_ids(split))
        asked = collection.queries if queries is None else queries_from(collection, queries)
        judged = judgements(qrels).drop_duplicates()
        twice = judged[judged.duplicated(["query_id", "doc_id"])]
        judged = judged[judged["relevance"] > 0]
        ids = asked.ids.to_pylist()
        unknown = judged["query_id"][~judged["query_id"].isin(ids)]
        if len(unknown):
            raise InputError(f"qrels: unknown query id {told_apart(unknown.iloc[0], ids)}")
        collection.document_numbers(judged["doc_id"].unique())
        if len(twice):
            pair = f"query {twice['query_id'].iloc[0]!r} and document {twice['doc_id'].iloc[0]!r}"
            raise InputError(f"qrels: {pair} are judged twice, with different grades")
        documents = judged.groupby("query_id")["doc_id"].agg(list)
        relevant: list[list[str]] = [documents.get(query, []) for query in ids]
        if queries is None:  # of all there are, those that are judged
            rows = np.flatnonzero([len(found) > 0 for found in relevant])
            return cls(engine, asked.take(rows), [relevant[row] for row in rows])
        return cls(engine, asked, relevant)

    @cached_property
    def digest(self) -> str:
        """What was learned from: SHA-256 of query ids and relevant documents."""
        known = hashlib.sha256()
        for query, documents in zip(self.batch.ids, self.relevant, strict=True):
            known.update("\0".join([query, *documents, "\n"]).encode())
        return known.hexdigest()

    def cached_fit(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` fits, or what was fitted before under this key: equal rankers are fitted once."""
        if key not in self._fitted:
            self._fitted[key] = make()
        found: T = self._fitted[key]
        return found


def numbered(run: Run, collection: Collection) -> tuple[Ints, Ints, Ints]:
    """``(query row, rank from 1, document)`` of all that is ranked, the documents being numbers of the collection."""
    rows, ranks, documents, table, _ = run.coded()
    if table is not collection.doc_ids and len(documents):
        used, place = np.unique(documents, return_inverse=True)
        documents = collection.document_numbers(table.take(pa.array(used)))[place]
    return rows, ranks, documents
