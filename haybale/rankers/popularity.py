"""Documents by how many training queries they were relevant to, whatever the query: a baseline without any text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from haybale.collections.ids import in_order_of_ids
from haybale.engine import Engine
from haybale.engine.reattaching import find_renamed
from haybale.errors import FileFormatError
from haybale.manifest import mapped_tensors, read_table, write_table, write_tensors
from haybale.ranking.out_of_fold import OutOfFold
from haybale.ranking.ranker import Ranker
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.cutoffs import dated_training
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

_QUERIES_FILE, _DOCUMENTS_FILE, _PAIRS_FILE = "queries.parquet", "documents.parquet", "pairs.safetensors"
_IDS_SCHEMA = pa.schema([("id", pa.large_string())])


@dataclass(eq=False, repr=False)
class Popularity(OutOfFold, Ranker):
    """Rank documents by the number of training queries to which they are relevant, the same for each query.

    The ranker reads no text, so what it finds is found because the same documents were relevant before. It is a
    baseline for rankers that learn from judgements, which also rank frequent documents high. Equal numbers are in the
    order of the ids. Twins count once (:mod:`~haybale.ranking.twins`).

    Out of fold, judgements of the query itself do not count, nor those of queries that were taken from the same
    document or are nearly the same. With ``before=``, training queries that are later than a query do not count.
    """

    name = "popularity"
    variants: ClassVar = {"popularity": {}}
    learns_documents = True
    obeys_cutoffs = True

    @property
    def uses_vectors(self) -> bool:
        """False: it reads no text."""
        return False

    def fit_batch(self, training: Training) -> None:
        batch = training.batch
        relevant = [list(dict.fromkeys(ids)) for ids in training.relevant]
        self.query_ids_, self.groups_ = batch.ids, batch.groups
        self.days_: Ints | None = None if batch.cutoffs is None else batch.cutoffs.queries
        distinct = sorted({doc_id for ids in relevant for doc_id in ids})
        code_of = {doc_id: code for code, doc_id in enumerate(distinct)}
        self.doc_ids_ = pa.chunked_array([pa.array(distinct, type=pa.large_string())])
        # The pairs (2, n) of a training query and a document that is relevant to it, as their numbers.
        rows = np.repeat(np.arange(len(relevant)), [len(ids) for ids in relevant])
        self.pairs_: Ints = np.array([rows, [code_of[doc_id] for ids in relevant for doc_id in ids]], dtype=np.int64)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, np.full(len(batch), -1))

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, self.rows_of(batch.ids))

    def _ranked(self, batch: QueryBatch, depth: int, itself: Ints) -> Run:
        """Rank documents; ``itself`` (m,) is the number of each query among the training queries, -1 for others."""
        collection, cutoffs = batch.engine.collection, batch.cutoffs
        queries, documents = self._pairs(batch.engine)
        days = None if cutoffs is None else dated_training(self.days_, self)
        by_group = np.argsort(self.groups_[queries], kind="stable")
        sorted_groups = self.groups_[queries[by_group]]
        parts: list[tuple[Ints, Ints, Ints]] = [(queries[:0], queries[:0], queries[:0])]
        for day in [0] if cutoffs is None else np.unique(cutoffs.queries).tolist():
            is_counted = np.ones(len(queries), dtype=bool)
            is_ranked, rows = np.ones(collection.n_documents, dtype=bool), np.arange(len(batch))
            if cutoffs is not None and days is not None:
                is_counted, is_ranked = days[queries] <= day, cutoffs.documents < day
                rows = np.flatnonzero(cutoffs.queries == day)
            counts = np.bincount(documents[is_counted], minlength=collection.n_documents)
            ranked = np.flatnonzero(is_ranked & (counts > 0))
            ranked = ranked[np.lexsort((in_order_of_ids(collection.doc_ids, ranked)[1], -counts[ranked]))]
            for row in rows.tolist():
                first, scores = ranked[: depth + 1], counts  # one may be the query's own document
                if itself[row] >= 0:
                    edges = np.searchsorted(sorted_groups, self.groups_[itself[row]] + np.arange(2))
                    of_group = by_group[slice(*edges)]
                    lowered = documents[of_group[is_counted[of_group]]]
                    first = ranked[: depth + 1 + len(lowered)]
                    scores = counts - np.bincount(lowered, minlength=len(counts))
                first = first[(scores[first] > 0) & (first != batch.own[row])]
                parts.append((np.full(len(first), row), first, scores[first]))
        rows, ranked, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Run.from_numbers(batch.ids, collection.doc_ids, rows, ranked, scores, depth)

    def counts(self, batch: QueryBatch, rows: Ints, documents: Ints, *, out_of_fold: bool) -> Ints:
        """Return to how many training queries documents were relevant, as this ranker counts them.

        Parameters
        ----------
        batch : QueryBatch
            The queries that the documents are ranked for.
        rows, documents : (n,) int64
            The row of the query in the batch, and the number of the document in the batch's engine.
        out_of_fold : bool
            Whether judgements of a training query itself, and of others of its group, do not count for it.

        Returns
        -------
        (n,) int64
        """
        queries, judged_documents = self._pairs(batch.engine)
        cutoffs, n_documents = batch.cutoffs, batch.engine.collection.n_documents
        days = None if cutoffs is None else dated_training(self.days_, self)
        itself = self.rows_of(batch.ids) if out_of_fold else np.full(len(batch), -1)
        counts = np.zeros(len(rows), dtype=np.int64)
        for day in [0] if cutoffs is None else np.unique(cutoffs.queries).tolist():
            is_counted, places = np.ones(len(queries), dtype=bool), np.arange(len(rows))
            if cutoffs is not None and days is not None:
                is_counted, places = days[queries] <= day, np.flatnonzero(cutoffs.queries[rows] == day)
            counted_documents = judged_documents[is_counted]
            totals = np.bincount(counted_documents, minlength=n_documents)
            pairs = np.sort(self.groups_[queries[is_counted]] * n_documents + counted_documents)
            query = itself[rows[places]]
            of_group = self.groups_[query] * n_documents + documents[places]
            n_of_group = np.searchsorted(pairs, of_group, "right") - np.searchsorted(pairs, of_group, "left")
            counts[places] = totals[documents[places]] - np.where(query >= 0, n_of_group, 0)
        return counts

    def _pairs(self, engine: Engine) -> tuple[Ints, Ints]:
        """Return the training queries and the documents of the pairs, each (n,), with the engine's document numbers."""

        def renumbered() -> tuple[Ints, Ints]:
            queries, codes = self.pairs_
            documents = find_renamed(engine.collection, self.doc_ids_, engine.folder)[codes]
            return queries[documents >= 0], documents[documents >= 0]

        pairs: tuple[Ints, Ints] = engine.cached(("popularity", self._state_key), renumbered)
        return pairs

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        n = int(base.score or 0)
        what = f"relevant to {n:,} training {'query' if n == 1 else 'queries'}"
        return replace(base, shares=[Share(what, float(n))])

    @property
    def fit_report_(self) -> dict[str, Any]:
        counts = {"training queries": len(self.query_ids_), "documents that were relevant": len(self.doc_ids_)}
        return counts | self.twins_.report

    def save_state(self, folder: Path) -> dict[str, Any]:
        """Write the ids of queries and documents, the groups and days of the queries, and the pairs as numbers."""
        ids = pa.chunked_array([pa.array(self.query_ids_, type=pa.large_string())])
        for name, column in ((_QUERIES_FILE, ids), (_DOCUMENTS_FILE, self.doc_ids_)):
            write_table(folder / name, pa.table([column], schema=_IDS_SCHEMA))
        days = {} if self.days_ is None else {"days": self.days_}
        write_tensors(folder / _PAIRS_FILE, {"pairs": self.pairs_, "groups": self.groups_} | days)
        return {}

    def load_state(self, folder: Path, state: dict[str, Any], engine: Engine) -> None:
        self.query_ids_, self.doc_ids_ = (
            read_table(folder / _QUERIES_FILE, _IDS_SCHEMA).column("id").to_pylist(),
            read_table(folder / _DOCUMENTS_FILE, _IDS_SCHEMA).column("id"),
        )
        tensors = mapped_tensors(folder / _PAIRS_FILE)
        self.pairs_, self.groups_, self.days_ = tensors["pairs"], tensors["groups"], tensors.get("days")
        ends = np.array([len(self.query_ids_), len(self.doc_ids_)])
        if (self.pairs_ < 0).any() or (self.pairs_ >= ends[:, None]).any() or len(self.groups_) != ends[0]:
            message = f"expected pairs of {ends[0]} queries and {ends[1]} documents, found others; fit the ranker again"
            raise FileFormatError(folder / _PAIRS_FILE, None, message)
