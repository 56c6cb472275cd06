"""The results table: a ranker a line, a measure a column, marks where a difference is significant."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from haybale.evaluation.measures import averages
from haybale.evaluation.results import Results
from haybale.evaluation.significance import Comparison

DETAILED = ("MRR@10", "nDCG@10")  # the measures whose p-values and effect sizes have columns of their own
_P, _D = "p (t) ", "d "


def columns_of(results: Results, detailed: Sequence[str] = DETAILED) -> list[str]:
    """The measures, then p and d of each of the ``detailed`` ones; those that were not measured are left out."""
    measured = [measure for measure in detailed if measure in results.measures]
    return [*results.measures, *(f"{kind}{measure}" for measure in measured for kind in (_P, _D))]


def legend(results: Results, detailed: Sequence[str] = DETAILED) -> str:
    """What the marks and the columns mean, in one line."""
    n = len(results.comparisons)
    measured = [measure for measure in detailed if measure in results.measures]
    marks = (
        f"{results.n_queries} queries. † p < 0.05, ‡ p < 0.01 against {results.baseline}, in both the paired t-test "
        f"and the randomisation test, Bonferroni-corrected for {n} comparison{'' if n == 1 else 's'}."
    )
    if not measured:
        return marks
    return (
        f"{marks} p (t) is the corrected t-test's on {' and '.join(measured)}; d is Cohen's effect size there, the "
        "mean difference over the standard deviation of the differences (– where they are all the same)."
    )


def markdown(results: Results, detailed: Sequence[str] = DETAILED) -> str:
    """The table in Markdown, the best of each measure in bold, with its legend.

    ``detailed``: the measures that also get a column of p and one of Cohen's d, as far as they were measured.
    """
    columns = columns_of(results, detailed)
    lines = ["| ranker | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for ranker in results.values:
        lines.append(f"| {ranker} | " + " | ".join(_cells(results, ranker, columns, "**", "**")) + " |")
    return "\n".join([*lines, "", legend(results, detailed)])


def print_table(console: Console, results: Results, title: str, detailed: Sequence[str] = DETAILED) -> None:
    """The table on a terminal; in several, one below the other, where it is too narrow for all columns.

    ``detailed`` as for :func:`markdown`.
    """
    unbounded = console.options.update(width=1000)  # else the measure is cut to the console's own width
    parts: list[list[str]] = [[]]
    for column in columns_of(results, detailed):
        table = _table(results, [*parts[-1], column], "")
        if parts[-1] and console.measure(table, options=unbounded).maximum > console.width:
            parts.append([])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        console.print(_table(results, part, "" if number else title))
    console.print(legend(results, detailed))


def _table(results: Results, columns: Sequence[str], title: str) -> Table:
    table = Table(title=title or None, title_justify="left")
    table.add_column("ranker")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for ranker in results.values:
        table.add_row(escape(ranker), *_cells(results, ranker, columns, "[bold]", "[/]"))
    return table


def _cells(results: Results, ranker: str, columns: Sequence[str], begin: str, end: str) -> list[str]:
    """A ranker's cells: averages with marks, the best of each measure between ``begin`` and ``end``; p and d."""
    means = {name: averages(values) for name, values in results.values.items()}
    compared = results.comparisons.get(ranker, {})
    cells = []
    for column in columns:
        measure = measure_of(column)
        if column != measure:
            cells.append(detail(compared[measure], column) if compared else "")
            continue
        cell = f"{means[ranker][measure]:.4f}{marks(compared.get(measure))}"
        best = max(other[measure] for other in means.values())
        cells.append(f"{begin}{cell}{end}" if means[ranker][measure] == best else cell)
    return cells


def measure_of(column: str) -> str:
    """The measure that a column is about.

    >>> measure_of("p (t) MRR@10"), measure_of("MAP")
    ('MRR@10', 'MAP')
    """
    return column.removeprefix(_P).removeprefix(_D)


def detail(comparison: Comparison, column: str) -> str:
    """The cell of a column of p or d."""
    if column.startswith(_P):
        return "<0.0001" if comparison.p_t < 0.0001 else f"{comparison.p_t:.4f}"
    return "–" if comparison.effect_size is None else f"{comparison.effect_size:z.2f}"


def marks(comparison: Comparison | None) -> str:
    """† where both tests have p < 0.05, ‡ where both have p < 0.01; nothing otherwise."""
    if comparison is None:
        return ""
    p = max(comparison.p_t, comparison.p_randomization)
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""
