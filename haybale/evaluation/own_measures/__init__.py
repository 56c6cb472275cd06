"""Measures that ir_measures lacks. Each file here registers its measures; all files are imported."""

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


# (relevant documents of the run, documents of the run, relevant documents) of the queries, each (m,) -> the numerator
# and the denominator of each query
Ratio = Callable[[Any, Any, Any], tuple[Any, Any]]
RATIOS: dict[str, Ratio] = {}


def register_ratio(name: str) -> Callable[[Ratio], Ratio]:
    """Return a decorator that registers a function as a measure that divides sums over all queries: a micro average.

    The measure of a run is the sum of the numerators over the sum of the denominators. It can be written with a
    cut-off.
    """

    def register(ratio: Ratio) -> Ratio:
        RATIOS[name] = ratio
        return ratio

    return register


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
