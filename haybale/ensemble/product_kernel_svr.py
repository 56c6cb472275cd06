"""ProductKernelSVR: a scikit-learn estimator for ε-SVR on pairs [q ; p], computed from two small Gram matrices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from haybale.device import Device, device_of, is_sparse, placed, to_device, to_numpy
from haybale.ensemble.distinct_rows import distinct_rows
from haybale.ensemble.kernel import Pairs
from haybale.ensemble.model_files import load_model, save_model
from haybale.ensemble.problem import Dual, PrecisionWarning, Problem, Solver, longest, rounding
from haybale.ensemble.rows import Ints
from haybale.ensemble.solvers import find_solver, solve_sklearn
from haybale.ensemble.spaces import Gamma, Spaces, as_spaces, check_spaces, fit_spaces, home_of
from haybale.ensemble.support import Support
from haybale.errors import FileFormatError, InputError
from haybale.parallel import one_blas_thread
from haybale.parameters import (
    FROM_0,
    GAMMA,
    MOST,
    N_JOBS,
    NOT_NEGATIVE,
    POSITIVE,
    TEXT_OR_NONE,
    Interval,
    check_parameters,
)
from haybale.vectors import Matrix, gather_rows, reals, squared_lengths

_MAX_SQUARED_LENGTH = 2.0**14  # of scaled vectors: the error of float32 products reaches 1e-3 there
_KERNEL_VALUES_OF_CHECK = 2**18  # about the number of checked predictions · number of rows
_MIN_RELATIVE_TOL = 2e-6  # the lowest tol that float32 reaches, relative to the range of the labels

# Queries and passages, with one matrix per space, and the numbers of the query and the passage of each row.
TrainingData = tuple[list[Matrix], list[Matrix], Ints, Ints]


class ProductKernelSVR(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Epsilon-support vector regression with an RBF kernel on pairs [q ; p], several times faster than scikit-learn's.

    exp(-γ|[q;p] - [q';p']|²) = Kq(q, q') · Kp(p, p') holds exactly, so the kernel is gathered from the Gram matrices of
    the distinct queries and the distinct passages. The features are those of Bönisch & Mehler (2024); the solver is
    that of LIBSVM (Fan, Chen & Lin 2005). Predictions differ from those of ``sklearn.svm.SVR`` by less than 2 · tol.

    There are two ways to pass the data. ``fit(X, y)`` takes features, whose first ``split`` columns are the query; it
    finds the distinct queries and passages. ``fit_pairs(Q, P, query_index, passage_index, y)`` takes the distinct
    queries and passages, and never builds X. Q and P may be dense or sparse, or lists of several spaces, each with its
    own γ.

    Kernels are float32 if that is precise enough. After fitting, some predictions are also computed in float64. If
    they differ by more than tol / 4, the model is fitted again in float64 by scikit-learn's solver, and is then as slow
    and as precise as ``SVR``. This happens for vectors that are far from each other compared to 1/√γ (such as an
    outlier of 1e6, or γ above 1e5 on unit rows), for coefficients above 1e4 with a large C, and for a ``tol`` below
    2e-6 of the range of the labels. It needs ``solver="auto"`` and a ``memory_budget`` of 16 n² bytes; otherwise, a
    :class:`PrecisionWarning` states the error.

    A prediction does not depend on the other rows of the call if the queries and the passages of the support vectors
    have at most 65,536 numbers each. For larger models, it may change by the rounding of float32, about 1e-6 for
    targets of size 1.

    Parameters
    ----------
    C, epsilon, tol : float, default=1, 0.1, 1e-3
        Regularisation, width of the ε-tube and stopping tolerance, as in ``SVR``.
    gamma : "scale", float, pair or list, default="scale"
        γ of the kernel: ``"scale"`` is 1 / (n_features · Var X) of each space, a pair is (queries, passages), and a
        list has one of these values per space.
    split : int, default=None
        Number of columns of X that are the query. None: X is not split.
    max_iter : int, default=-1
        Maximum number of solver steps; -1 sets no limit. Reaching it before ``tol`` issues a ConvergenceWarning.
    memory_budget : float, default=2.2e9
        Bytes of kernel values held during training. Rows of the Gram matrices that do not fit are computed again when
        they are needed. A smaller budget takes longer, and the predictions stay within 2 · tol. On a CUDA device,
        ``solver="auto"`` uses SMO if the Gram matrices fit, and otherwise the working-set solver.
    solver : str or callable, default="auto"
        A name in :data:`~haybale.ensemble.solvers.SOLVERS`, or a function from
        :class:`~haybale.ensemble.problem.Problem` to :class:`~haybale.ensemble.problem.Dual`.
    device : str, default=None
        Device of vectors and kernels: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``. None: the device of the
        matrices.
    n_jobs : int, default=None
        Number of threads; None and -1 mean one per core. It does not change the result.

    Attributes
    ----------
    support_ : (n_SV,)
        Row numbers of the support vectors. Equal rows count as one support vector, the first of them.
    dual_coef_, intercept_ : (1, n_SV), (1,)
    gamma_ : tuple of pairs
        γ of the queries and of the passages, for each space.
    n_iter_ : int
        Number of solver steps.
    expansion_ : :class:`~haybale.ensemble.support.Support`
        Its vectors may be on a device; all other fitted attributes are NumPy arrays.

    Notes
    -----
    Matrices may be NumPy or SciPy matrices, or be on the device. Predictions are returned on the device of the
    matrices. ``fit(X, y)`` and ``predict(X)`` find the distinct rows on the CPU.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 6))
    >>> y = np.sin(X[:, 0]) + X[:, 4]
    >>> model = ProductKernelSVR(split=3).fit(X, y)
    >>> from sklearn.svm import SVR
    >>> bool(np.abs(model.predict(X) - SVR().fit(X, y).predict(X)).max() < 2e-3)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": POSITIVE,
        "epsilon": NOT_NEGATIVE,
        "gamma": [*GAMMA, list],
        "tol": POSITIVE,
        "split": [*FROM_0, None],
        "max_iter": [Interval(Integral, -1, MOST, closed="both")],
        "memory_budget": POSITIVE,
        "solver": [str, callable],
        "device": TEXT_OR_NONE,
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        C: float = 1.0,
        epsilon: float = 0.1,
        gamma: Gamma = "scale",
        tol: float = 1e-3,
        split: int | None = None,
        *,
        max_iter: int = -1,
        memory_budget: float = 2.2e9,
        solver: str | Solver = "auto",
        device: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.gamma = gamma
        self.tol = tol
        self.split = split
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.solver = solver
        self.device = device
        self.n_jobs = n_jobs

    # training -----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ProductKernelSVR:
        """Train on features.

        Parameters
        ----------
        X : (n, d)
        y : (n,)
        sample_weight : (n,), default=None
            Factor of C for each row.

        Raises
        ------
        InputError
            Parameters or data cannot be used.
        DeviceError
            The data are on another device than ``device``.
        """
        check_parameters("ProductKernelSVR", self.get_params(), self._parameter_constraints)
        where = home_of(self.device, [X])
        X, y, sample_weight = _on_cpu(X, where, "X"), _on_cpu(y, where, "y"), _on_cpu(sample_weight, where, "weights")
        original = X
        X, y = validate_data(self, X, y, dtype=np.float32, order="C", y_numeric=True)
        if self.split is not None and self.split > X.shape[1]:
            raise InputError(f"split must be at most the number of columns of X, {X.shape[1]}, found {self.split}")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)

        def data(dtype: Any) -> TrainingData:
            rows = X if dtype == np.float32 else np.array(original, dtype=np.float64, order="C")
            queries, passages, query, passage = self._distinct(rows, where)
            return [queries], [passages], query, passage

        return self._fit(data, getattr(original, "dtype", None) != np.float32, y, sample_weight)

    def fit_pairs(
        self,
        Q: Matrix | Sequence[Matrix],
        P: Matrix | Sequence[Matrix],
        query_index: Ints,
        passage_index: Ints,
        y: Any,
        sample_weight: Any = None,
    ) -> ProductKernelSVR:
        """Train on pairs ``(Q[query_index[i]], P[passage_index[i]])``.

        Parameters
        ----------
        Q, P : (n_queries, d), (n_passages, d'), dense or sparse, or lists with one matrix per space
        query_index, passage_index : (n,) int
        y, sample_weight
            As in :meth:`fit`, which raises the same errors.
        """
        check_parameters("ProductKernelSVR", self.get_params(), self._parameter_constraints)
        where = home_of(self.device, [*as_spaces(Q), *as_spaces(P)])
        queries, passages = check_spaces(Q, "Q", where), check_spaces(P, "P", where)
        if len(queries) != len(passages):
            raise InputError(f"Q and P must have the same number of spaces, found {len(queries)} and {len(passages)}")
        query, passage = _indices(query_index, queries, passage_index, passages)
        y = reals(np.asarray(to_numpy(y)), "y").ravel()
        if sample_weight is not None:
            sample_weight = reals(np.asarray(to_numpy(sample_weight)), "sample_weight").ravel()
        if len(query) != len(y):
            raise InputError(f"y must have one target for each of the {len(query)} pairs, found {len(y)}")
        self.n_features_in_ = sum(int(matrix.shape[1]) for matrix in (*queries, *passages))

        def data(dtype: Any) -> TrainingData:
            if dtype == np.float32:
                return queries, passages, query, passage
            return _in_float64(Q, queries), _in_float64(P, passages), query, passage

        rounded = any(getattr(matrix, "dtype", None) != np.float32 for of in (Q, P) for matrix in as_spaces(of))
        return self._fit(data, rounded, y, sample_weight)

    def _distinct(self, X: NDArray[Any], where: Device) -> tuple[Any, Any, Ints, Ints]:
        """Return the distinct queries and passages of feature rows, on a device, and their numbers for each row."""
        split = self.split or 0
        left, right = X[:, :split], X[:, split:]
        (first_q, query), (first_p, passage) = distinct_rows(left), distinct_rows(right)
        queries, passages = gather_rows(left, first_q), gather_rows(right, first_p)
        return to_device(queries, where), to_device(passages, where), query, passage

    def _fit(
        self,
        data: Callable[[Any], TrainingData],
        rounded: bool,
        y: NDArray[np.float64],
        sample_weight: NDArray[np.float64] | None,
    ) -> ProductKernelSVR:
        """Fit in float32, and again in float64 if that is not precise enough.

        ``data`` returns the training data in a dtype. ``rounded`` says whether the conversion to float32 may have
        rounded values.
        """
        if not len(y):
            raise InputError("'y' must have at least one target, found none")
        y = np.asarray(y, dtype=np.float64)
        rows = y, np.ones(len(y)) if sample_weight is None else sample_weight
        single = data(np.float32)
        self.spaces_ = fit_spaces(single[2], single[3], single[0], single[1], self.gamma)
        fast = self._problem(single, self.spaces_, *rows)
        may_be_precise = self.solver == "auto" and 16 * len(y) ** 2 <= self.memory_budget
        error = smallest_tol = _MIN_RELATIVE_TOL * float(np.ptp(y))
        reachable, precise = self.tol >= smallest_tol, None
        if not may_be_precise or (longest(fast) < _MAX_SQUARED_LENGTH and reachable):
            self._solve(fast, find_solver(self.solver))
            error = _rounding(fast, single, self.gamma_, rounded, self.dual_coef_)
            if error > self.tol / 4:  # the estimate is too large to accept without a comparison with float64
                precise = data(np.float64)
                error = self._error(fast, self._problem(precise, self.spaces_.precise(), *rows))
            if not reachable:
                error = max(error, smallest_tol)
            if error <= self.tol / 4:
                return self
        if may_be_precise:
            precise = precise or data(np.float64)
            self.spaces_ = fit_spaces(precise[2], precise[3], precise[0], precise[1], self.gamma, dtype=np.float64)
            self._solve(self._problem(precise, self.spaces_, *rows), solve_sklearn)
            return self
        warnings.warn(
            f"predictions may be off by {error:.2g}, with tol={self.tol:.2g}, because float32 is not precise enough; "
            "scale the vectors, lower gamma or C, raise tol, or use float64: solver='auto' with memory_budget="
            f"{16 * len(y) ** 2:.2g}",
            PrecisionWarning,
            stacklevel=3,
        )
        return self

    def _problem(
        self, data: TrainingData, spaces: Spaces, y: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> Problem:
        queries, passages, query, passage = data
        settings = {name: getattr(self, name) for name in ("C", "epsilon", "tol", "max_iter", "memory_budget")}
        threads = None if self.n_jobs is None or self.n_jobs < 1 else self.n_jobs
        points = spaces.queries(queries), spaces.passages(passages)
        return Problem(*points, query, passage, y, weight, **settings, threads=threads)

    def _solve(self, problem: Problem, solver: Solver) -> None:
        dual = solver(problem)
        self.support_ = np.flatnonzero(dual.coef)
        self.expansion_ = _expansion(problem, dual)
        self.dual_coef_, self.intercept_ = self.expansion_.coef[None], self.expansion_.intercept
        self.n_iter_, self.gamma_ = dual.n_iter, self.spaces_.gamma

    def _error(self, fast: Problem, precise: Problem) -> float:
        """Return the largest error of predictions for some training rows, compared with float64."""
        n = len(fast.label)
        rows = np.unique(np.linspace(0, n - 1, min(n, max(8, _KERNEL_VALUES_OF_CHECK // n))).astype(np.int64))
        coef = np.zeros(n)
        coef[self.support_] = self.dual_coef_[0]
        exact = _expansion(precise, Dual(coef, float(self.intercept_[0])))
        pairs = [Pairs(of.queries, of.passages, of.query[rows], of.passage[rows]) for of in (fast, precise)]
        return self.expansion_.error(pairs[0], exact, pairs[1])

    # predicting ---------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Return predictions (n,) for features (n, d), float64. Raises NotFittedError before :meth:`fit`."""
        check_is_fitted(self, "expansion_")
        home, where = device_of(X), self.expansion_.device
        X = validate_data(self, _on_cpu(X, where, "X"), dtype=self.expansion_.queries.dtype, order="C", reset=False)
        with one_blas_thread():  # once for all steps, instead of in each of them
            queries, passages, query, passage = self._distinct(X, where)
            return to_device(self._predict([queries], [passages], query, passage), home)

    def predict_pairs(
        self, Q: Matrix | Sequence[Matrix], P: Matrix | Sequence[Matrix], query_index: Ints, passage_index: Ints
    ) -> Any:
        """Return predictions (n,) for pairs given as in :meth:`fit_pairs`, float64."""
        check_is_fitted(self, "expansion_")
        where, home = self.expansion_.device, home_of(None, [*as_spaces(Q), *as_spaces(P)])
        queries, passages = (
            check_spaces(vectors, name, where, [scaling.width for scaling in scalings])
            for vectors, name, scalings in ((Q, "Q", self.spaces_.query), (P, "P", self.spaces_.passage))
        )
        query, passage = _indices(query_index, queries, passage_index, passages)
        if self.expansion_.queries.is_precise:
            queries, passages = _in_float64(Q, queries), _in_float64(P, passages)
        with one_blas_thread():
            return to_device(self._predict(queries, passages, query, passage), home)

    def _predict(self, queries: list[Matrix], passages: list[Matrix], query: Ints, passage: Ints) -> Any:
        points = self.spaces_.queries(queries), self.spaces_.passages(passages)
        return self.expansion_.mean(Pairs(*points, query, passage))

    def save(self, folder: Path | str) -> None:
        """Write the model to a new folder; the folder appears only when it is complete."""
        check_is_fitted(self, "expansion_")
        report = {"n_features_in_": self.n_features_in_, "n_iter_": self.n_iter_}
        parts = self.get_params(), self.expansion_, self.spaces_
        save_model(Path(folder), "ProductKernelSVR", *parts, report=report, tensors={"support_rows": self.support_})

    @classmethod
    def load(cls, folder: Path | str, *, device: str | None = None) -> Self:
        """Load a saved model to a device, by default the CPU. No code of the files is executed.

        Raises :class:`FileFormatError` for files that are missing, changed, or of another kind.
        """
        model, saved = load_model(Path(folder), "ProductKernelSVR", cls)
        if "support_rows" not in saved.tensors:
            raise FileFormatError(Path(folder), None, "tensor 'support_rows' is missing; fit and save the model again")
        model.device, model.expansion_, model.spaces_ = device, saved.support.to(home_of(device, [])), saved.spaces
        model.support_, model.gamma_ = saved.tensors["support_rows"], saved.spaces.gamma
        model.dual_coef_, model.intercept_ = saved.support.coef[None], saved.support.intercept
        for name in ("n_features_in_", "n_iter_"):
            if name in saved.report:
                setattr(model, name, saved.report[name])
        return model


def _indices(query: Any, queries: list[Matrix], passage: Any, passages: list[Matrix]) -> tuple[Ints, Ints]:
    """Return checked row numbers (n,) of the queries and of the passages."""
    checked = []
    for name, numbers, matrices in (("query_index", query, queries), ("passage_index", passage, passages)):
        array, size = np.asarray(to_numpy(numbers)), matrices[0].shape[0]
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            shape = f"{array.ndim} axes of {array.dtype}"
            raise InputError(f"{name} must be a one-dimensional array of integers, found {shape}")
        if len(array) and (array.min() < 0 or array.max() >= size):
            raise InputError(f"{name} must lie in 0..{size - 1}, found {array.min()}..{array.max()}")
        checked.append(array.astype(np.int64))
    lengths = [len(array) for array in checked]
    if lengths[0] != lengths[1]:
        raise InputError(f"query_index and passage_index must have the same length, found {lengths}")
    return checked[0], checked[1]


def _in_float64(vectors: Any, checked: list[Matrix]) -> list[Matrix]:
    """Return the matrices of ``vectors`` that are float64, and the checked float32 matrices in place of the others."""
    matrices = zip(as_spaces(vectors), checked, strict=True)
    return [new if getattr(old, "dtype", None) != np.float64 else old for old, new in matrices]


def _on_cpu(array: Any, where: Device, what: str) -> Any:
    """Return an array on the CPU, for scikit-learn's checks; raise for an array on another device than ``where``."""
    return array if device_of(array).is_cpu else to_numpy(placed(array, where, what))


def _expansion(problem: Problem, dual: Dual) -> Support:
    return Support.of(problem, [np.arange(len(problem.label))], [dual])[0]


def _rounding(fast: Problem, data: TrainingData, gamma: Any, rounded: bool, coef: NDArray[np.float64]) -> float:
    """Return :func:`rounding`, including the error of converting the data to float32."""
    raw = 0.0
    for matrices, half in zip(data[:2], (0, 1), strict=True) if rounded else ():
        for matrix, pair in zip(matrices, gamma, strict=True):
            raw = max(raw, 0.0 if is_sparse(matrix) else pair[half] * float(squared_lengths(matrix).max()))
    return rounding(fast, coef, raw)
