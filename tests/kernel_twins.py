"""Our CUDA kernels by their twins on the double's memory, where the simulator would take minutes.

That a kernel does what its twin does is tested where the kernel is.
"""

from __future__ import annotations

from typing import Any

from cupy_double import _inside

from haybale.ensemble.solvers import batch, cuda_choice, subproblem
from haybale.ensemble.solvers import cuda_kernels as of_solver
from haybale.retrieval.exact import cuda_kernels as of_search
from haybale.retrieval.exact.kept import _append_numpy


def launch(kernel: Any, blocks: Any, threads: int, *arguments: Any) -> None:
    """In the place of ``haybale.cuda.launch``; refuses grids that CUDA refuses."""
    x, y = (blocks, 1) if isinstance(blocks, int) else blocks
    assert 0 < x < 2**31
    assert 0 < y < 2**16
    assert 0 < threads <= 1024
    twins = {
        of_search.append_better: _append_numpy,
        of_solver.fill_matrix: subproblem.fill_matrix,
        of_solver.update_kernel(batch.LANES, batch.SLICES): subproblem.update,
        cuda_choice.choose_kernel(batch.CHOOSING): choose,
    }
    if kernel not in twins:
        assert kernel is of_solver.optimise_kernel(threads)
    twins.get(kernel, subproblem.optimise)(*(_inside(argument) for argument in arguments))


def choose(gain: Any, cost: Any, gain_bits: Any, cost_bits: Any, *rest: Any) -> None:
    offsets, tol, limit, _mark, *sets = rest
    subproblem.choose(gain, cost, offsets, tol, limit, *sets)
