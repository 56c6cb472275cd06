"""Measures that ir_measures lacks: one file each, which registers its measure. All of them are imported here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

# (judgements, ranked documents, cut-off) -> value of one query; ir_measures' frames, which are of that query alone.
Measure = Callable[[Any, Any, int], float]
OWN_MEASURES: dict[str, Measure] = {}


def register_measure(name: str) -> Callable[[Measure], Measure]:
    """Register a function as the measure ``name``, which is written with a cut-off: ``PRES@100``."""

    def register(measure: Measure) -> Measure:
        OWN_MEASURES[name] = measure
        return measure

    return register


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
