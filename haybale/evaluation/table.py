"""The results table: a ranker a line, a measure a column, marks where a difference is significant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from haybale.evaluation.measures import averages
from haybale.evaluation.significance import Comparison, Results

DETAILED = ("MRR@10", "nDCG@10")  # the measures whose p-values and effect sizes have columns of their own


class Cell(NamedTuple):
    """What stands in a column for a ranker; ``value`` is what columns are sorted by."""

    text: str
    value: float | None
    marks: str = ""
    best: bool = False

    def shown(self, begin: str, end: str) -> str:
        """With its marks, and between ``begin`` and ``end`` where it is the best."""
        return f"{begin}{self.text}{self.marks}{end}" if self.best else f"{self.text}{self.marks}"


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
    for name in results.values:
        lines.append(f"| {name} | {' | '.join(each.shown('**', '**') for each in cells(results, name, columns))} |")
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
        table.add_row(escape(ranker), *(each.shown("[bold]", "[/]") for each in cells(results, ranker, columns)))
    return table


def cells(results: Results, ranker: str, columns: Sequence[tuple[str, str]]) -> list[Cell]:
    """A ranker's cells: averages with marks, the best of each measure told apart; p and d."""
    means = {name: averages(values) for name, values in results.values.items()}
    found = []
    for title, measure in columns:
        compared = results.comparisons.get(ranker, {}).get(measure)
        if title == measure:
            value = means[ranker][measure]
            best = value == max(other[measure] for other in means.values())
            found.append(Cell(f"{value:.4f}", value, _marks(compared), best))
        elif compared is None:
            found.append(Cell("", None))
        elif title.startswith("p "):
            found.append(Cell("<0.0001" if compared.p_t < 0.0001 else f"{compared.p_t:.4f}", compared.p_t))
        else:
            d = compared.effect_size
            found.append(Cell("–" if d is None else f"{d:z.2f}", d))
    return found


def _marks(comparison: Comparison | None) -> str:
    """† where both tests have p < 0.05, ‡ where both have p < 0.01; nothing otherwise."""
    p = 1.0 if comparison is None else max(comparison.p_t, comparison.p_randomization)
    return "‡" if p < 0.01 else "†" if p < 0.05 else ""
