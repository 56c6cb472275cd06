"""Bags solved together: their rows, one after another, and what a solution has reached, on NumPy or CuPy arrays.

The steps of an outer iteration are functions of these arrays: the twin's on the CPU, kernels on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale import cuda
from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.problem import Problem
from haybale.ensemble.rows import Ints
from haybale.ensemble.solvers import subproblem as twin
from haybale.ensemble.solvers.dual import centred, merged_rows, step_limit

# Threads of a block: of the choice, of the kernel matrix, and of the update, by rows and by parts of a row's sum.
CHOOSING, FILLING, LANES, SLICES = 512, 256, 32, 8


class Bag:
    """One bag's rows, equal ones made one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kept, weight = merged_rows(problem)
        self.label, self.centre, self.tol = centred(problem.label[self.kept], problem.tol)
        self.bound = problem.C * weight

    def __len__(self) -> int:
        return len(self.kept)

    def column(self, name: str) -> Any:
        """(n, …) a column of the problem on the CPU, or None."""
        value = getattr(self.problem, name)
        return None if value is None else to_numpy(value)[self.kept]


class Batch:
    """(N,) rows of all bags and their state; (n_bags, q) working sets. ``query`` and ``passage`` are numbers in the
    kernel's matrices."""

    def __init__(self, bags: Sequence[Bag], query: Ints, passage: Ints, q: int, device: Device) -> None:
        self.device, self.q, self.bags = device, q, bags
        first = bags[0].problem
        self.epsilon = np.float32(first.epsilon)
        self.bounds = np.concatenate(([0], np.cumsum([len(bag) for bag in bags])))
        self.offsets = self._put(self.bounds, np.int32)
        self.query, self.passage = self._put(query, np.int32), self._put(passage, np.int32)
        self.interactions, self.n_interactions = self._features("interactions")
        self.evidence, self.n_evidence = self._features("evidence")
        root = [bag.column("evidence_root") for bag in bags] if self.n_evidence else [np.zeros(1)]
        self.root = self._put(np.concatenate(root), np.float32)
        self.bound = self._put(np.concatenate([bag.bound for bag in bags]), np.float64)
        self.tol = self._put(np.array([bag.tol for bag in bags]), np.float32)
        limits = np.array([step_limit(first.max_iter, len(bag)) for bag in bags])
        self.limit = self._put(limits, np.float64)
        n, xp = int(self.bounds[-1]), device.xp
        self.beta = xp.zeros(n, dtype=np.float64)
        self.error = self.labels()
        self.gain, self.cost = xp.empty(n, dtype=np.float32), xp.empty(n, dtype=np.float32)
        self.mark = xp.zeros(n, dtype=np.int32)
        self.working, self.place = (xp.zeros((len(bags), q), dtype=np.int32) for _ in range(2))
        self.size, self.kept = (xp.zeros(len(bags), dtype=np.int32) for _ in range(2))
        self.delta = xp.zeros((len(bags), q), dtype=np.float32)
        self.matrix = xp.empty((len(bags), q, q), dtype=np.float32)
        self.report = xp.zeros((len(bags), 2), dtype=np.float64)

    @staticmethod
    def size_of(bags: Sequence[Bag], q: int) -> float:
        """Bytes that these bags take, without their kernel."""
        width = sum(
            0 if value is None else value.shape[1] for value in (bags[0].problem.interactions, bags[0].problem.evidence)
        )
        return sum(len(bag) for bag in bags) * (44.0 + 4 * width) + len(bags) * 4.0 * q * (q + 3)

    def _put(self, values: Any, dtype: Any) -> Any:
        return to_device(np.ascontiguousarray(values, dtype=dtype), self.device)

    def _features(self, name: str) -> tuple[Any, int]:
        """(width, N), so that neighbouring threads read neighbouring numbers; one number where there are none."""
        parts = [bag.column(name) for bag in self.bags]
        if parts[0] is None or not parts[0].shape[1]:
            return self._put(np.zeros((1, 1)), np.float32), 0
        return self._put(np.concatenate(parts).T, np.float32), int(parts[0].shape[1])

    def labels(self) -> Any:
        """(N,) the residuals where all coefficients are 0."""
        return self._put(np.concatenate([bag.label for bag in self.bags]), np.float32)

    def parts(self, values: Any) -> list[NDArray[Any]]:
        """(N,) values on the CPU, bag by bag."""
        values = to_numpy(values)
        return [values[start:stop] for start, stop in pairwise(self.bounds)]

    # The steps of an outer iteration.

    def choose(self) -> None:
        """New working sets, and the violation of every bag in ``report``; no rows for a bag that is done."""
        common = (self.offsets, self.tol, self.limit)
        sets = (self.working, self.size, self.kept, self.report)
        if self.device.is_cpu:
            twin.choose(self.gain, self.cost, *common, *sets)
        else:
            bits = (self.gain.view(np.int32), self.cost.view(np.int32))
            from haybale.ensemble.solvers.cuda_choice import choose_kernel

            kernel = choose_kernel(CHOOSING)
            cuda.launch(kernel, len(self.bags), CHOOSING, self.gain, self.cost, *bits, *common, self.mark, *sets)

    def optimise(self, kernel: tuple[Any, Any], fraction: Any, most: int) -> None:
        """The kernel matrices of the working sets, and the best coefficients within them."""
        fill = (*self._kernel(kernel), self.working, self.place, self.size, self.matrix)
        state = (self.matrix, self.working, self.size, self.error, self.bound, self.epsilon, self.tol, fraction)
        own = (*state, self.limit, most, self.beta, self.delta, self.report)
        if self.device.is_cpu:
            twin.fill_matrix(*fill)
            twin.optimise(*own)
        else:
            blocks = (-(-self.q * self.q // FILLING), len(self.bags))
            cuda.launch(_kernels().fill_matrix, blocks, FILLING, *fill)
            cuda.launch(_kernels().optimise_kernel(self.q), len(self.bags), self.q, *own)

    def update(self, kernel: tuple[Any, Any]) -> None:
        """All residuals after ``delta``."""
        sets = (self.working, self.place, self.size, self.offsets, self.delta)
        state = (self.beta, self.bound, self.epsilon, self.error, self.gain, self.cost)
        arguments = (*self._kernel(kernel), *sets, *state)
        if self.device.is_cpu:
            twin.update(*arguments)
        else:
            longest = int(np.diff(self.bounds).max())
            blocks = (-(-longest // LANES), len(self.bags))
            cuda.launch(_kernels().update_kernel(LANES, SLICES), blocks, LANES * SLICES, *arguments)

    def _kernel(self, kernel: tuple[Any, Any]) -> tuple[Any, ...]:
        """What a kernel value is made of."""
        features = (self.interactions, self.n_interactions, self.evidence, self.n_evidence, self.root)
        return (*kernel, self.query, self.passage, *features)


def _kernels() -> Any:
    from haybale.ensemble.solvers import cuda_kernels

    return cuda_kernels
