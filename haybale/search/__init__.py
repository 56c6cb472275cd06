"""Queries on an engine with their vectors, hits and runs; explanations of scores; and results that people can read.

:meth:`haybale.Ranker.search` returns results: the best passages of each document, with what carried the score marked.
"""

from haybale.search.results import SearchResults
from haybale.search.search_hit import SearchHit, SourceShare
from haybale.search.snippets import Snippet

__all__ = ["SearchHit", "SearchResults", "Snippet", "SourceShare"]
__dir__ = __all__.copy  # dir() lists the public names only
