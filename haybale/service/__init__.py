"""Search, judge and train in a browser or over HTTP: the workspace that a team shares, its REST interface and pages."""

from haybale.lazy import attach_stub

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
