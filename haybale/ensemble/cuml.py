"""``cuml.svm.SVR`` on a kernel matrix that is gathered from two Gram matrices and never leaves the GPU.

cuML addresses dense input with 32-bit integers: rows × columns must stay below 2^31, which are 46,340 rows of a kernel
matrix. cuML does not check this, so it is checked here.
"""

from __future__ import annotations

import numpy as np

from haybale.device import to_device, to_numpy
from haybale.ensemble.problem import Dual, Problem
from haybale.errors import InputError, MissingExtraError
from haybale.extras import import_optional

_INDEXABLE = 2**31 - 1
_OLDEST = (26, 2)  # the first release whose SVR takes a kernel matrix


def cuml_takes(problem: Problem) -> bool:
    """Return whether cuML is installed and recent enough, and the kernel matrix within its limits and the budget."""
    try:
        _check(problem)
    except (MissingExtraError, InputError):
        return False
    return True


def solve_cuml(problem: Problem) -> Dual:
    """Solve on the kernel matrix; raise :class:`InputError` beyond 46,340 rows or ``memory_budget``."""
    _check(problem)
    svm = import_optional("cuml.svm", "gpu")
    settings = {"C": problem.C, "epsilon": problem.epsilon, "tol": problem.tol, "max_iter": problem.max_iter}
    with problem.device.current():
        # gamma is a number, because 'scale' would compute the variance of the whole kernel matrix.
        output = "numpy" if problem.device.is_cpu else "cupy"
        model = svm.SVR(kernel="precomputed", gamma=1.0, **settings, output_type=output)
        columns = problem.label.astype(np.float32), problem.weight.astype(np.float32)
        label, weight = (to_device(values, problem.device) for values in columns)
        # The matrix is symmetric: its transpose is the same matrix, in the Fortran order that cuML needs.
        model.fit(problem.gram().T, label, sample_weight=weight)
    coef = np.zeros(len(problem.label))
    coef[to_numpy(model.support_).astype(np.int64)] = to_numpy(model.dual_coef_).astype(np.float64).ravel()
    intercept = float(np.ravel(to_numpy(model.intercept_))[0])
    return Dual(coef, intercept, int(np.max(to_numpy(getattr(model, "n_iter_", 0)))))


def _check(problem: Problem) -> None:
    version = str(import_optional("cuml", "gpu").__version__)
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if found < _OLDEST:
        raise InputError(f"cuML {version} has no kernel='precomputed' in its SVR; 26.02 or later is expected")
    n = len(problem.label)
    if n * n > _INDEXABLE or 4 * n * n > problem.memory_budget:
        raise InputError(
            f"cuML takes a kernel matrix of at most 46,340 rows and within memory_budget; this bag has {n:,} rows, and "
            f"a matrix of {4 * n * n / 1e9:.2g} GB; set rows_per_bag, take more bags, or solver='working-set'"
        )
