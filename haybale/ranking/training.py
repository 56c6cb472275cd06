"""The judged queries that rankers are fitted on."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Hashable
from copy import copy
from typing import Any, TypeVar

import numpy as np

from haybale.cached import cached_property
from haybale.collections import Queries
from haybale.collections.dates import UNDATED
from haybale.collections.qrels import judgements
from haybale.collections.queries import QueriesLike, queries_from
from haybale.engine import Engine
from haybale.errors import InputError, told_apart
from haybale.frames import Frame
from haybale.ranking.twins import ContradictoryTwinsWarning, Twins, merged_twins, without_chains
from haybale.retrieval.hits import Ints
from haybale.search.cutoffs import cutoffs_of
from haybale.search.query_batch import QueryBatch

_TEXTS_HASHED_AT_ONCE = 10_000

T = TypeVar("T")


class Training:
    """Judged queries, with a cache of the rankers that are fitted on them.

    Rankers learn from :attr:`batch` and :attr:`relevant`, in which twins are one query: queries that are the same
    question under several ids (:mod:`~haybale.ranking.twins`).

    Parameters
    ----------
    batch : QueryBatch
        The queries on the engine that rankers are fitted on. They learn from its snapshot, and rank on the engine.
    relevant : list of list of str
        The ids of each query's relevant documents.
    irrelevant : list of list of str, optional
        The ids of the documents that are judged irrelevant to each query, which may contradict the judgements of a
        twin. Default: none.
    twins : Twins, optional
        The twins of the queries, if they are merged already.
    """

    def __init__(
        self,
        batch: QueryBatch,
        relevant: list[list[str]],
        irrelevant: list[list[str]] | None = None,
        *,
        twins: Twins | None = None,
    ) -> None:
        self.all_queries = batch  # twins included
        self._judged = relevant, irrelevant
        self._twins = twins
        self.left_out: dict[str, int] = {}  # numbers of what has no date, or not an earlier one
        self.out_of_fold = False  # whether rankings out of fold of these queries will be needed
        self._fitted: dict[Any, Any] = {}

    def for_nested(self) -> Training:
        """Return a copy with the same cache, for rankers within a ranker that learns from their out-of-fold rankings.

        A nested ranker that cannot rank out of fold then raises its error before it is trained.
        """
        same = copy(self)
        same.out_of_fold = True
        return same

    @property
    def engine(self) -> Engine:
        """The snapshot of the engine that rankers learn from."""
        return self.all_queries.engine

    @property
    def live_engine(self) -> Engine:
        """The engine that rankers rank on."""
        return self.all_queries.live_engine

    @property
    def has_relevant(self) -> bool:
        """Whether a query judges a document relevant."""
        return any(self._judged[0])

    @property
    def batch(self) -> QueryBatch:
        """The queries that rankers learn from: of twins, only one."""
        return self._merged[0]

    @property
    def relevant(self) -> list[list[str]]:
        """The ids of the relevant documents of each query in :attr:`batch`, with those of its twins."""
        return self._merged[1]

    @property
    def twins(self) -> Twins:
        """Which queries are twins of those in :attr:`batch`."""
        return self._merged[2]

    @property
    def _merged(self) -> tuple[QueryBatch, list[list[str]], Twins]:
        """The queries to learn from, their relevant documents, and the twins, found when they are first needed."""
        return self.cached_fit("twins", self._merge)

    def _merge(self) -> tuple[QueryBatch, list[list[str]], Twins]:
        batch, (relevant, irrelevant) = self.all_queries, self._judged
        if self._twins is not None:
            return batch, relevant, self._twins
        rows, merged, twins = merged_twins(batch, relevant, irrelevant or [[] for _ in relevant])
        if twins.contradictions:
            first, n = twins.contradictions[0], len(twins.contradictions)
            warnings.warn(
                f"training queries {first.relevant!r} and {first.irrelevant!r} are the same question, but only the "
                f"first judges document {first.document!r} relevant ({n:,} such judgements); the majority of the "
                "judgements counts, or relevant if there are as many of both: correct the judgements that are wrong",
                ContradictoryTwinsWarning,
                stacklevel=2,
            )
        if len(rows) < len(batch):
            batch = batch.take(rows)
            relevant = _earlier(batch, merged)  # a twin may have a later date than the query that stands for it
        batch.groups = without_chains(batch)
        return batch, relevant, twins

    def __len__(self) -> int:
        return len(self.batch)

    @classmethod
    def of(
        cls,
        engine: Engine,
        queries: QueriesLike | None = None,
        qrels: Frame | None = None,
        *,
        before: str | None = None,
    ) -> Training:
        """Return the judged queries of a split (default ``"train"``, if there is one), or other queries with qrels.

        With ``before``, the column of the documents' dates, each query learns from documents before its own date only.
        Queries without a date and judgements of other documents are left out, and counted in :attr:`left_out`.

        Raises :class:`~haybale.InputError` for queries without judgements, judgements of unknown queries or documents,
        and different grades for the same query and document.
        """
        snapshot = engine.snapshot()
        collection = snapshot.collection

        def training_of(queries: Queries, relevant: list[list[str]], irrelevant: list[list[str]]) -> Training:
            if before is None:
                return cls(QueryBatch(snapshot, queries, "train", live_engine=engine), relevant, irrelevant)
            cutoffs = cutoffs_of(collection, queries, before)
            rows = np.flatnonzero(cutoffs.queries != UNDATED)
            dated = queries.take(rows), "train"
            batch = QueryBatch(snapshot, *dated, live_engine=engine, cutoffs=cutoffs.take(rows))
            kept = [_earlier(batch, [judged[row] for row in rows]) for judged in (relevant, irrelevant)]
            training = cls(batch, *kept)
            n_judged = sum(map(len, relevant + irrelevant)), sum(map(len, kept[0] + kept[1]))
            n_of_undated = n_judged[0] - sum(len(judged[row]) for judged in (relevant, irrelevant) for row in rows)
            training.left_out = {
                "training queries without a date": len(queries) - len(rows),
                "training judgements of documents that are not earlier": n_judged[0] - n_of_undated - n_judged[1],
            }
            return training

        if qrels is None:
            if queries is None and "train" not in collection.splits:
                return training_of(collection.queries.take([]), [], [])
            if queries is not None and not isinstance(queries, str):
                raise InputError("queries can only be learned from with judgements; give qrels=…, or name a split")
            split = queries or "train"
            queries_of_split = collection.queries.take(collection.split(split).queries)
            return training_of(queries_of_split, collection.relevant_ids(split), collection.irrelevant_ids(split))
        parsed = collection.queries if queries is None else queries_from(collection, queries)
        judged = judgements(qrels).drop_duplicates()
        twice = judged[judged.duplicated(["query_id", "doc_id"])]
        others, judged = judged[judged["relevance"] <= 0], judged[judged["relevance"] > 0]
        ids = parsed.ids.to_pylist()
        unknown = judged["query_id"][~judged["query_id"].isin(ids)]
        if len(unknown):
            raise InputError(
                f"qrels: unknown query id {told_apart(unknown.iloc[0], ids)}; add the query or remove its judgements"
            )
        collection.document_numbers(judged["doc_id"].unique())
        if len(twice):
            pair = f"query {twice['query_id'].iloc[0]!r} and document {twice['doc_id'].iloc[0]!r}"
            raise InputError(f"qrels must have one grade for {pair}, found several")
        relevant, irrelevant = (
            [documents.get(query, []) for query in ids]
            for documents in (part.groupby("query_id")["doc_id"].agg(list) for part in (judged, others))
        )
        if queries is None:  # all judged queries of the collection
            rows = _judged_rows(parsed, relevant, irrelevant)
            judged_rows = [relevant[row] for row in rows], [irrelevant[row] for row in rows]
            return training_of(parsed.take(rows), *judged_rows)
        return training_of(parsed, relevant, irrelevant)

    def sample(self, n: int) -> Training:
        """Return ``n`` of the queries, drawn at random and in their order; all of them if there are not more."""
        batch, (relevant, irrelevant) = self.all_queries, self._judged
        if n >= len(batch):
            return self
        rows = np.sort(np.random.default_rng(0).choice(len(batch), n, replace=False))
        sampled_relevant = [relevant[row] for row in rows]
        sample = Training(batch.take(rows), sampled_relevant, irrelevant and [irrelevant[row] for row in rows])
        sample.left_out = self.left_out
        return sample

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the queries (ids, texts, own documents, groups), their judged documents, and all documents."""
        batch, (relevant, irrelevant) = self.all_queries, self._judged
        sha256 = hashlib.sha256(_documents_digest(batch.engine).encode())
        groups = batch.queries.groups_by_document_id(batch.engine.collection.doc_ids).tolist()
        columns = batch.ids, batch.paragraphs, batch.own.tolist(), groups, relevant, irrelevant or [[]] * len(relevant)
        for row in zip(*columns, strict=True):
            sha256.update(json.dumps(row).encode())
        if batch.cutoffs is not None:
            for days in (batch.cutoffs.queries, batch.cutoffs.documents):
                sha256.update(np.ascontiguousarray(days).data)
        return sha256.hexdigest()

    def cached_fit(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned when it was first called for this key."""
        if key not in self._fitted:
            self._fitted[key] = make()
        cached: T = self._fitted[key]
        return cached


def _earlier(batch: QueryBatch, judged: list[list[str]]) -> list[list[str]]:
    """Return the judged documents of each query that are earlier than it; all of them if dates do not matter."""
    if batch.cutoffs is None:
        return judged
    rows = np.repeat(np.arange(len(judged)), [len(ids) for ids in judged])
    documents = batch.engine.collection.document_numbers([doc_id for ids in judged for doc_id in ids])
    is_earlier = iter((~batch.cutoffs.hides(rows, documents)).tolist())
    return [[doc_id for doc_id in ids if next(is_earlier)] for ids in judged]


def _documents_digest(engine: Engine) -> str:
    """Return a digest of the documents of a snapshot: of their texts if the engine is in memory."""

    def of_texts() -> str:
        documents = engine.collection
        sha256 = hashlib.sha256(np.ascontiguousarray(documents.passages.doc_offsets).data)
        for texts in (documents.doc_ids, documents.passages.texts):
            for start in range(0, len(texts), _TEXTS_HASHED_AT_ONCE):
                sha256.update(
                    "".join(f"{text}\0" for text in texts[start : start + _TEXTS_HASHED_AT_ONCE].to_pylist()).encode()
                )
        return sha256.hexdigest()

    return engine.documents_digest or engine.cached("digest of the documents", of_texts)


def _judged_rows(queries: Queries, relevant: list[list[str]], irrelevant: list[list[str]]) -> Ints:
    """Return the rows of the queries with a relevant document, and of other judged queries with the same words."""
    has_relevant = np.array([len(ids) > 0 for ids in relevant], dtype=bool)
    rows = np.flatnonzero(has_relevant | [len(ids) > 0 for ids in irrelevant])
    words = queries.take(rows).same_words
    return rows[np.isin(words, words[has_relevant[rows]])]
