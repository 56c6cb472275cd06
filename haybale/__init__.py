"""Find the few relevant passages and documents in a haystack of long ones.

    engine = haybale.Engine.build("pydocs", "engine/")          # a collection, its encoder and indexes, in a folder
    ranker = haybale.Learned().fit(engine)                       # the best ranker, trained on the collection's queries
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

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_MODULE_OF = {
    alias.name: f"{__name__}.{node.module}"
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
