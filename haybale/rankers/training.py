"""The judged queries that rankers are fitted on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable
from copy import copy
from typing import Any, TypeVar

import numpy as np

from haybale.cached import cached_property
from haybale.collections import Queries
from haybale.collections.qrels import judgements
from haybale.collections.queries import QueriesLike, queries_from
from haybale.engine import Engine
from haybale.errors import InputError, told_apart
from haybale.frames import Frame
from haybale.rankers.query_batch import QueryBatch

_TEXTS_AT_ONCE = 10_000  # of a digest

T = TypeVar("T")


class Training:
    """Judged queries, with a cache of the rankers that are fitted on them.

    Parameters
    ----------
    batch : QueryBatch
        The queries on the engine that rankers are fitted on. They learn from its snapshot, and rank on the engine.
    relevant : list of list of str
        The ids of each query's relevant documents.
    """

    def __init__(self, batch: QueryBatch, relevant: list[list[str]]) -> None:
        self.batch = batch
        self.relevant = relevant
        self.out_of_fold = False  # whether rankings out of fold of these queries will be needed
        self._fitted: dict[Any, Any] = {}

    def for_nested(self) -> Training:
        """Return the same, with the same cache, for rankers nested in one that learns from their rankings out of fold.

        A ranker that cannot give such rankings then says so before it is trained.
        """
        same = copy(self)
        same.out_of_fold = True
        return same

    def __len__(self) -> int:
        return len(self.batch)

    @classmethod
    def of(cls, engine: Engine, queries: QueriesLike | None = None, qrels: Frame | None = None) -> Training:
        """Return the judged queries of a split (default ``"train"``, if there is one), or other queries with qrels.

        Raises :class:`~haybale.InputError` for queries without judgements, judgements of unknown queries or documents,
        and different grades for the same query and document.
        """
        snapshot = engine.snapshot()
        collection = snapshot.collection

        def batch_of(queries: Queries) -> QueryBatch:
            return QueryBatch(snapshot, queries, "train", live_engine=engine)

        if qrels is None:
            if queries is None and "train" not in collection.splits:
                return cls(batch_of(collection.queries.take([])), [])
            if queries is not None and not isinstance(queries, str):
                raise InputError("queries can only be learned from with judgements; give qrels=…, or name a split")
            split = queries or "train"
            queries_of_split = collection.queries.take(collection.split(split).queries)
            return cls(batch_of(queries_of_split), collection.relevant_ids(split))
        parsed = collection.queries if queries is None else queries_from(collection, queries)
        judged = judgements(qrels).drop_duplicates()
        twice = judged[judged.duplicated(["query_id", "doc_id"])]
        judged = judged[judged["relevance"] > 0]
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
        documents = judged.groupby("query_id")["doc_id"].agg(list)
        relevant: list[list[str]] = [documents.get(query, []) for query in ids]
        if queries is None:  # all judged queries of the collection
            rows = np.flatnonzero([len(ids) > 0 for ids in relevant])
            return cls(batch_of(parsed.take(rows)), [relevant[row] for row in rows])
        return cls(batch_of(parsed), relevant)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the queries (ids, texts, own documents, groups), their relevant documents, and all documents."""
        batch = self.batch
        sha256 = hashlib.sha256(_documents_digest(batch.engine).encode())
        columns = batch.ids, batch.paragraphs, batch.own.tolist(), batch.groups_by_id().tolist(), self.relevant
        for query, paragraphs, own, group, relevant in zip(*columns, strict=True):
            sha256.update(json.dumps([query, paragraphs, own, group, relevant]).encode())
        return sha256.hexdigest()

    def cached_fit(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned when it was first called for this key."""
        if key not in self._fitted:
            self._fitted[key] = make()
        found: T = self._fitted[key]
        return found


def _documents_digest(engine: Engine) -> str:
    """Return a digest of the documents of a snapshot: of their texts if the engine is in memory."""

    def of_texts() -> str:
        documents = engine.collection
        sha256 = hashlib.sha256(np.ascontiguousarray(documents.passages.doc_offsets).data)
        for texts in (documents.doc_ids, documents.passages.texts):
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                sha256.update(
                    "".join(f"{text}\0" for text in texts[start : start + _TEXTS_AT_ONCE].to_pylist()).encode()
                )
        return sha256.hexdigest()

    return engine.documents_digest or engine.cached("digest of the documents", of_texts)
