"""The engine: a collection with its encoder and its indexes, which rankers are fitted on and search."""

from haybale.engine.added_judgements import Judged
from haybale.engine.duplicates import DuplicateGroup, Duplicates
from haybale.engine.engine import Engine
from haybale.engine.reattaching import Unattached

__all__ = ["DuplicateGroup", "Duplicates", "Engine", "Judged", "Unattached"]
__dir__ = __all__.copy  # dir() lists the public names only
