"""The support vector machine: candidate rows, bags, solvers, the ensemble, and a scikit-learn estimator."""

from typing import TYPE_CHECKING, Any

from haybale.ensemble.bags import STRATEGIES
from haybale.ensemble.pair_explanation import PairExplanation
from haybale.ensemble.pair_features import pair_features
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.rows import PROTOCOLS, CandidateRows, candidate_rows
from haybale.ensemble.solvers import SOLVERS
from haybale.ensemble.svr_ensemble import SVREnsemble

if TYPE_CHECKING:
    from haybale.ensemble.product_kernel_svr import ProductKernelSVR

__all__ = [
    "PROTOCOLS",
    "SOLVERS",
    "STRATEGIES",
    "CandidateRows",
    "Dual",
    "PairExplanation",
    "Problem",
    "ProductKernelSVR",
    "SVREnsemble",
    "candidate_rows",
    "pair_features",
]
__dir__ = __all__.copy  # dir() lists the public names only


def __getattr__(name: str) -> Any:
    """Import ProductKernelSVR on first use, because it imports scikit-learn."""
    if name == "ProductKernelSVR":
        from haybale.ensemble.product_kernel_svr import ProductKernelSVR

        return ProductKernelSVR
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
