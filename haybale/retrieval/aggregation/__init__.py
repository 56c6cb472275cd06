"""From passages to documents: the aggregations of PARM.

A query document has one or several paragraphs, each with its own list of hits. Every hit of paragraph i on a passage
of document d is evidence for d; an aggregation turns the evidence into one score a document. All are computed over
the hits of many query documents at once, with no loop over hits.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 3.
"""

from haybale.retrieval.aggregation.aggregate import aggregate, rank_documents
from haybale.retrieval.aggregation.products import Vectors
from haybale.retrieval.aggregation.registry import AGGREGATIONS

__all__ = ["AGGREGATIONS", "Vectors", "aggregate", "rank_documents"]
