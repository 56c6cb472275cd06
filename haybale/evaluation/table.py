"""The results table: a ranker a line, a measure a column, marks where a difference is significant."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from rich.table import Table

from haybale.errors import InputError
from haybale.evaluation.measures import averages
from haybale.evaluation.significance import Comparison, paired_tests


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
        """Averages and p-values, for JSON."""
        return {
            name: {
                "measures": averages(table),
                "against_baseline": {m: vars(c) for m, c in self.comparisons.get(name, {}).items()},
            }
            for name, table in self.values.items()
        }


def results(values: dict[str, pd.DataFrame], baseline: str) -> Results:
    """Compare every ranker with the baseline on every measure.

    The Bonferroni factor is the number of rankers compared with the baseline: each measure is a question of
    its own.
    """
    if baseline not in values:
        raise InputError(f"the baseline {baseline!r} is not among the rankers: {', '.join(values)}")
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


def marks(comparison: Comparison | None) -> str:
    """† where both tests have p < 0.05, ‡ where both have p < 0.01; nothing otherwise."""
    if comparison is None:
        return ""
    p = max(comparison.p_t, comparison.p_randomization)
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""


def legend(table: Results) -> str:
    """What the marks mean, in one line."""
    n = len(table.comparisons)
    return (
        f"{table.n_queries} queries. † p < 0.05, ‡ p < 0.01 against {table.baseline}, in both the paired t-test and "
        f"the randomisation test, Bonferroni-corrected for {n} comparison{'' if n == 1 else 's'}. "
        f"p (t) is the corrected t-test's on {_P_MEASURES[0]} and {_P_MEASURES[1]}."
    )


_P_MEASURES = ("MRR@10", "nDCG@10")


def rows(table: Results) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table, the best of each column marked by :func:`markdown` and :func:`rich_table`."""
    shown = [measure for measure in _P_MEASURES if measure in table.measures]
    header = ["ranker", *table.measures, *(f"p (t) {measure}" for measure in shown)]
    body = []
    for name, values in table.values.items():
        compared = table.comparisons.get(name, {})
        cells = [f"{average:.4f}{marks(compared.get(m))}" for m, average in averages(values).items()]
        cells += [_p(compared[m].p_t) if m in compared else "" for m in shown]
        body.append([name, *cells])
    return header, body


def _p(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def markdown(table: Results) -> str:
    """The table in Markdown, with its legend."""
    header, body = rows(table)
    best = _best(table)
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    for cells in body:
        shown = [
            f"**{cell}**" if (cells[0], column) in best else cell for column, cell in zip(header, cells, strict=True)
        ]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", legend(table)])


def rich_table(table: Results, title: str) -> Table:
    """The table for a terminal."""
    header, body = rows(table)
    best = _best(table)
    shown = Table(title=title, caption=legend(table), caption_justify="left", title_justify="left")
    for column in header:
        shown.add_column(column, justify="left" if column == "ranker" else "right", no_wrap=True)
    for cells in body:
        shown.add_row(
            *(
                f"[bold]{cell}[/]" if (cells[0], column) in best else cell
                for column, cell in zip(header, cells, strict=True)
            )
        )
    return shown


def _best(table: Results) -> set[tuple[str, str]]:
    means = {name: averages(values) for name, values in table.values.items()}
    return {
        (name, measure)
        for measure in table.measures
        for name in means
        if means[name][measure] == max(other[measure] for other in means.values())
    }
