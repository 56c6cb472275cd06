"""The parameters of :class:`SVREnsemble`, what they may be, and their defaults. Their meaning is in its docstring."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from haybale.ensemble.bags import STRATEGIES
from haybale.ensemble.problem import Solver
from haybale.ensemble.rows import PROTOCOLS
from haybale.ensemble.spaces import Gamma


class EnsembleParameters(BaseEstimator):  # type: ignore[misc]
    """Declared, checked before training, and only assigned here."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_bags": [Interval(Integral, 1, None, closed="left")],
        "overlap": [Interval(Real, 0, None, closed="left")],
        "strategy": [StrOptions(set(STRATEGIES))],
        "routes": [Interval(Integral, 1, None, closed="left"), None],
        "k": [Interval(Integral, 1, None, closed="left")],
        "C": [Interval(Real, 0, None, closed="neither")],
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "gamma": [StrOptions({"scale"}), Interval(Real, 0, None, closed="neither"), tuple, list],
        "standardize": ["boolean"],
        "eta": [Interval(Real, 0, None, closed="left")],
        "feature_gamma": [StrOptions({"scale"}), Interval(Real, 0, None, closed="neither")],
        "positive_weight": [Interval(Real, 0, None, closed="neither")],
        "rows_per_bag": [Interval(Integral, 2, None, closed="left"), None],
        "protocol": [StrOptions(set(PROTOCOLS))],
        "threshold": [Interval(Real, None, None, closed="neither")],
        "proof": [Interval(Integral, 1, None, closed="left")],
        "oob_score": ["boolean"],
        "blend": ["boolean"],
        "blend_queries": [Interval(Integral, 1, None, closed="left"), None],
        "solver": [str, callable],
        "memory_budget": [Interval(Real, 0, None, closed="neither"), None],
        "device": [str, None],
        "n_jobs": [Integral, None],
        "random_state": [Integral, None],
    }

    def __init__(
        self,
        n_bags: int = 35,
        *,
        overlap: float = 0.6,
        strategy: str = "queries",
        routes: int | None = None,
        k: int = 50,
        C: float = 1.0,
        epsilon: float = 0.1,
        tol: float = 1e-3,
        max_iter: int = -1,
        gamma: Gamma = (3.0, 2.5),
        standardize: bool = False,
        eta: float = 0.0,
        feature_gamma: float | str = "scale",
        positive_weight: float = 3.0,
        rows_per_bag: int | None = None,
        protocol: str = "end-to-end",
        threshold: float = 0.5,
        proof: int = 1,
        oob_score: bool = False,
        blend: bool = False,
        blend_queries: int | None = 2000,
        solver: str | Solver = "auto",
        memory_budget: float | None = None,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_bags = n_bags
        self.overlap = overlap
        self.strategy = strategy
        self.routes = routes
        self.k = k
        self.C = C
        self.epsilon = epsilon
        self.tol = tol
        self.max_iter = max_iter
        self.gamma = gamma
        self.standardize = standardize
        self.eta = eta
        self.feature_gamma = feature_gamma
        self.positive_weight = positive_weight
        self.rows_per_bag = rows_per_bag
        self.protocol = protocol
        self.threshold = threshold
        self.proof = proof
        self.oob_score = oob_score
        self.blend = blend
        self.blend_queries = blend_queries
        self.solver = solver
        self.memory_budget = memory_budget
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
