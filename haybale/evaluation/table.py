"""The results table: a ranker a line, a measure a column, marks where a difference is significant."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from haybale.evaluation.measures import averages
from haybale.evaluation.results import Results
from haybale.evaluation.significance import Comparison

_P_MEASURES = ("MRR@10", "nDCG@10")  # the two whose p-values have columns of their own


def columns_of(results: Results) -> list[str]:
    """The measures, then the columns of p-values."""
    return [*results.measures, *(f"p (t) {measure}" for measure in _P_MEASURES if measure in results.measures)]


def legend(results: Results) -> str:
    """What the marks mean, in one line."""
    n = len(results.comparisons)
    return (
        f"{results.n_queries} queries. † p < 0.05, ‡ p < 0.01 against {results.baseline}, in both the paired t-test "
        f"and the randomisation test, Bonferroni-corrected for {n} comparison{'' if n == 1 else 's'}. "
        f"p (t) is the corrected t-test's on {' and '.join(_P_MEASURES)}."
    )


def markdown(results: Results) -> str:
    """The table in Markdown, the best of each measure in bold, with its legend."""
    columns = columns_of(results)
    lines = ["| ranker | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for ranker in results.values:
        lines.append(f"| {ranker} | " + " | ".join(_cells(results, ranker, columns, "**", "**")) + " |")
    return "\n".join([*lines, "", legend(results)])


def print_table(console: Console, results: Results, title: str) -> None:
    """The table on a terminal; in two, one below the other, where it is too narrow for all columns."""
    columns = columns_of(results)
    whole = _table(results, columns, title)
    unbounded = console.options.update(width=1000)  # else the measure is cut to the console's own width
    if console.measure(whole, options=unbounded).maximum <= console.width:
        console.print(whole)
    else:
        first = [column for column in columns if column.endswith(_P_MEASURES)]
        console.print(_table(results, first, title))
        console.print(_table(results, [column for column in columns if column not in first], ""))
    console.print(legend(results))


def _table(results: Results, columns: Sequence[str], title: str) -> Table:
    table = Table(title=title or None, title_justify="left")
    table.add_column("ranker")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for ranker in results.values:
        table.add_row(ranker, *_cells(results, ranker, columns, "[bold]", "[/]"))
    return table


def _cells(results: Results, ranker: str, columns: Sequence[str], begin: str, end: str) -> list[str]:
    """A ranker's cells: averages with marks, the best of each measure between ``begin`` and ``end``; p-values."""
    means = {name: averages(values) for name, values in results.values.items()}
    compared = results.comparisons.get(ranker, {})
    cells = []
    for column in columns:
        measure = column.removeprefix("p (t) ")
        if column != measure:
            p = compared[measure].p_t if compared else None
            cells.append("" if p is None else "<0.0001" if p < 0.0001 else f"{p:.4f}")
            continue
        cell = f"{means[ranker][measure]:.4f}{_marks(compared.get(measure))}"
        best = max(other[measure] for other in means.values())
        cells.append(f"{begin}{cell}{end}" if means[ranker][measure] == best else cell)
    return cells


def _marks(comparison: Comparison | None) -> str:
    """† where both tests have p < 0.05, ‡ where both have p < 0.01; nothing otherwise."""
    if comparison is None:
        return ""
    p = max(comparison.p_t, comparison.p_randomization)
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""
