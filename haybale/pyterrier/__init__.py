"""haybale's searches and re-rankers as PyTerrier transformers, for its pipelines and experiments; no Java needed.

Macdonald & Tonellotto, "Declarative Experimentation in Information Retrieval using PyTerrier", ICTIR 2020. Queries
are frames with ``qid`` and ``query``; a column ``own`` may name a document that is left out of the query's ranking.
Rankings are ordered by score, then by docno, with ranks from 0.
"""

from haybale.extras import require

require("pyterrier", "pyterrier")

from haybale.pyterrier.ensemble import EnsembleReranker  # noqa: E402
from haybale.pyterrier.parm import PARMRetriever  # noqa: E402
from haybale.pyterrier.passages import BestPassage, PassageRetriever  # noqa: E402

__all__ = ["BestPassage", "EnsembleReranker", "PARMRetriever", "PassageRetriever"]
