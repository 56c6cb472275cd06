"""Find the few relevant passages and documents in a haystack of long ones.

    engine = haybale.Engine.build("pydocs", "engine/")          # a collection, its encoder and indexes, in a folder
    ranker = haybale.SVR().fit(engine)                           # trained on the collection's judged queries
    run = ranker.rank({"q1": "interpolate missing values"})
    why = ranker.explain("interpolate missing values", run["q1"][0][0])
    ranker.save("model/"); ranker = haybale.load("model/", engine)

The packages follow the data, and none imports from a later one: :mod:`~haybale.collections` →
:mod:`~haybale.embeddings` → :mod:`~haybale.retrieval` → :mod:`~haybale.ensemble` → :mod:`~haybale.engine` →
:mod:`~haybale.rankers` → :mod:`~haybale.context`, :mod:`~haybale.pairs` → :mod:`~haybale.evaluation` →
:mod:`~haybale.finetune`, :mod:`~haybale.reports`.

The public names stand in ``__init__.pyi``, for type checkers and for this module, which imports a name when it is
first used: ``import haybale`` alone is cheap.
"""

from __future__ import annotations

from haybale.lazy import attach_stub

__version__ = "0.2.0"

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
