"""The solver ``cuml.svm.SVR``, on a kernel matrix that is gathered from two Gram matrices and stays on the GPU.

cuML addresses dense input with 32-bit integers: rows × columns must be below 2^31, so a kernel matrix may have at most
46,340 rows. cuML does not check this limit, so it is checked here.
"""

from __future__ import annotations

import numpy as np

from haybale.device import to_device, to_numpy
from haybale.device_memory import share_pool
from haybale.ensemble.problem import Dual, Problem
from haybale.errors import InputError
from haybale.extras import import_optional

_MAX_KERNEL_VALUES = 2**31 - 1  # in one matrix: cuML numbers them by int32
_OLDEST_RELEASE = (26, 2)  # its SVR is the first that accepts a kernel matrix


def solve_cuml(problem: Problem) -> Dual:
    """Solve with cuML.

    Raises :class:`InputError` for more than 46,340 rows, a kernel matrix beyond ``memory_budget``, or an old cuML, and
    :class:`MissingExtraError` without cuML.
    """
    _check(problem)
    svm = import_optional("cuml.svm", "gpu")
    if not problem.device.is_cpu:
        with problem.device.current():
            share_pool(problem.device.number)
    settings = {"C": problem.C, "epsilon": problem.epsilon, "tol": problem.tol, "max_iter": problem.max_iter}
    with problem.device.current():
        # With its default gamma='scale', cuML would compute the variance of the kernel matrix.
        output = "numpy" if problem.device.is_cpu else "cupy"
        model = svm.SVR(kernel="precomputed", gamma=1.0, **settings, output_type=output)
        columns = problem.label.astype(np.float32), problem.weight.astype(np.float32)
        label, weight = (to_device(values, problem.device) for values in columns)
        # The matrix is symmetric, so its transpose is the same matrix in the Fortran order that cuML needs.
        model.fit(problem.gram().T, label, sample_weight=weight)
    coef = np.zeros(len(problem.label))
    coef[to_numpy(model.support_).astype(np.int64)] = to_numpy(model.dual_coef_).astype(np.float64).ravel()
    intercept = float(np.ravel(to_numpy(model.intercept_))[0])
    return Dual(coef, intercept, int(np.max(to_numpy(getattr(model, "n_iter_", 0)))))


def _check(problem: Problem) -> None:
    version = str(import_optional("cuml", "gpu").__version__)
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if release < _OLDEST_RELEASE:
        raise InputError(f"cuML must be 26.02 or later, which takes kernel='precomputed', found {version}")
    n = len(problem.label)
    if n * n > _MAX_KERNEL_VALUES or 4 * n * n > problem.memory_budget:
        raise InputError(
            f"cuML takes a kernel matrix of at most 46,340 rows that fits memory_budget; this bag has {n:,} rows, or "
            f"{4 * n * n / 1e9:.2g} GB; set rows_per_bag, use more bags, or use solver='working-set'"
        )
