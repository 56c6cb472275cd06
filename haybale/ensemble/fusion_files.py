"""A learned fusion as plain values and as a JSON file.

format, version     "haybale fusion", 1
parameters          those of the estimator
runs, memories      names
weights             run, feature, weight and spread (the feature's standard deviation), one object a feature
n_queries, n_novel, loss, n_iter
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from haybale.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from haybale.ensemble.learned_fusion import LearnedFusion

FORMAT, VERSION = "haybale fusion", 1
_FACTS = ("n_queries", "n_novel", "loss", "n_iter")

F = TypeVar("F", bound="LearnedFusion")


def to_plain(fusion: LearnedFusion) -> dict[str, Any]:
    """Strings, numbers, lists and dictionaries of a fitted fusion."""
    weights = zip(fusion._features, fusion.coef_.tolist(), fusion.spread_.tolist(), strict=True)
    return {
        "format": FORMAT,
        "version": VERSION,
        "parameters": {name: _plain(value) for name, value in fusion.get_params().items()},
        "runs": list(fusion.runs_),
        "memories": list(fusion.memories_),
        "weights": [
            {"run": run, "feature": feature, "weight": weight, "spread": spread}
            for (run, feature), weight, spread in weights
        ],
        **{name: _plain(getattr(fusion, f"{name}_")) for name in _FACTS},
    }


def from_plain(cls: type[F], values: Mapping[str, Any]) -> F:
    """The fusion of :func:`to_plain`; :class:`InputError` says what is not as expected."""
    for name, expected in (("format", FORMAT), ("version", VERSION)):
        found = values.get(name) if isinstance(values, Mapping) else None
        if found != expected:
            raise InputError(f"fusion: expected {name} {expected!r}, found {found!r}")
    try:
        fusion = cls(**values["parameters"])
        fusion._validate_params()
        fusion.runs_, fusion.memories_ = sorted(values["runs"]), sorted(values["memories"])
        for name in _FACTS:
            setattr(fusion, f"{name}_", values[name])
        names = [(row["run"], row["feature"]) for row in values["weights"]]
        numbers = [(float(row["weight"]), float(row["spread"])) for row in values["weights"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"fusion: {type(error).__name__}: {error}") from None
    if names != fusion._features or not set(fusion.memories_) <= set(fusion.runs_):
        raise InputError("fusion: weights are not those of the features of its runs")
    if not all(math.isfinite(value) for pair in numbers for value in pair):
        raise InputError("fusion: a weight is no finite number")
    fusion.coef_, fusion.spread_ = np.array(numbers, dtype=np.float64).reshape(-1, 2).T.copy()
    return fusion


def read_fusion(cls: type[F], path: Path) -> F:
    """The fusion of a file."""
    if not path.is_file():
        raise FileFormatError(path, None, "not found")
    try:
        return from_plain(cls, json.loads(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise FileFormatError(path, None, f"expected UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise FileFormatError(path, error.lineno, f"expected JSON: {error.msg}") from None
    except InputError as error:
        raise FileFormatError(path, None, str(error)) from None


def _plain(value: Any) -> Any:
    """NumPy numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value
