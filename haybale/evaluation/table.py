"""The table of results: a row for each ranker, a column for each measure, and marks for significant differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from haybale.drawing import clean
from haybale.evaluation.measures import averages
from haybale.evaluation.significance import Results

DETAILED = ("MRR@10", "nDCG@10")  # measures with columns for the p-value and the effect size


class Cell(NamedTuple):
    """A cell of the table; ``value`` is its sort key."""

    text: str
    value: float | None
    marks: str = ""
    best: bool = False

    def shown(self, begin: str, end: str) -> str:
        """Return the text with its marks, enclosed in ``begin`` and ``end`` if it is the best of its column."""
        return f"{begin}{self.text}{self.marks}{end}" if self.best else f"{self.text}{self.marks}"


def columns_of(results: Results) -> list[tuple[str, str]]:
    """Return ``(title, measure)`` of each column: the measures, then p and d of those in :data:`DETAILED`."""
    detailed = [measure for measure in DETAILED if measure in results.measures and results.comparisons]
    details = [(f"{kind} {measure}", measure) for measure in detailed for kind in ("p (t)", "d")]
    return [*((measure, measure) for measure in results.measures), *details]


def legend(results: Results) -> str:
    """Return a line that explains the marks and the columns."""
    n, detailed = len(results.comparisons), [measure for measure in DETAILED if measure in results.measures]
    if not n:
        return f"{results.n_queries} queries."
    meaning = (
        f"{results.n_queries} queries. † p < 0.05, ‡ p < 0.01 against {results.baseline}, in both the paired t-test "
        f"and the randomisation test, Bonferroni-corrected for {n} comparison{'' if n == 1 else 's'}."
    )
    details = (
        f" p (t) is the corrected t-test's on {' and '.join(detailed)}; d is Cohen's effect size there, the "
        "mean difference over the standard deviation of the differences (– where they are all the same)."
    )
    return meaning + details * bool(detailed)


def markdown(results: Results) -> str:
    """Return the table with its legend in Markdown; the best value of each measure is bold."""
    columns = columns_of(results)
    lines = [f"| ranker | {' | '.join(title for title, _ in columns)} |", "| --- |" + " ---: |" * len(columns)]
    for name in results.values:
        lines.append(f"| {name} | {' | '.join(cell.shown('**', '**') for cell in cells(results, name, columns))} |")
    return "\n".join([*lines, "", legend(results)])


def print_table(console: Console, results: Results, title: str) -> None:
    """Print the table; on a narrow terminal, split its columns into several tables."""
    unbounded = console.options.update(width=1000)  # otherwise the measured width is at most the console's
    parts: list[list[tuple[str, str]]] = [[]]
    for column in columns_of(results):
        table = _table(results, [*parts[-1], column], "")
        if parts[-1] and console.measure(table, options=unbounded).maximum > console.width:
            parts.append([])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        console.print(_table(results, part, "" if number else title))
    console.print(Text(clean(legend(results))))


def _table(results: Results, columns: Sequence[tuple[str, str]], title: str) -> Table:
    table = Table("ranker", title=Text(clean(title)) if title else None, title_justify="left")
    for column, _ in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for ranker in results.values:
        table.add_row(Text(clean(ranker)), *(cell.shown("[bold]", "[/]") for cell in cells(results, ranker, columns)))
    return table


def cells(results: Results, ranker: str, columns: Sequence[tuple[str, str]]) -> list[Cell]:
    """Return the cells of a ranker: averages with significance marks, then p and d."""
    means = {name: averages(values) for name, values in results.values.items()}
    row = []
    for title, measure in columns:
        compared = results.comparisons.get(ranker, {}).get(measure)
        if title == measure:
            value = means[ranker][measure]
            p = 1.0 if compared is None else compared.p
            marks = "‡" if p < 0.01 else "†" if p < 0.05 else ""
            row.append(Cell(f"{value:.4f}", value, marks, value == max(other[measure] for other in means.values())))
        elif compared is None:
            row.append(Cell("", None))
        elif title.startswith("p "):
            row.append(Cell("<0.0001" if compared.p_t < 0.0001 else f"{compared.p_t:.4f}", compared.p_t))
        else:
            d = compared.effect_size
            row.append(Cell("–" if d is None else f"{d:z.2f}", d))
    return row
