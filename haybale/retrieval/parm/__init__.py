"""PARM: rank documents for a query document by the hits of each of its paragraphs.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval", ECIR 2022,
section 3. Each paragraph of the query retrieves a list of passages. An aggregation computes the score of a document
from the hits on its passages. The data flow is ``search`` (paragraphs to hits), ``aggregate`` (hits to a run) with
``formulas`` (the aggregations), and ``explanation``.
"""
