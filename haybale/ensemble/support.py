"""The fitted ensemble: the support rows of all bags, and the predictions of the bags and of their mean.

Bag b predicts f_b(q, p) = Σ_r coef_r Kq(q, query_r) Kp(p, passage_r) + φ · feature_weights_b + intercept_b, summed over
its support rows r; φ are the pair features, if there are any. The mean of the bags is linear in the coefficients, even
with different weights for every query, so it costs as much as one bag. :mod:`haybale.ensemble.expansion` computes the
sums.

The vectors may be on a device; predictions are computed on the same device. All other arrays are NumPy arrays, also
predictions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.cached import cached_property
from haybale.device import CPU, Device, to_numpy
from haybale.ensemble.expansion import BagWeights, Expansion, KernelTerms
from haybale.ensemble.kernel import Pairs, Points, kernel_tile
from haybale.ensemble.problem import Dual, PrecisionWarning, Problem, rounding
from haybale.ensemble.rows import Ints, distinct_numbers
from haybale.errors import InputError
from haybale.vectors import Floats

_MAX_CHECKED_ROWS = 64  # also predicted in float64, if float32 may not be precise enough


@dataclass(frozen=True)
class Support:
    """The support rows of all bags, bag after bag, and the distinct queries and passages that they use."""

    queries: Points  # (n_queries, ·)
    passages: Points  # (n_passages, ·)
    query: Ints  # (n_rows,)
    passage: Ints  # (n_rows,)
    coef: NDArray[np.float64]  # (n_rows,)
    label: NDArray[np.float32]  # (n_rows,) training labels
    offsets: Ints  # (n_bags + 1,) bag b consists of the rows offsets[b]:offsets[b + 1]
    intercept: NDArray[np.float64]  # (n_bags,)
    feature_weights: NDArray[np.float64] | None = None  # (n_bags, f) Σ coef · features over the rows of a bag

    @classmethod
    def of(cls, problem: Problem, bags: list[Ints], duals: list[Dual]) -> tuple[Support, Ints, Ints]:
        """Collect the support rows of solved bags.

        Returns
        -------
        support : Support
        queries, passages : (n_queries,) int, (n_passages,) int
            The numbers of the support's queries and passages in the problem.
        """
        chosen = [bag[dual.coef != 0] for bag, dual in zip(bags, duals, strict=True)]
        rows = np.concatenate(chosen)
        used_q, query = distinct_numbers(problem.query[rows], len(problem.queries))
        used_p, passage = distinct_numbers(problem.passage[rows], len(problem.passages))
        weights = None
        if problem.features is not None:  # their kernel is linear, so the weighted sum of the rows is sufficient
            weights = np.stack([dual.coef @ problem.features[bag] for bag, dual in zip(bags, duals, strict=True)])
        support = cls(
            problem.queries.take(used_q),
            problem.passages.take(used_p),
            query,
            passage,
            coef=np.concatenate([dual.coef[dual.coef != 0] for dual in duals]),
            label=problem.label[rows].astype(np.float32),
            offsets=np.concatenate(([0], np.cumsum([len(part) for part in chosen]))),
            intercept=np.array([dual.intercept for dual in duals]),
            feature_weights=weights,
        )
        return support, used_q, used_p

    def checked(self) -> Support:
        """Return the support itself; raise :class:`InputError` if its arrays are inconsistent or not finite."""
        n = len(self.coef)
        fits = all(len(column) == n for column in (self.query, self.passage, self.label))
        fits &= self.feature_weights is None or self.feature_weights.shape[:-1] == self.intercept.shape
        fits &= len(self.offsets) == len(self.intercept) + 1 >= 2 and self.offsets[0] == 0 and self.offsets[-1] == n
        fits &= bool((np.diff(self.offsets) >= 0).all())
        for numbers, points in ((self.query, self.queries), (self.passage, self.passages)):
            fits &= not n or bool(numbers.min() >= 0 and numbers.max() < len(points))
        if not fits:
            raise InputError("sizes or numbers in the tensors ('query', …) differ; fit and save the model again")
        dense = {"queries.dense": self.queries.dense, "passages.dense": self.passages.dense}
        for name, values in {**vars(self), **dense}.items():
            if isinstance(values, np.ndarray) and not np.isfinite(values).all():
                raise InputError(f"tensor '{name}' must be finite, found NaN or infinity")
        return self

    @property
    def device(self) -> Device:
        """The device that holds the vectors."""
        return self.queries.device

    def to(self, device: Device) -> Support:
        """Return the support with its vectors on a device, without a copy if they are already on it."""
        if device == self.device:
            return self
        return replace(self, queries=self.queries.to(device), passages=self.passages.to(device))

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.intercept)

    @cached_property
    def bag(self) -> Ints:
        """(n_rows,) bag of each row."""
        return np.repeat(np.arange(self.n_bags), np.diff(self.offsets))

    @cached_property
    def expansion(self) -> Expansion:
        """Computes the sums over support rows."""
        return Expansion(self.queries, self.passages)

    # terms of the sums -----------------------------------------------------------------------------------------

    @cached_property
    def _all_rows(self) -> KernelTerms:
        """The rows of all bags."""
        return KernelTerms(self.query, self.passage, self.coef, self.bag).in_order()

    @cached_property
    def _by_bag(self) -> list[KernelTerms]:
        """The rows of each bag."""
        bags = [slice(a, b) for a, b in pairwise(self.offsets)]
        return [KernelTerms(self.query[bag], self.passage[bag], self.coef[bag]).in_order() for bag in bags]

    @cached_property
    def _mean_rows(self) -> KernelTerms:
        """The mean of all bags as one sum: coef / n_bags, added over the bags that share a row."""
        entries = (self.coef / self.n_bags, (self.passage, self.query))
        summed = sparse.coo_matrix(entries, shape=(len(self.passages), len(self.queries))).tocsr()
        passage = np.repeat(np.arange(len(self.passages)), np.diff(summed.indptr))
        return KernelTerms(summed.indices.astype(np.int64), passage, summed.data)

    # predictions ----------------------------------------------------------------------------------------------

    def mean(
        self, pairs: Pairs, bag_weights: BagWeights | None = None, *, intercept: bool = True
    ) -> NDArray[np.float64]:
        """Return the mean predictions (n,) of the bags, float64.

        Parameters
        ----------
        pairs : Pairs (n,)
        bag_weights : (n_queries, n_bags), optional
            Weight of each bag in the mean of each query. Default: 1 / n_bags.
        intercept : bool, default True
            Whether to add the intercepts.
        """
        rest = self.without_memory(pairs.query, pairs.features, bag_weights, intercept=intercept)
        mean: NDArray[np.float64] = self.memory(pairs, bag_weights) + rest
        return mean

    def memory(self, pairs: Pairs, bag_weights: BagWeights | None = None, group: int | None = None) -> Any:
        """Return the sums (n,) over the support rows in :meth:`mean`, float64.

        With ``group``, the sums are those over one of :attr:`Expansion.groups`; added in order, they are all sums.
        """
        terms = self._mean_rows if bag_weights is None else self._all_rows
        with self.device.current():
            return self.expansion.sums(pairs, [terms], bag_weights, group)[:, 0]

    def without_memory(
        self, query: Ints, features: Floats | None, bag_weights: BagWeights | None = None, *, intercept: bool = True
    ) -> NDArray[np.float64]:
        """Return the rest of :meth:`mean` (n,): the shares of the scaled pair features, and the intercepts.

        ``query`` (n,) is the row of each pair in ``bag_weights``.
        """
        weights = 1 / self.n_bags if bag_weights is None else bag_weights[query]
        rest: NDArray[np.float64] = np.zeros(len(query)) + (self._of_features(features) * weights).sum(axis=1)
        if intercept:
            rest += self.intercept.mean() if bag_weights is None else (bag_weights @ self.intercept)[query]
        return rest

    def bags(self, pairs: Pairs) -> NDArray[np.float64]:
        """Return the predictions (n, n_bags) of every bag, float64."""
        with self.device.current():
            sums = self.expansion.sums(pairs, self._by_bag)
        sums += self._of_features(pairs.features)
        return np.asarray(sums + self.intercept)

    def highest(
        self,
        queries: Points,
        n: int,
        passages: Callable[[slice], Points],
        k: int,
        bag_weights: BagWeights | None = None,
        *,
        intercept: bool = True,
    ) -> Any:
        """Return the numbers (m, k) of the passages with the highest :meth:`mean` without features, descending.

        The parameters are those of :meth:`Expansion.highest` and :meth:`mean`.
        """
        terms = self._mean_rows if bag_weights is None else self._all_rows
        shift = self._intercepts(len(queries), bag_weights) if intercept else np.zeros(len(queries))
        with self.device.current():
            return self.expansion.highest(queries, n, passages, k, terms, shift.astype(np.float32), bag_weights)

    @cached_property
    def distinct(self) -> tuple[Ints, Ints, Ints]:
        """The distinct training pairs: their first rows (n,), all other rows (m,), and the pair of each other row (m,).

        A training pair may be in several bags. In the injected protocol, it may have both labels, and counts as two
        pairs. Most pairs have one row only, so the sum over the rows of each pair mostly copies the first rows.
        """
        rows = np.stack([self.query, self.passage, self.label.astype(np.int64)])
        _, firsts, pairs = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        is_further = np.ones(len(self.coef), dtype=bool)
        is_further[firsts] = False
        further = np.flatnonzero(is_further)
        return firsts, further, pairs.ravel()[further]

    def shares(self, pair: Pairs) -> NDArray[np.float64]:
        """Return coef · K (n_rows,) of every support row for one pair.

        The prediction of a bag is the sum of the values of its rows, the shares of its features and its intercept.
        """
        kq, kp = (
            to_numpy(kernel_tile(of.take(number), support, self.expansion.is_small)[0]).astype(np.float64)
            for of, number, support in (
                (pair.queries, pair.query, self.queries),
                (pair.passages, pair.passage, self.passages),
            )
        )
        return np.asarray(self.coef * (kq[self.query] * kp[self.passage]))

    def sums_of_bags(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the values (n_rows,) of each bag's rows, (n_bags,)."""
        sums, has_rows = np.zeros(self.n_bags), np.diff(self.offsets) > 0
        sums[has_rows] = np.add.reduceat(values, self.offsets[:-1][has_rows])
        return sums

    def error(self, pairs: Pairs, exact: Support | None = None, exact_pairs: Pairs | None = None) -> float:
        """Return the largest difference of mean predictions, without features, from those in float64.

        ``exact`` and ``exact_pairs`` are the support and the pairs in float64; by default, they are converted on the
        device, or on the CPU if half of the device's free memory does not hold the support in float64.
        """
        if exact is None or exact_pairs is None:
            needed = 2 * (self.queries.nbytes + self.passages.nbytes)
            where = self.device if self.device.is_cpu or needed <= self.device.half_of_memory() else CPU
            halves = [(of.queries.to(where).precise(), of.passages.to(where).precise()) for of in (self, pairs)]
            exact = replace(self, queries=halves[0][0], passages=halves[0][1])
            exact_pairs = replace(pairs, queries=halves[1][0], passages=halves[1][1])
        return float(np.nan_to_num(abs(self.mean(pairs) - exact.mean(exact_pairs)), nan=np.inf).max())

    def check_precision(self, problem: Problem, duals: list[Dual]) -> None:
        """Issue a :class:`PrecisionWarning` if rounding to float32 changes predictions by more than ``tol``."""
        error = float(np.mean([rounding(problem, dual.coef) for dual in duals]))
        if error > problem.tol / 4:  # the estimate is too large to accept without a comparison with float64
            n = len(problem.label)
            rows = np.linspace(0, n - 1, min(n, _MAX_CHECKED_ROWS)).astype(np.int64)
            error = self.error(Pairs(problem.queries, problem.passages, problem.query[rows], problem.passage[rows]))
        if error > problem.tol:
            warnings.warn(
                f"predictions may be off by {error:.2g}, with tol={problem.tol:.2g}, because float32 is not precise "
                "enough; scale the vectors, lower gamma or C, or raise tol",
                PrecisionWarning,
                stacklevel=4,
            )

    def _intercepts(self, m: int, bag_weights: BagWeights | None) -> NDArray[np.float64]:
        """Return the mean intercept (m,) of the bags for each query."""
        return np.broadcast_to(self.intercept.mean() if bag_weights is None else bag_weights @ self.intercept, m)

    def _of_features(self, features: Floats | None) -> NDArray[np.float64]:
        """Return the shares (n, n_bags) of the scaled pair features in the predictions of the bags."""
        if self.feature_weights is None or features is None:
            return np.zeros((1, 1))
        return np.asarray(features @ self.feature_weights.T)
