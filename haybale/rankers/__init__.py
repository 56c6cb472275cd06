"""Rankers: fitted on an engine, they rank queries, say why, nest, and are kept in folders; one a file."""

from haybale.collections.queries import queries_from
from haybale.rankers.bm25 import BM25
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.grammar import (
    from_spec,
    parse,
    parse_all,
    parse_value,
    ranker_names,
    read_yaml,
    set_all,
    set_values,
)
from haybale.rankers.in_space import InSpace
from haybale.rankers.knn import KNN
from haybale.rankers.learned import Learned
from haybale.rankers.learned_fusion import LearnedFusion
from haybale.rankers.loading import load
from haybale.rankers.new_queries import NewQueries, unseen_queries
from haybale.rankers.out_of_fold import OutOfFold
from haybale.rankers.parm import PARM
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import RANKERS, EmptyRankingWarning, Ranker
from haybale.rankers.rrf import RRF
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.svr import SVR
from haybale.rankers.training import Training

__all__ = [
    "BM25",
    "KNN",
    "PARM",
    "RANKERS",
    "RRF",
    "SVR",
    "EmptyRankingWarning",
    "Explanation",
    "InSpace",
    "Learned",
    "LearnedFusion",
    "NewQueries",
    "OutOfFold",
    "QueryBatch",
    "Ranker",
    "Share",
    "SimilarQueries",
    "Training",
    "from_spec",
    "load",
    "parse",
    "parse_all",
    "parse_value",
    "queries_from",
    "ranker_names",
    "read_yaml",
    "set_all",
    "set_values",
    "unseen_queries",
]
