"""The engine: a collection with its encoder and its indexes, which rankers are fitted on and search."""

from haybale.engine.added_judgements import Judged
from haybale.engine.engine import Engine

__all__ = ["Engine", "Judged"]
