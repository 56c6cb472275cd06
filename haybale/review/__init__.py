"""Judge, learn, stop: technology-assisted review of the documents of an engine."""

from haybale.lazy import attach_stub

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
