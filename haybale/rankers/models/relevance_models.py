"""Models that give a candidate's probability of being relevant: isotonic, logistic, boosted trees, and a mean of these.

scikit-learn fits them. Only the arrays of a fitted model are kept, and predictions are computed from these, so a model
that is saved and loaded gives the same bits. A prediction is a sum: each feature adds to the log odds.

Zadrozny & Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", KDD 2002 (isotonic);
Friedman, "Stochastic Gradient Boosting", 2002; Saabas, "Interpreting random forests", 2014 (contributions of trees).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from haybale.retrieval.hits import Ints

Array = NDArray[np.float64]
_MAX_LOG_ODDS = 14.0  # probabilities from about 1e-6 to 1 - 1e-6
_REGRESSION_C = 1.0  # the inverse penalty of the logistic regression, on standardised features
_TREES = {"n_estimators": 100, "learning_rate": 0.05, "max_depth": 3, "min_samples_leaf": 20}
_RANKS_KEPT, _THINNING = 10, 5  # trees learn from all candidates with these ranks, and from one in five others
_DRAWN = {"subsample": 0.5, "max_features": "sqrt"}  # shares of the rows of a tree and of the features of a split


@dataclass(frozen=True, eq=False)
class RelevanceModel(ABC):
    """The base of the models. The fields of a subclass are arrays, which are saved."""

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def fit(cls, features: Array, is_relevant: NDArray[np.bool_], ranks: Ints) -> Self:
        """Learn from candidates with features (n, f), of which some are relevant and some are not."""

    @abstractmethod
    def shares(self, features: Array) -> Array:
        """Return what each feature adds to the log odds of each candidate, (n, f + 1); the last column is the rest."""

    @abstractmethod
    def raw_log_odds(self, features: Array) -> Array:
        """Return the log odds (n,) of relevance, not limited."""

    def probabilities(self, features: Array) -> Array:
        """Return the probability (n,) that each candidate is relevant, from 1e-6 to 1 - 1e-6."""
        log_odds = np.clip(self.raw_log_odds(features), -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
        probabilities: Array = 1 / (1 + np.exp(-log_odds))
        return probabilities

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the model, from which :meth:`from_arrays` makes it again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make a model from what :meth:`arrays` returned."""
        return cls(**arrays)


@dataclass(frozen=True, eq=False)
class IsotonicModel(RelevanceModel):
    """A rising function of the score alone, which is the first feature, linear between ``scores``."""

    scores: Array  # (k,) rising
    log_odds: Array  # (k,)
    kind = "isotonic"

    @classmethod
    def fit(cls, features: Array, is_relevant: NDArray[np.bool_], ranks: Ints) -> Self:
        from sklearn.isotonic import IsotonicRegression

        model = IsotonicRegression(out_of_bounds="clip").fit(features[:, 0], is_relevant)
        probabilities = np.clip(model.y_thresholds_, 1e-6, 1 - 1e-6)
        return cls(model.X_thresholds_.astype(np.float64), np.log(probabilities / (1 - probabilities)))

    def raw_log_odds(self, features: Array) -> Array:
        odds: Array = np.interp(features[:, 0], self.scores, self.log_odds)
        return odds

    def shares(self, features: Array) -> Array:
        shares = np.zeros((len(features), features.shape[1] + 1))
        shares[:, -1] = self.log_odds[0]
        shares[:, 0] = self.raw_log_odds(features) - self.log_odds[0]
        return shares


@dataclass(frozen=True, eq=False)
class LogisticModel(RelevanceModel):
    """A weighted sum of the features, clipped to the range that they have in training."""

    coef: Array  # (f,) of raw features
    mean: Array  # (f,) of the features in training
    limits: Array  # (2, f) least and largest features in training
    intercept: Array  # () log odds of a candidate with mean features
    kind = "logistic"

    @classmethod
    def fit(cls, features: Array, is_relevant: NDArray[np.bool_], ranks: Ints) -> Self:
        from sklearn.linear_model import LogisticRegression

        mean, spread = features.mean(axis=0), features.std(axis=0)
        scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
        model = LogisticRegression(C=_REGRESSION_C, max_iter=1000)
        model.fit((features - mean) * scale, is_relevant)
        limits = np.stack([features.min(axis=0), features.max(axis=0)])
        return cls(model.coef_[0] * scale, mean, limits, np.array(float(model.intercept_[0])))

    def raw_log_odds(self, features: Array) -> Array:
        # Summed feature by feature, so that the bits of a candidate do not depend on the others.
        log_odds = np.full(len(features), float(self.intercept))
        for share in self.shares(features)[:, :-1].T:
            log_odds += share
        return log_odds

    def shares(self, features: Array) -> Array:
        weighted = (np.clip(features, *self.limits) - self.mean) * self.coef
        return np.column_stack([weighted, np.full(len(features), float(self.intercept))])


