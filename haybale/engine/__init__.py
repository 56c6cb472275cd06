"""A collection with its encoder and its indexes, in one folder: what rankers are fitted on and ask."""

from haybale.engine.engine import Engine

__all__ = ["Engine"]
