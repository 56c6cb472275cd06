"""Training queries scored by the bags that did not see them: estimates to choose by, and scores to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from haybale.device import to_numpy
from haybale.ensemble.bags import Bags
from haybale.ensemble.blending import fit_blend
from haybale.ensemble.out_of_bag import out_of_bag, reciprocal_ranks
from haybale.ensemble.rows import CandidateRows, Ints
from haybale.ensemble.scoring import EnsembleScorer
from haybale.ensemble.training import TrainingSet
from haybale.errors import InputError
from haybale.vectors import Floats, Matrix


class OutOfBagScorer(EnsembleScorer):
    """What :class:`SVREnsemble` does with its own training queries."""

    seen_: NDArray[np.bool_]

    def out_of_bag_memory(
        self,
        query_numbers: Ints,
        query_vectors: Matrix | Sequence[Matrix],
        passages: Any,
        features: Any | None = None,
    ) -> Any:
        """(m, k) float32 as :meth:`memory`, each training query by the mean of the bags that saw nothing of it.

        ``query_numbers`` (m,) are the places of the queries among those that were given to ``fit``, ``query_vectors``
        their vectors; ``passages`` (m, k) may be any, -1 for none, which scores -inf.

        Errors: a loaded model, since ``seen_`` is not saved; an ensemble with ``routes``; numbers that no training
        query has; a query that every bag saw.
        """
        self._check_fitted()
        weights = self._unseen_weights(np.asarray(to_numpy(query_numbers)))
        if len(weights) != len(passages):
            raise InputError(f"{len(weights)} query numbers for candidates of {len(passages)} queries")
        return self._scored(query_vectors, passages, features, self.support_.mean, np.float32(-np.inf), weights)

    def _unseen_weights(self, numbers: Ints) -> NDArray[np.float64]:
        """(m, n_bags) that average the bags which saw nothing of a query."""
        if self.routes is not None:
            raise InputError("out-of-bag scores are means over all bags; this ensemble has routes")
        if not hasattr(self, "seen_"):
            raise InputError("a loaded model does not know which bags saw which training queries; fit it anew")
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InputError(f"query_numbers: expected whole numbers (m,), found {numbers.dtype} {numbers.shape}")
        n = len(self.seen_)
        wrong = numbers[(numbers < 0) | (numbers >= n)]
        if len(wrong):
            raise InputError(f"query_numbers must lie in 0..{n - 1}, the training queries; found {wrong[0]}")
        outside = ~self.seen_[numbers.astype(np.int64)]
        counts = outside.sum(axis=1)
        everywhere = numbers[counts == 0]
        if len(everywhere):
            raise InputError(
                f"out-of-bag scores: every bag saw {len(everywhere)} of {len(numbers)} queries, the first is training "
                f"query {everywhere[0]}; take more bags or less overlap"
            )
        return np.asarray(outside / counts[:, None])

    def _look_out_of_bag(
        self, data: TrainingSet, bags: Bags, rows: CandidateRows, relevant: tuple[Ints, Ints], features: Floats | None
    ) -> None:
        """Out-of-bag scores, and what is made of them."""
        self.blend_ = None
        if not (self.oob_score or self.blend):
            return
        sample = None
        if not self.oob_score and self.blend_queries is not None:
            rng = np.random.default_rng(np.random.SeedSequence(self.random_state).spawn(self.n_bags + 2)[-1])
            sample = rng.permutation(len(data.queries))[: self.blend_queries]
        prediction = out_of_bag(self.support_, data, bags.rows, rows, sample)
        known = np.isfinite(prediction)
        found = np.flatnonzero(known if rows.place is None else known & (rows.place >= 0))
        doc_of, own = self.index_.doc_of, rows.take(found)
        if self.oob_score:
            self.oob_prediction_ = prediction
            self.oob_score_ = float(r2_score(data.label[known], prediction[known]))
            gained = reciprocal_ranks(own.query, doc_of[own.passage], prediction[found], relevant)
            self.oob_mrr_ = float(gained.mean())
        if self.blend and features is not None:
            self.blend_ = fit_blend(own, features[own.place], prediction[found], relevant, doc_of)
