"""Search passages by vectors or by BM25, and rank documents by the hits: aggregation, fusion, and runs."""

from haybale.retrieval.backends import BACKENDS
from haybale.retrieval.bm25_index import BM25Index
from haybale.retrieval.fusion import reciprocal_rank_fusion
from haybale.retrieval.hits import Hits
from haybale.retrieval.merging import pool
from haybale.retrieval.parm.aggregate import aggregate, rank_documents
from haybale.retrieval.parm.formulas import AGGREGATIONS, Vectors
from haybale.retrieval.parm.paragraph_explanation import ParagraphExplanation
from haybale.retrieval.parm.paragraph_search import ParagraphHits, ParagraphSearch
from haybale.retrieval.passage_index import PassageIndex
from haybale.retrieval.run import Run
from haybale.retrieval.segmented_indexes import AnyBM25, AnyPassageIndex

__all__ = [
    "AGGREGATIONS",
    "BACKENDS",
    "AnyBM25",
    "AnyPassageIndex",
    "BM25Index",
    "Hits",
    "ParagraphExplanation",
    "ParagraphHits",
    "ParagraphSearch",
    "PassageIndex",
    "Run",
    "Vectors",
    "aggregate",
    "pool",
    "rank_documents",
    "reciprocal_rank_fusion",
]
__dir__ = __all__.copy  # dir() lists the public names only
