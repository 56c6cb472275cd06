"""Candidate rows with scaled vectors and pair features, and the scalings, which the ensemble needs for predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device
from haybale.ensemble.kernel import Pairs
from haybale.ensemble.problem import Problem
from haybale.ensemble.rows import CandidateRows, distinct_numbers
from haybale.ensemble.spaces import GammaOfSpace, Scaling, Spaces, fit_features, fit_spaces, take_rows
from haybale.errors import InputError
from haybale.vectors import Floats, Matrix


@dataclass(frozen=True)
class ScaledRows:
    """Candidate rows as scaled pairs of the distinct queries and passages that they use."""

    pairs: Pairs
    label: NDArray[np.float64]  # (n_rows,)
    spaces: Spaces
    features: Scaling | None  # None without pair features
    queries: NDArray[np.int32]  # the number of each query of the pairs among all query vectors
    passages: NDArray[np.int32]  # the number of each passage of the pairs in the index

    def problem(self, positive_weight: float, *, C: float, epsilon: float, tol: float) -> Problem:
        """Return the problem of all rows, in which errors of relevant rows count ``positive_weight`` times."""
        return Problem(
            self.pairs.queries,
            self.pairs.passages,
            self.pairs.query,
            self.pairs.passage,
            label=self.label,
            weight=np.where(self.label > 0, positive_weight, 1.0),
            C=C,
            epsilon=epsilon,
            tol=tol,
            features=self.pairs.features,
        )


def scale_rows(
    rows: CandidateRows,
    query_vectors: Matrix,
    passage_vectors: Matrix,
    features: Floats | None,
    where: Device,
    *,
    gamma: GammaOfSpace,
    standardize: bool,
    eta: float,
) -> ScaledRows:
    """Fit the scalings on candidate rows, and scale the rows on a device.

    ``features`` (m·c, f) are those of the flattened candidates, to which ``rows.place`` refers. Raises
    :class:`InputError` for rows that cannot be trained on, and if ``eta`` needs features and there are none.
    """
    m, n = int(query_vectors.shape[0]), int(passage_vectors.shape[0])
    rows.check_trainable(m, n)
    # Only vectors of candidate rows are scaled, because the collection may be far larger.
    (used_q, query), (used_p, passage) = distinct_numbers(rows.query, m), distinct_numbers(rows.passage, n)
    queries, passages = [take_rows(query_vectors, used_q, where)], [take_rows(passage_vectors, used_p, where)]
    spaces = fit_spaces(query, passage, queries, passages, gamma, standardize)
    scaling, values = _scaled_features(rows, features, eta) if eta else (None, None)
    pairs = Pairs(spaces.queries(queries), spaces.passages(passages), query, passage, features=values)
    return ScaledRows(pairs, rows.label.astype(np.float64), spaces, scaling, used_q, used_p)


def _scaled_features(rows: CandidateRows, features: Floats | None, eta: float) -> tuple[Scaling, Floats]:
    """Return the scaling of pair features, and the scaled ones (n_rows, f); they are 0 for rows that have none."""
    if features is None or rows.place is None:
        raise InputError(f"eta={eta} needs pair features of the candidates; give features, or set eta=0")
    has_features = rows.place >= 0
    if not has_features.any():
        raise InputError(
            "features= must describe a candidate that a ranker has found, found none for any query; check that the "
            "queries and the documents are in one language"
        )
    scaling = fit_features(features[rows.place[has_features]], eta)
    values = np.zeros((len(rows), features.shape[1]), dtype=np.float32)
    scaled: Any = scaling(features[rows.place[has_features]])
    values[has_features] = scaled
    return scaling, values
