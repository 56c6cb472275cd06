"""PARM: rank documents for a query document by the hits of each of its paragraphs.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 3. Each paragraph of the query retrieves a list of passages; an aggregation turns the hits on
passages of a document into its score. Read ``search`` (paragraphs to hits), ``aggregate`` (hits to a run), ``formulas``
(the aggregations) and ``explanation`` in this order.
"""

from haybale.retrieval.parm.aggregate import aggregate, rank_documents
from haybale.retrieval.parm.explanation import ParagraphExplanation
from haybale.retrieval.parm.formulas import AGGREGATIONS, Vectors
from haybale.retrieval.parm.search import ParagraphHits, ParagraphSearch

__all__ = [
    "AGGREGATIONS",
    "ParagraphExplanation",
    "ParagraphHits",
    "ParagraphSearch",
    "Vectors",
    "aggregate",
    "rank_documents",
]
