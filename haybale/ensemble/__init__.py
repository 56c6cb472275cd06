"""(query, passage) to relevance: candidate rows, bags, support vector regressors, the ensemble."""

from haybale.ensemble.bags import STRATEGIES
from haybale.ensemble.batch_scoring import score_frame
from haybale.ensemble.explanation import Explanation
from haybale.ensemble.pair_features import pair_features
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.product_kernel_svr import ProductKernelSVR
from haybale.ensemble.rows import PROTOCOLS, CandidateRows, candidate_rows
from haybale.ensemble.solvers import SOLVERS
from haybale.ensemble.svr_ensemble import SVREnsemble

__all__ = [
    "PROTOCOLS",
    "SOLVERS",
    "STRATEGIES",
    "CandidateRows",
    "Dual",
    "Explanation",
    "Problem",
    "ProductKernelSVR",
    "SVREnsemble",
    "candidate_rows",
    "pair_features",
    "score_frame",
]
