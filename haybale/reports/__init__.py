"""Reports about runs: self-contained HTML pages with measures, curves, texts and pictures."""

from haybale.lazy import attach_stub

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
