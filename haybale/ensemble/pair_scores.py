"""Pairs of a query and a passage as a fitted ensemble takes them, and its predictions for many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import to_device, to_numpy
from haybale.ensemble.expansion import BagWeights
from haybale.ensemble.kernel import Pairs
from haybale.ensemble.pair_features import check_features
from haybale.ensemble.rows import Ints
from haybale.ensemble.spaces import Scaling, Spaces, take_rows
from haybale.ensemble.support import Support
from haybale.errors import InputError
from haybale.parallel import batch_size_for_memory, iter_blocks
from haybale.retrieval import AnyPassageIndex
from haybale.vectors import Floats, Matrix

Predict = Callable[[Pairs, BagWeights | None], Any]


@dataclass(frozen=True)
class PairScores:
    """A fitted ensemble's support and scalings, with the index whose passages it scores."""

    support: Support
    spaces: Spaces
    scaling: Scaling | None  # of the pair features, None if the ensemble was trained without features
    index: AnyPassageIndex

    def predicted(
        self,
        vectors: Matrix,
        query: Ints,
        passage: Ints,
        features: Floats | None,
        predict: Predict,
        bag_weights: BagWeights | None,
    ) -> NDArray[Any]:
        """Return predictions (n,) for pairs of rows of ``vectors`` and numbers of passages.

        The CPU processes all pairs in one tile. A device processes tiles of as many pairs as fit with their vectors.
        """
        where = self.support.device

        def predict_tile(tile: slice) -> NDArray[Any]:
            used, rows = np.unique(query[tile], return_inverse=True)
            pairs = self.pairs(vectors[used], rows, passage[tile], None if features is None else features[tile])
            predictions: NDArray[Any] = to_numpy(predict(pairs, None if bag_weights is None else bag_weights[used]))
            return predictions

        size: float = len(query)
        if not where.is_cpu:
            bytes_of_pair = 8 * (int(vectors.shape[1]) + 3 * self.support.n_bags)
            size = batch_size_for_memory(where.half_of_memory() / 4, bytes_of_pair)
        with where.current():
            return np.concatenate([np.zeros(0), *iter_blocks(len(query), size, predict_tile, what="pairs")])

    @property
    def n_groups(self) -> int:
        """Number of groups of support rows whose sums :meth:`memory` returns, at least one."""
        return max(1, len(self.support.expansion.groups))

    def memory(
        self, vectors: Matrix, query: Ints, passage: Ints, group: int, bag_weights: BagWeights | None
    ) -> NDArray[np.float64]:
        """Return the share (n,) of one group of support rows in the mean predictions of pairs.

        The shares of all groups, added in order, are :meth:`Support.memory`, to the bit. The pairs are those of
        :meth:`predicted`.
        """

        def predict(pairs: Pairs, weights: BagWeights | None) -> Any:
            return self.support.memory(pairs, weights, group)

        return self.predicted(vectors, query, passage, None, predict, bag_weights)

    def with_memory(
        self, memory: NDArray[np.float64], passages: Ints, features: Floats | None, bag_weights: BagWeights | None
    ) -> Floats:
        """Return the mean predictions (m, k) without the intercept of candidates whose :meth:`memory` is summed.

        ``memory`` (n,) belongs to the candidates (m, k) that are not -1, row by row. The others score -inf.
        """
        is_candidate, values = passages >= 0, self.scaled(self.checked_features(features, passages))
        scores = np.full(passages.shape, -np.inf, dtype=np.float32)
        rest = self.support.without_memory(np.nonzero(is_candidate)[0], values, bag_weights, intercept=False)
        scores[is_candidate] = memory + rest
        return scores

    def pairs(self, vectors: Matrix, query: Ints, passage: Ints, features: Floats | None) -> Pairs:
        """Return scaled pairs of rows of ``vectors`` and numbers of passages, on the device of the support."""
        where = self.support.device
        distinct, row = np.unique(passage, return_inverse=True)
        return Pairs(
            self.spaces.queries([to_device(vectors, where)]),
            self.spaces.passages([take_rows(self.index.vectors, distinct, where)]),
            query,
            row,
            features=self.scaled(features),
        )

    def scaled(self, features: Floats | None) -> Floats | None:
        """Return the scaled pair features (n, f); None without features, or if it was trained without features."""
        return None if self.scaling is None or features is None else np.asarray(self.scaling(features))

    def checked_features(self, features: Any, passages: Ints) -> Floats | None:
        """Return the features (n, f) of the candidates (m, k) that are not -1; None for a model without features."""
        if self.scaling is None:
            return None
        if features is None:
            n = len(self.scaling.factor)
            raise InputError(f"the ensemble was trained with {n} pair features and needs them here; give features")
        return check_features(features, passages, len(self.scaling.factor))[passages.ravel() >= 0]
