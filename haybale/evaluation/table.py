"""The results table: a ranker a line, a measure a column, marks where a difference is significant."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from haybale.evaluation.measures import averages
from haybale.evaluation.significance import Comparison, Results

DETAILED = ("MRR@10", "nDCG@10")  # the measures whose p-values and effect sizes have columns of their own


def columns_of(results: Results, detailed: Sequence[str] = DETAILED) -> list[tuple[str, str]]:
    """``(title, measure)``: the measures, then p and d of each of the ``detailed`` ones that were measured."""
    both = [(f"{kind} {measure}", measure) for measure in _measured(results, detailed) for kind in ("p (t)", "d")]
    return [*((measure, measure) for measure in results.measures), *both]


def _measured(results: Results, detailed: Sequence[str]) -> list[str]:
    return [measure for measure in detailed if measure in results.measures]


def legend(results: Results, detailed: Sequence[str] = DETAILED) -> str:
    """What the marks and the columns mean, in one line."""
    n = len(results.comparisons)
    meaning = (
        f"{results.n_queries} queries. † p < 0.05, ‡ p < 0.01 against {results.baseline}, in both the paired t-test "
        f"and the randomisation test, Bonferroni-corrected for {n} comparison{'' if n == 1 else 's'}."
    )
    measured = _measured(results, detailed)
    if not measured:
        return meaning
    return (
        f"{meaning} p (t) is the corrected t-test's on {' and '.join(measured)}; d is Cohen's effect size there, the "
        "mean difference over the standard deviation of the differences (– where they are all the same)."
    )


def markdown(results: Results, detailed: Sequence[str] = DETAILED) -> str:
    """The table in Markdown, the best of each measure in bold, with its legend.

    ``detailed``: the measures that also get a column of p and one of Cohen's d, as far as they were measured.
    """
    columns = columns_of(results, detailed)
    lines = [f"| ranker | {' | '.join(title for title, _ in columns)} |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | {' | '.join(cells(results, name, columns, '**', '**'))} |" for name in results.values]
    return "\n".join([*lines, "", legend(results, detailed)])


def print_table(console: Console, results: Results, title: str, detailed: Sequence[str] = DETAILED) -> None:
    """The table on a terminal; in several, one below the other, where it is too narrow for all columns."""
    unbounded = console.options.update(width=1000)  # else the measure is cut to the console's own width
    parts: list[list[tuple[str, str]]] = [[]]
    for column in columns_of(results, detailed):
        table = _table(results, [*parts[-1], column], "")
        if parts[-1] and console.measure(table, options=unbounded).maximum > console.width:
            parts.append([])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        console.print(_table(results, part, "" if number else title))
    console.print(legend(results, detailed))


def _table(results: Results, columns: Sequence[tuple[str, str]], title: str) -> Table:
    table = Table("ranker", title=title or None, title_justify="left")
    for column, _ in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for ranker in results.values:
        table.add_row(escape(ranker), *cells(results, ranker, columns, "[bold]", "[/]"))
    return table


def cells(results: Results, ranker: str, columns: Sequence[tuple[str, str]], begin: str, end: str) -> list[str]:
    """A ranker's cells: averages with marks, the best of each measure between ``begin`` and ``end``; p and d."""
    means = {name: averages(values) for name, values in results.values.items()}
    found = []
    for title, measure in columns:
        compared = results.comparisons.get(ranker, {}).get(measure)
        if title != measure:
            found.append("" if compared is None else detail(compared, title))
            continue
        cell = f"{means[ranker][measure]:.4f}{marks(compared)}"
        best = max(other[measure] for other in means.values())
        found.append(f"{begin}{cell}{end}" if means[ranker][measure] == best else cell)
    return found


def detail(comparison: Comparison, title: str) -> str:
    """The cell of a column of p or d."""
    if title.startswith("p "):
        return "<0.0001" if comparison.p_t < 0.0001 else f"{comparison.p_t:.4f}"
    return "–" if comparison.effect_size is None else f"{comparison.effect_size:z.2f}"


def marks(comparison: Comparison | None) -> str:
    """† where both tests have p < 0.05, ‡ where both have p < 0.01; nothing otherwise."""
    p = 1.0 if comparison is None else max(comparison.p_t, comparison.p_randomization)
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""
