"""What rankers share that learn from judged queries and rank these as if they had not seen them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from haybale.embeddings.lineage import trained_queries
from haybale.errors import InputError
from haybale.retrieval.hits import Ints

if TYPE_CHECKING:
    from haybale.rankers.training import Training

_QUERIES = "training_queries.parquet"


class OutOfFold:
    """Mixin of rankers that learn from judged queries: ``class SVR(OutOfFold, Ranker)``.

    Such a ranker defines ``out_of_fold_batch``, which ranks a query that it learned from by what it learned from the
    others. Those that learn fold by fold
    keep the fold of each query in ``fold_of_``, and save it with :meth:`write_folds`.
    """

    needs_training = True
    query_ids_: Sequence[str] = ()
    fold_of_: Ints  # (n,) the fold of each query that it learned from

    def rows_of(self, query_ids: Sequence[str]) -> Ints:
        """Return the row (m,) of each query among those that it learned from, -1 for others."""
        return positions(self.query_ids_, query_ids)

    def folds_of(self, query_ids: Sequence[str]) -> Ints:
        """Return the fold (m,) of each query that it learned from, -1 for others."""
        rows = self.rows_of(query_ids)
        return np.where(rows >= 0, self.fold_of_[rows], -1) if len(self.query_ids_) else rows

    def learnable_rows(self: Any, training: Training) -> Ints:
        """Return the rows of the judged queries on which no encoder behind the fitted rankers within was trained.

        What an encoder says of the queries that it was trained on is biased, so nothing may be learned from it.
        """
        own = trained_queries(training.batch.engine.encoder) if self.uses_vectors else frozenset()
        seen = own.union(*(inner.encoder_queries for inner in self.rankers_))
        rows = np.flatnonzero([query not in seen for query in training.batch.ids])
        if seen and not any(training.relevant[row] for row in rows):
            raise InputError(
                f"{self}: the encoder was trained on all judged queries, so nothing can be learned from its vectors; "
                "train encoders of folds (train_encoder with fold) and give their engines as folds of InSpace"
            )
        return rows

    def write_folds(self, folder: Path) -> None:
        """Write the queries that it learned from, with the fold of each."""
        table = {"query_id": pa.array(self.query_ids_, type=pa.large_string()), "fold": pa.array(self.fold_of_)}
        pq.write_table(pa.table(table), folder / _QUERIES)

    def read_folds(self, folder: Path) -> None:
        """Read what :meth:`write_folds` wrote."""
        table = pq.read_table(folder / _QUERIES)
        self.query_ids_, self.fold_of_ = table.column("query_id").to_pylist(), table.column("fold").to_numpy()


def positions(training_ids: Sequence[str], query_ids: Sequence[str]) -> Ints:
    """Return the position (m,) of each query id among the training ids, -1 for those that are not there."""
    known = {query: place for place, query in enumerate(training_ids)}
    return np.array([known.get(query, -1) for query in query_ids], dtype=np.int64)
