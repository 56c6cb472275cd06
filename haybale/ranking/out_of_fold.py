"""The mixin of rankers that learn from judged queries."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from haybale.cached import cached_property
from haybale.errors import InputError
from haybale.retrieval.hits import Ints

if TYPE_CHECKING:
    from haybale.ranking.training import Training
    from haybale.ranking.twins import Twins

_QUERIES_FILE = "training_queries.parquet"
learning = threading.RLock()  # held by the thread that learns the models of folds when they are first used

T = TypeVar("T")


class learned_once(cached_property[T]):
    """A cached property that one thread learns, while others wait."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or self.attrname in vars(instance):
            return super().__get__(instance, owner)
        with learning:
            return super().__get__(instance, owner)


class OutOfFold:
    """Mixin of rankers that learn from judged queries: ``class SVR(OutOfFold, Ranker)``.

    The ranker defines ``out_of_fold_batch``, which ranks a training query by what was learned from the others. A ranker
    that learns in folds stores the fold of each query in ``fold_of_``, and saves it with :meth:`write_folds`.
    """

    needs_training = True
    query_ids_: Sequence[str] = ()
    twins_: Twins
    fold_of_: Ints  # (n,) the fold of each training query

    def rows_of(self, query_ids: Sequence[str]) -> Ints:
        """Return the number (m,) of each query, or of the twin that stands for it, among the training queries.

        It is -1 for other queries.
        """
        rows = {query: row for row, query in enumerate(self.query_ids_)}
        return np.array([rows.get(self.twins_.representative(query), -1) for query in query_ids], dtype=np.int64)

    def folds_of(self, query_ids: Sequence[str]) -> Ints:
        """Return the fold (m,) of each training query, -1 for other queries."""
        rows = self.rows_of(query_ids)
        return np.where(rows >= 0, self.fold_of_[rows], -1) if len(self.query_ids_) else rows

    def learnable_rows(self: Any, training: Training) -> Ints:
        """Return the rows of the judged queries on which no encoder behind the ranker was trained.

        Scores of an encoder for the queries that it was trained on are biased, so nothing may be learned from them.
        """
        own_encoder_queries: frozenset[str] = training.twins.with_twins(self._own_encoder_queries(training.engine))
        seen = own_encoder_queries.union(*(training.twins.with_twins(inner.encoder_queries) for inner in self.rankers_))
        rows = np.flatnonzero([query not in seen for query in training.batch.ids])
        if seen and not any(training.relevant[row] for row in rows):
            judged = {query for query, ids in zip(training.batch.ids, training.relevant, strict=True) if ids}
            if judged <= own_encoder_queries:
                raise InputError(
                    f"{self} needs judged queries that its encoder was not trained on, but it was trained on all "
                    f"{len(judged)}; give an engine whose encoder was trained without some of them (fold=…), or learn "
                    "outside its space, from rankers such as InSpace(KNN(), …, folds=[…])"
                )
            raise InputError(
                f"{self} needs judged queries that no encoder within was trained on, but they were trained on all "
                f"{len(judged)}; train encoders with fold=… and give these as folds=[…] of the rankers within"
            )
        return rows

    def write_folds(self, folder: Path) -> None:
        """Write the training queries with their folds."""
        table = {"query_id": pa.array(self.query_ids_, type=pa.large_string()), "fold": pa.array(self.fold_of_)}
        pq.write_table(pa.table(table), folder / _QUERIES_FILE)

    def read_folds(self, folder: Path) -> None:
        """Read what :meth:`write_folds` wrote."""
        table = pq.read_table(folder / _QUERIES_FILE)
        self.query_ids_, self.fold_of_ = table.column("query_id").to_pylist(), table.column("fold").to_numpy()
