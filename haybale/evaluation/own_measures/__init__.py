"""Measures that ir_measures lacks. Each file here registers one measure; all files are imported."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

# (judgements, ranked documents, cut-off) -> value; the frames are those of ir_measures for one query.
Measure = Callable[[Any, Any, int], float]
OWN_MEASURES: dict[str, Measure] = {}


def register_measure(name: str) -> Callable[[Measure], Measure]:
    """Return a decorator that registers a function as a measure, to be written with a cut-off: ``PRES@100``."""

    def register(measure: Measure) -> Measure:
        OWN_MEASURES[name] = measure
        return measure

    return register


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
