"""PARM: a query that is a whole document, ranked by what each of its paragraphs retrieves.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 3. Every hit of paragraph i on a passage of document d is evidence for d; an aggregation
(``formulas``) turns the evidence into one score a document, for many query documents at once, with no loop over hits.
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
