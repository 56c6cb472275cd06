"""The values of several rankers on the same queries, and how each compares with a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from haybale.errors import InputError
from haybale.evaluation.measures import averages, values_by_query
from haybale.evaluation.significance import Comparison, paired_tests
from haybale.frames import Frame


@dataclass(frozen=True)
class Results:
    """Values by ranker (each a frame of :func:`evaluate`) and their comparisons with the baseline."""

    values: dict[str, pd.DataFrame]
    baseline: str
    comparisons: dict[str, dict[str, Comparison]]  # ranker -> measure -> comparison; the baseline has none

    @property
    def measures(self) -> list[str]:
        return list(self.values[self.baseline].columns)

    @property
    def n_queries(self) -> int:
        return len(self.values[self.baseline])

    def to_dict(self) -> dict[str, object]:
        """Averages, p-values and effect sizes, for JSON."""
        return {
            name: {
                "measures": averages(table),
                "against_baseline": {m: vars(c) for m, c in self.comparisons.get(name, {}).items()},
            }
            for name, table in self.values.items()
        }


def results(values: dict[str, Frame], baseline: str) -> Results:
    """Compare every ranker with the baseline on every measure.

    The Bonferroni factor is the number of rankers compared with the baseline: each measure is a question of
    its own. ``values`` are frames of :func:`evaluate`, of pandas or cuDF, or tables of pyarrow.
    """
    if baseline not in values:
        raise InputError(f"the baseline {baseline!r} is not among the rankers: {', '.join(values)}")
    values = {name: values_by_query(table) for name, table in values.items()}
    others = [name for name in values if name != baseline]
    comparisons = {
        name: {
            measure: paired_tests(
                values[name][measure].to_numpy(),
                values[baseline][measure].to_numpy(),
                n_comparisons=len(others),
            )
            for measure in values[baseline].columns
        }
        for name in others
    }
    return Results(values, baseline, comparisons)