@dataclass(frozen=True, eq=False)
class TreesModel(RelevanceModel):
    """Gradient boosted regression trees of depth 3; node 0 of each tree is its root."""

    feature: NDArray[np.int32]  # (t, k) the feature that each node compares, -1 for a leaf
    threshold: NDArray[np.float64]  # (t, k) a candidate whose feature, as float32, is at most this goes left
    left: NDArray[np.int32]  # (t, k) the nodes on the left
    right: NDArray[np.int32]  # (t, k) the nodes on the right
    value: Array  # (t, k) log odds that a node adds; those of inner nodes are means over training candidates
    start: Array  # () log odds before the first tree
    kind = "trees"

    @classmethod
    def fit(cls, features: Array, is_relevant: NDArray[np.bool_], ranks: Ints) -> Self:
        from sklearn.ensemble import GradientBoostingClassifier

        # Most candidates are irrelevant and have a low rank: every fifth of them stands for five.
        is_thinned = ~is_relevant & (ranks > _RANKS_KEPT)
        kept = ~is_thinned | (ranks % _THINNING == 0)
        weights = np.where(is_thinned, _THINNING, 1.0)[kept]
        features, is_relevant = features[kept], is_relevant[kept]
        model = GradientBoostingClassifier(**_TREES, **_DRAWN, random_state=0)
        model.fit(features, is_relevant, sample_weight=weights)
        trees = [tree.tree_ for tree in model.estimators_[:, 0]]
        shape = len(trees), max(tree.node_count for tree in trees)
        feature, left, right = (np.full(shape, -1, dtype=np.int32) for _ in range(3))
        threshold, value = np.zeros(shape), np.zeros(shape)
        for row, tree in enumerate(trees):
            columns = slice(0, tree.node_count)
            is_inner = tree.children_left >= 0
            feature[row, columns] = np.where(is_inner, tree.feature, -1)
            left[row, columns], right[row, columns] = tree.children_left, tree.children_right
            threshold[row, columns] = np.where(is_inner, tree.threshold, 0.0)
            value[row, columns] = model.learning_rate * _mean_values(tree)
        share = np.average(is_relevant, weights=weights)
        return cls(feature, threshold, left, right, value, np.array(np.log(share / (1 - share))))

    def raw_log_odds(self, features: Array) -> Array:
        log_odds = np.full(len(features), float(self.start))
        for tree, nodes in self._paths(features):
            log_odds += self.value[tree, nodes[-1]]
        return log_odds

    def shares(self, features: Array) -> Array:
        """Return the change of the mean log odds at each node that a candidate passes, summed by the feature there."""
        rows = np.arange(len(features))
        shares = np.zeros((len(features), features.shape[1] + 1))
        shares[:, -1] = float(self.start) + self.value[:, 0].sum()
        for tree, nodes in self._paths(features):
            for here, below in pairwise(nodes):
                inner = self.feature[tree, here] >= 0
                change = self.value[tree, below] - self.value[tree, here]
                np.add.at(shares, (rows[inner], self.feature[tree, here[inner]]), change[inner])
        return shares

    def _paths(self, features: Array) -> Any:
        """Yield each tree's number with the nodes (n,) of its levels that the candidates pass, the root first."""
        compared, rows = features.astype(np.float32), np.arange(len(features))
        for tree in range(len(self.feature)):
            nodes = [np.zeros(len(features), dtype=np.int64)]
            while (inner := self.feature[tree, nodes[-1]] >= 0).any():
                here = nodes[-1]
                goes_left = compared[rows, np.maximum(self.feature[tree, here], 0)] <= self.threshold[tree, here]
                below = np.where(goes_left, self.left[tree, here], self.right[tree, here])
                nodes.append(np.where(inner, below, here))
            yield tree, nodes


def _mean_values(tree: Any) -> Array:
    """Return the value of each leaf of a tree of scikit-learn, and of each inner node the weighted mean of its leaves.

    scikit-learn updates the leaves after it grew the tree, so that its values of inner nodes are on another scale.
    """
    values: Array = tree.value[:, 0, 0].astype(np.float64).copy()
    for node in range(tree.node_count - 1, -1, -1):  # children come after their parent
        children = [tree.children_left[node], tree.children_right[node]]
        if children[0] >= 0:
            values[node] = np.average(values[children], weights=tree.weighted_n_node_samples[children])
    return values


@dataclass(frozen=True, eq=False)
class MeanModel(RelevanceModel):
    """The mean of the log odds of the logistic regression and of the trees."""

    logistic: LogisticModel
    trees: TreesModel
    kind = "mean"

    @classmethod
    def fit(cls, features: Array, is_relevant: NDArray[np.bool_], ranks: Ints) -> Self:
        data = features, is_relevant, ranks
        return cls(LogisticModel.fit(*data), TreesModel.fit(*data))

    def raw_log_odds(self, features: Array) -> Array:
        mean: Array = (self.logistic.raw_log_odds(features) + self.trees.raw_log_odds(features)) / 2
        return mean

    def shares(self, features: Array) -> Array:
        mean: Array = (self.logistic.shares(features) + self.trees.shares(features)) / 2
        return mean

    def arrays(self) -> dict[str, NDArray[Any]]:
        parts = {"logistic": self.logistic, "trees": self.trees}
        return {f"{kind} {name}": array for kind, part in parts.items() for name, array in part.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        by_kind: dict[str, dict[str, NDArray[Any]]] = {"logistic": {}, "trees": {}}
        for key, array in arrays.items():
            kind, _, name = key.partition(" ")
            by_kind[kind][name] = array
        return cls(LogisticModel(**by_kind["logistic"]), TreesModel(**by_kind["trees"]))


MODELS: dict[str, type[RelevanceModel]] = {
    model.kind: model for model in (IsotonicModel, LogisticModel, TreesModel, MeanModel)
}


def fit_models(kind: str, features: Array, is_relevant: NDArray[np.bool_], ranks: Ints) -> dict[str, RelevanceModel]:
    """Fit the model of a kind, or with "auto" one of each kind; return models by kind."""
    if kind != "auto":
        return {kind: MODELS[kind].fit(features, is_relevant, ranks)}
    isotonic = IsotonicModel.fit(features, is_relevant, ranks)
    mean = MeanModel.fit(features, is_relevant, ranks)
    return {model.kind: model for model in (isotonic, mean.logistic, mean.trees, mean)}
