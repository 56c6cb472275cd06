"""(query, passage) to relevance: candidate rows, bags, support vector regressors, the ensemble."""

from haybale.ensemble.bags import STRATEGIES
from haybale.ensemble.rows import PROTOCOLS, CandidateRows, candidate_rows
from haybale.ensemble.solver import SOLVERS, Dual, Problem
from haybale.ensemble.svr_ensemble import SVREnsemble

__all__ = [
    "PROTOCOLS",
    "SOLVERS",
    "STRATEGIES",
    "CandidateRows",
    "Dual",
    "Problem",
    "SVREnsemble",
    "candidate_rows",
]
