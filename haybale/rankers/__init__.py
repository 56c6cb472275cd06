"""Rankers, which are fitted on an engine, rank queries, explain scores, nest and are saved; one in each file."""

from haybale.lazy import attach_stub

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
