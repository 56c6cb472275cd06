"""Stopping rules, which say when enough was read; each is one file, whose class registers itself."""

from __future__ import annotations

from haybale.review.stopping.rule import STOPPING_RULES, Advice, StoppingRule, parse_rule

__all__ = ["STOPPING_RULES", "Advice", "StoppingRule", "parse_rule"]
__dir__ = __all__.copy  # dir() lists the public names only
