"""Search results that people can read: the best passages of each document, with what carried the score marked.

:meth:`haybale.Ranker.search` returns them. Nothing here changes a ranking.
"""

from haybale.search.results import SearchHit, SearchResults, SourceShare
from haybale.search.snippets import Snippet

__all__ = ["SearchHit", "SearchResults", "Snippet", "SourceShare"]
