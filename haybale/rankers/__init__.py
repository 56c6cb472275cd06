"""Rankers: fitted on an engine, they rank queries, say why, nest, and are kept in folders; one a file."""

from haybale.lazy import attach_stub

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
