"""Find the few relevant passages and documents in a haystack of long ones.

    engine = haybale.Engine.build("pydocs", "engine/")          # index a collection in a folder
    ranker = haybale.SVR().fit(engine)                           # train a ranker on its judged queries
    run = ranker.rank({"q1": "interpolate missing values"})
    results = ranker.search("interpolate missing values")         # passages, with what carried the score marked
    why = ranker.explain("interpolate missing values", run["q1"][0][0])
    ranker.save("model/"); ranker = haybale.load("model/", engine)

The packages follow the flow of data, and none imports from a later one: :mod:`~haybale.collections` →
:mod:`~haybale.embeddings` → :mod:`~haybale.retrieval` → :mod:`~haybale.ensemble` → :mod:`~haybale.engine` →
:mod:`~haybale.search` → :mod:`~haybale.ranking` → :mod:`~haybale.rankers` → :mod:`~haybale.evaluation` →
:mod:`~haybale.reports` → :mod:`~haybale.cli` → :mod:`~haybale.context`, :mod:`~haybale.pairs`,
:mod:`~haybale.finetune`, :mod:`~haybale.review`, :mod:`~haybale.service` → :mod:`~haybale.commands`.

``__init__.pyi`` lists the public names, for type checkers and for this module. A name is imported on its first use, so
that ``import haybale`` is fast.
"""

from __future__ import annotations

from haybale.lazy import attach_stub
from haybale.versions import __version__ as __version__

__getattr__, __dir__, _MODULE_OF = attach_stub(__name__, __file__)
__all__ = sorted(_MODULE_OF)
