"""The fitted ensemble: support rows of all bags over shared vectors, and how much each weighs.

A bag scores a query q against any passage p by Σ_u Kp(p, u) W(q, u) + intercept, where u runs over the support
passages and W(q, u) sums coef · Kq(q, ·) over the support rows of u. A mean over bags is linear in the coefficients,
also with other weights for every query, so it costs what one bag costs.

The two halves may be on a device, and predictions are made there; everything else is NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.expansion import Group, expand
from haybale.ensemble.gram import kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.vectors import Floats

_SMALL = 2**16  # numbers of a half, whose products with a row take microseconds in float64


@dataclass(frozen=True)
class Pairs:
    """(n,) pairs to score: rows of the query half and of the passage half, with what belongs to the pair itself.

    The halves are where those of the support are; the rest is NumPy.
    """

    queries: Half
    passages: Half
    query: Ints
    passage: Ints
    interactions: Floats | None = None  # (n, r)
    evidence: Floats | None = None  # (n, f)


@dataclass(frozen=True)
class Support:
    """Support rows of all bags, bag after bag, over the distinct queries and passages among them."""

    queries: Half  # (n_queries, ·)
    passages: Half  # (n_passages, ·)
    query: Ints  # (n_rows,)
    passage: Ints  # (n_rows,)
    coef: NDArray[np.float64]  # (n_rows,)
    label: NDArray[np.float32]  # (n_rows,) what the row was taught
    offsets: Ints  # (n_bags + 1,) bag b is rows offsets[b]:offsets[b + 1]
    intercept: NDArray[np.float64]  # (n_bags,)
    interactions: Floats | None = None  # (n_rows, r)
    evidence: Floats | None = None  # (n_rows, f)
    evidence_root: Floats | None = None  # (n_rows,) √η, or 0 for a row without evidence
    eta: float = 0.0

    def checked(self) -> Support:
        """Itself, if all parts fit each other; for what was read from a file."""
        n = len(self.coef)
        finite: list[NDArray[Any]] = [self.coef, self.intercept, self.label]
        finite += [half.dense for half in (self.queries, self.passages) if half.dense is not None]
        fits = all(len(column) == n for column in (self.query, self.passage, self.label))
        fits &= all(
            len(part) == n for part in (self.interactions, self.evidence, self.evidence_root) if part is not None
        )
        fits &= len(self.offsets) == len(self.intercept) + 1 >= 2 and self.offsets[0] == 0 and self.offsets[-1] == n
        fits &= bool((np.diff(self.offsets) >= 0).all())
        for numbers, half in ((self.query, self.queries), (self.passage, self.passages)):
            fits &= not n or bool(numbers.min() >= 0 and numbers.max() < len(half))
        if not fits:
            raise InputError("the tensors of the support do not fit each other")
        if not all(np.isfinite(values).all() for values in finite):
            raise InputError("NaN or infinity among the tensors")
        return self

    @property
    def device(self) -> Device:
        """Where the halves are."""
        return self.queries.device

    def to(self, device: Device) -> Support:
        """The support with its halves on a device; itself, where they are there."""
        if device == self.device:
            return self
        return replace(self, queries=self.queries.to(device), passages=self.passages.to(device))

    @cached_property
    def is_small(self) -> bool:
        """Whether the products of a prediction are summed in float64: a pair's then depends on no other pair.

        It depends on the support alone, and so do the predictions.
        """
        parts = [self.queries.dense, self.passages.dense, self.interactions]
        return all(part is None or part.size <= _SMALL for part in parts)

    @property
    def n_bags(self) -> int:
        return len(self.intercept)

    @cached_property
    def bag(self) -> Ints:
        """(n_rows,) the bag of each row."""
        return np.repeat(np.arange(self.n_bags), np.diff(self.offsets))

    @cached_property
    def _bags(self) -> list[Group]:
        return [Group.of(self, np.arange(a, b)) for a, b in pairwise(self.offsets)]

    @cached_property
    def _mean(self) -> Group:
        """All bags as one: the coefficients of rows that several bags share, added up."""
        if self.interactions is not None or self.evidence is not None:
            everything = Group.of(self, np.arange(len(self.coef)))
            return everything.scaled(1 / self.n_bags)
        entries = (self.coef / self.n_bags, (self.passage, self.query))
        summed = sparse.coo_matrix(entries, shape=(len(self.passages), len(self.queries))).tocsr()
        passage = np.repeat(np.arange(len(self.passages)), np.diff(summed.indptr))
        return Group(summed.indices.astype(np.int64), passage, summed.data)

    def mean(self, pairs: Pairs, bag_weights: NDArray[np.float64] | None = None) -> Any:
        """(n,) float64 mean prediction of the bags; ``bag_weights`` (n_queries, n_bags) weighs them for each query.

        An array of the halves' library, as are those of :meth:`bags`.
        """
        with self.device.current():
            if bag_weights is None:
                return expand(self, pairs, [self._mean])[:, 0] + self.intercept.mean()
            if self.interactions is not None or self.evidence is not None:
                weighted = self.bags(pairs) * to_device(bag_weights[pairs.query], self.device)
                return weighted.sum(axis=1)
            everything = Group.of(self, np.arange(len(self.coef)))
            scores = expand(self, pairs, [everything], bag_weights.astype(np.float32))[:, 0]
            return scores + to_device((bag_weights @ self.intercept)[pairs.query], self.device)

    def bags(self, pairs: Pairs) -> Any:
        """(n, n_bags) float64 the prediction of every bag."""
        with self.device.current():
            return expand(self, pairs, self._bags) + to_device(self.intercept, self.device)

    def shares(self, pair: Pairs) -> NDArray[np.float64]:
        """(n_rows,) coef · K of every support row, for one pair, in NumPy: with the intercept they are the prediction.

        Each bag's shares and its intercept add up to its prediction; divided by the number of bags they all add
        up to the mean.
        """
        exact = self.is_small
        kq = kernel_tile(pair.queries.take(pair.query), self.queries, exact=exact)[0]
        kp = kernel_tile(pair.passages.take(pair.passage), self.passages, exact=exact)[0]
        kernel = to_numpy(kq).astype(np.float64)[self.query] * to_numpy(kp).astype(np.float64)[self.passage]
        if self.interactions is not None and pair.interactions is not None:
            kernel *= kernel_tile(Half(pair.interactions), Half(self.interactions), exact=exact)[0]
        if self.evidence is not None and pair.evidence is not None:
            shared = kernel_tile(Half(pair.evidence), Half(self.evidence))[0].astype(np.float64)
            kernel += np.sqrt(self.eta) * self.evidence_root * shared
        return np.asarray(self.coef * kernel)
