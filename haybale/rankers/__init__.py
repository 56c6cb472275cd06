"""Rankers: fitted on an engine, they rank queries, say why, nest, and are kept in folders; one a file."""

from haybale.rankers.batch import Batch, Training, queries_from
from haybale.rankers.bm25 import BM25
from haybale.rankers.cross_encoder import CrossEncoder
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.grammar import (
    RANKERS,
    from_spec,
    parse,
    parse_all,
    parse_value,
    read_yaml,
    set_all,
    set_values,
)
from haybale.rankers.graph_context import GraphContext
from haybale.rankers.in_space import InSpace
from haybale.rankers.knn import KNN
from haybale.rankers.learned import Learned
from haybale.rankers.linear_context import LinearContext
from haybale.rankers.linked_documents import LinkedDocuments
from haybale.rankers.loading import load
from haybale.rankers.max_sim import MaxSim
from haybale.rankers.parm import PARM
from haybale.rankers.pli import PLI
from haybale.rankers.ranker import EmptyRankingWarning, Ranker
from haybale.rankers.rrf import RRF
from haybale.rankers.section_propagation import SectionPropagation
from haybale.rankers.similar_queries import SimilarQueries
from haybale.rankers.svr import SVR
from haybale.rankers.token_context import TokenContext

__all__ = [
    "BM25",
    "KNN",
    "PARM",
    "PLI",
    "RANKERS",
    "RRF",
    "SVR",
    "Batch",
    "CrossEncoder",
    "EmptyRankingWarning",
    "Explanation",
    "GraphContext",
    "InSpace",
    "Learned",
    "LinearContext",
    "LinkedDocuments",
    "MaxSim",
    "Ranker",
    "SectionPropagation",
    "Share",
    "SimilarQueries",
    "TokenContext",
    "Training",
    "from_spec",
    "load",
    "parse",
    "parse_all",
    "parse_value",
    "queries_from",
    "read_yaml",
    "set_all",
    "set_values",
]
