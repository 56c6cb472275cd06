"""Sequential minimal optimisation (SMO) of many bags at once on a CUDA device, each by a thread block or by a cluster.

SMO is sequential within a bag, and a step takes less time than starting a kernel. A block therefore takes all the steps
of its bag in one launch, and the device solves as many bags at once as it has multiprocessors. If there are fewer bags,
a cluster of two to eight blocks solves a bag (compute capability 9.0): each block has a part of the rows, and the
blocks write to each other's shared memory.

The rules of a step are those of :mod:`haybale.ensemble.smo`, over all rows of the bag: the kernel of a row is gathered
from the two Gram matrices, Kq[q_i, q(·)] · Kp[p_i, p(·)]. Rows are sorted by passage, so that the gather reads the row
of Kp nearly in order. A row of Kq, and of each row of the bag the residual and the kernel with row i (float32), the
state of its coefficient and the numbers of its query and passage are in shared memory as far as they fit, otherwise in
the memory of the device: 4 bytes a query and 13 bytes a row. Coefficients are float64.

A launch takes a limited number of steps, because display drivers end kernels that run for seconds, and so that the work
can be stopped. Coefficients and residuals stay on the device between launches. The solution of a bag is the same bit
for bit for any number of threads, of blocks, of bags of a launch, and of steps of a launch. The kernels are in
``batched_smo.cu``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import to_device, to_numpy
from haybale.device_kernels import KernelFile
from haybale.ensemble.kernel import out_of_memory
from haybale.ensemble.problem import Dual, Problem, Solution
from haybale.ensemble.rows import Ints
from haybale.ensemble.working_set import CHECKED, REFRESHES
from haybale.errors import InputError
from haybale.stopping_work import check_wanted

CU_FILE = Path(__file__).with_name("batched_smo.cu")
PAIRS = {16: "unsigned int", 32: "unsigned long long"}  # by the bits of the number of a query or passage
SHARED_HEADER = 144  # bytes of the struct Shared, at the begin of the shared memory of a block
SHARED_CANDIDATES = (
    1536  # bytes of the candidates of a block's warps, in the shared memory of each block of its cluster
)
MAX_THREADS = 1024  # threads of a block
ROWS_PER_THREAD = 8  # a block has as many warps as it needs for these rows of a thread, or half of them in a cluster
# Numbers of blocks that solve one bag together, and the share of the multiprocessors that such clusters use: the others
# may be in groups that are too small for a cluster.
CLUSTERS = {8: 0.9, 4: 0.9, 3: 0.94, 2: 1.0}
ROWS_PER_BLOCK = 1024  # minimum of rows of each block of a cluster
ROW_STEPS = 3e8  # maximum of rows · steps of a launch, such as 10,000 steps of 30,000 rows
NARROW = 2**16  # number of queries and of passages up to which the two numbers of a row are stored in 32 bits
_RECOMPUTE_THREADS = 256
_MAX_RECOMPUTE_BLOCKS = 4096  # blocks that recompute the residuals of one bag


@cache
def kernels(bits: int, n_blocks: int = 1) -> KernelFile:
    """Return the kernels for numbers of some bits, and for a number of blocks that solve a bag."""
    return KernelFile(CU_FILE, BLOCKS=n_blocks, PAIR=PAIRS[bits])


def bytes_of_rows(n_rows: int, n_features: int) -> float:
    """Return the bytes of the arrays of a bag on the device, without its Gram matrices."""
    row = 8 + 8 + 8 + 8 + 4 + 4 + 1  # bound, coefficient, label, numbers of query and passage; residual; kernel; state
    return float(n_rows * (row + (4 + 4 * n_features if n_features else 0)))  # diagonal of the kernel, and features


def solve_smo(problem: Problem) -> Dual:
    """Solve a bag on its CUDA device with SMO, by one thread block; :func:`solve_together` solves many bags at once.

    Equal rows are merged, and ``tol`` has a lower bound; see :class:`~haybale.ensemble.problem.Solution`. Warns if
    ``max_iter`` steps do not reach ``tol``. Raises :class:`InputError` if :func:`why_not_smo` has a reason, and
    :class:`~haybale.errors.DeviceError` if the device runs out of memory.
    """
    if reason := why_not_smo(problem):
        raise InputError(
            "solver='smo' must have float32 vectors on a CUDA device, and bags whose Gram matrices fit memory_budget; "
            f"found that {reason}; use solver='auto' or solver='working-set'"
        )
    solution = Solution(problem, by_passage=True)
    solution.problem = solution.problem.with_grams()
    ((_, dual),) = solve_together([solution])
    return dual


def why_not_smo(problem: Problem) -> str | None:
    """Return why SMO on a device does not take a bag, or None if it does."""
    if problem.device.is_cpu:
        return "the vectors are on the CPU"
    if problem.queries.is_precise or problem.passages.is_precise:
        return "the vectors are float64"
    needed = bytes_of_rows(len(problem.label), problem.n_features)
    needed += 0 if problem.grams is not None else problem.gram_bytes()
    if needed > problem.memory_budget:
        return (
            f"a bag of {len(problem.label):,} rows needs {needed / 1e9:.2g} GB, more than memory_budget "
            f"({problem.memory_budget / 1e9:.2g} GB)"
        )
    return None


def solve_together(solutions: Sequence[Solution]) -> Iterator[tuple[int, Dual]]:
    """Solve several bags at once; return an iterator over the number and the solution of each bag that is solved.

    The first step is taken when the iterator is first used. Raises :class:`~haybale.errors.DeviceError` before that if
    the arrays of the bags do not fit on the device. Before a solution is accepted, some of its residuals are
    recomputed, with sums in float64. If one of them differs by more than tol / 20, all residuals of the bag are
    recomputed, and further steps are taken.

    Parameters
    ----------
    solutions : sequence of Solution
        Bags on one device with their rows sorted by passage. Their problems have float32 Gram matrices, the same number
        of pair features and the same ``epsilon``.
    """
    return _take_all_steps(_Batch(solutions))


def _take_all_steps(batch: _Batch) -> Iterator[tuple[int, Dual]]:
    n_bags = len(batch.solutions)
    refreshes, unsolved = np.zeros(n_bags, dtype=np.int64), np.arange(n_bags)
    while len(unsolved):
        check_wanted()
        batch.take_steps(unsolved)
        steps, violation = to_numpy(batch.steps), to_numpy(batch.violation).astype(np.float64)
        at_limit = steps >= batch.limit
        ended = unsolved[(at_limit | (violation < batch.tol))[unsolved]]
        checked = ended[~at_limit[ended] & (refreshes[ended] < REFRESHES)]
        drifted = checked[batch.recompute(checked, CHECKED)[checked] > batch.tol[checked] / 20]
        batch.recompute(drifted)
        refreshes[drifted] += 1
        accepted = np.setdiff1d(ended, drifted)
        unsolved = np.setdiff1d(unsolved, accepted)
        for number in accepted.tolist():
            yield number, batch.dual(number, int(steps[number]), float(violation[number]))


class _Batch:
    """The arrays of several bags on a device; bag b has the elements ``offsets[b]:offsets[b + 1]`` of each column."""

    def __init__(self, solutions: Sequence[Solution]) -> None:
        problems = [solution.problem for solution in solutions]
        first = problems[0]
        self.solutions, self.device, self.n_features = solutions, first.device, first.n_features
        self.lengths = np.array([len(problem.label) for problem in problems])
        self.offsets = np.append(0, np.cumsum(self.lengths))
        self.tol = np.array([solution.tol for solution in solutions])
        self.limit = np.array([solution.limit for solution in solutions])
        self.epsilon = np.float32(first.epsilon)
        self.grams = [
            matrix for problem in problems for matrix in problem.grams or ()
        ]  # kept until the bags are solved
        sizes = [len(matrix) for matrix in self.grams]
        self.bits = 16 if max(sizes) <= NARROW else 32
        pair = np.dtype(np.uint32 if self.bits == 16 else np.uint64)
        pairs = [
            (problem.query.astype(pair) << pair.type(self.bits)) | problem.passage.astype(pair) for problem in problems
        ]
        features, diagonals = [np.zeros(1, dtype=np.float32)], [np.zeros(1, dtype=np.float32)]  # a kernel needs arrays
        if self.n_features:
            features = [problem.features.T.ravel() for problem in problems if problem.features is not None]
            diagonals = [problem.diagonal for problem in problems]
        with self.device.current(), out_of_memory(self.device, (int(self.offsets[-1]), 1), "column of all bags"):
            xp = self.device.xp
            n_rows, n_bags = int(self.offsets[-1]), len(solutions)
            self.beta, self.state = xp.zeros(n_rows, dtype=np.float64), xp.empty(n_rows, dtype=np.uint8)
            self.steps, self.violation = xp.zeros(n_bags, dtype=np.int64), xp.zeros(n_bags, dtype=np.float32)
            self._addresses = self._put([[matrix.data.ptr for matrix in self.grams]], np.uint64)
            self._sizes, self._firsts = self._put([sizes], np.int32), self._put([self.offsets[:-1]], np.int64)
            self._lengths = self._put([self.lengths], np.int32)
            self._pairs = self._put(pairs, pair)
            self._features, self._diagonal = self._put(features, np.float32), self._put(diagonals, np.float32)
            self.label = self._put([solution.label for solution in solutions], np.float64)
            self.bound = self._put([solution.bound for solution in solutions], np.float64)
            self.error, self._kernel = self.label.astype(np.float32), xp.empty(n_rows, dtype=np.float32)
            self._tol, self._limit = self._put([self.tol], np.float32), self._put([self.limit], np.int64)
            self._properties = xp.cuda.runtime.getDeviceProperties(self.device.number)
        self._n_queries = np.array([len(matrix) for matrix in self.grams[::2]])

    def _put(self, parts: Sequence[Any], dtype: Any) -> Any:
        return to_device(np.concatenate([np.asarray(part, dtype=dtype) for part in parts]), self.device)

    def take_steps(self, bags: Ints) -> None:
        """Take steps of some bags, until they are solved or the launch has taken its maximum number of steps."""
        longest, n_blocks = int(self.lengths[bags].max()), self._blocks_per_bag(bags)
        rows = -(-longest // n_blocks)
        warps = -(-rows // (32 * (ROWS_PER_THREAD if n_blocks == 1 else -(-ROWS_PER_THREAD // 2))))
        shared = self._shared_bytes(bags, n_blocks)
        most, numbers = max(1, int(ROW_STEPS / longest)), self._put([bags], np.int32)
        kernels(self.bits, n_blocks).launch(
            self.device, "take_steps", n_blocks * len(bags), min(32 * warps, MAX_THREADS),
            numbers, self._addresses, self._sizes, self._firsts, self._lengths, self._pairs, self._diagonal,
            self._features, np.int32(self.n_features), self.bound, self.beta, self.error, self._kernel, self.state,
            self.epsilon, self._tol, self._limit, np.int32(most), np.int32(shared), self.steps, self.violation,
            shared_bytes=shared,
        )  # fmt: skip

    def _blocks_per_bag(self, bags: Ints) -> int:
        """Return how many blocks solve each of some bags: as many as run at the same time, and as have enough rows."""
        if self._properties["major"] < 9:
            return 1
        n_multiprocessors, rows = self._properties["multiProcessorCount"], int(self.lengths[bags].min())
        for n_blocks, share in CLUSTERS.items():
            if n_blocks * len(bags) <= share * n_multiprocessors and n_blocks * ROWS_PER_BLOCK <= rows:
                return n_blocks
        return 1

    def _shared_bytes(self, bags: Ints, n_blocks: int) -> int:
        """Return the bytes of shared memory that hold all arrays of a block, up to what it may have."""
        rows = -(-self.lengths[bags] // n_blocks)
        arrays: list[Any] = [
            4 * self.n_features,
            4 * self._n_queries[bags],
            4 * rows,
            rows,
            4 * rows,
            self.bits // 4 * rows,
        ]
        needed: Ints = SHARED_HEADER + SHARED_CANDIDATES * n_blocks + sum(-(-size // 8) * 8 for size in arrays)
        return min(int(needed.max()), int(self._properties["sharedMemPerBlockOptin"]))

    def recompute(self, bags: Ints, sample: int | None = None) -> NDArray[np.float64]:
        """Return (n_bags,) the largest error of about ``sample`` residuals of some bags, and 0 for other bags.

        Without ``sample``, all residuals are recomputed and replaced.
        """
        if not len(bags):
            return np.zeros(len(self.solutions))
        with self.device.current():
            drift = self.device.xp.zeros(len(self.solutions), dtype=np.int32)
        n_rows = int(self.lengths[bags].max()) if sample is None else 2 * sample
        blocks = min(_MAX_RECOMPUTE_BLOCKS, -(-n_rows * 32 // _RECOMPUTE_THREADS))
        kernels(self.bits).launch(
            self.device, "recompute", blocks * len(bags), _RECOMPUTE_THREADS, self._put([bags], np.int32),
            np.int32(blocks), self._addresses, self._sizes, self._firsts, self._lengths, self._pairs, self._features,
            np.int32(self.n_features), self.beta, self.label, np.int32(sample or np.iinfo(np.int32).max),
            np.bool_(sample is None), self.error, drift,
        )  # fmt: skip
        return np.asarray(to_numpy(drift).view(np.float32), dtype=np.float64)

    def dual(self, number: int, steps: int, violation: float) -> Dual:
        """Return the solution of a bag."""
        solution, rows = self.solutions[number], slice(*self.offsets[number : number + 2].tolist())
        solution.beta = to_numpy(self.beta[rows])
        return solution.dual(to_numpy(self.error[rows]), steps, violation)
