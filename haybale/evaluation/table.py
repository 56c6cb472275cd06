"""The results table: a row for each ranker, a column for each measure, marks for significant differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from haybale.drawing import clean
from haybale.evaluation.measures import averages
from haybale.evaluation.significance import Results

DETAILED = ("MRR@10", "nDCG@10")  # measures with additional columns for p-value and effect size


class Cell(NamedTuple):
    """The content of a column for a ranker; ``value`` is the sort key."""

    text: str
    value: float | None
    marks: str = ""
    best: bool = False

    def shown(self, begin: str, end: str) -> str:
        """Return the text with its marks, between ``begin`` and ``end`` if it is the best of its column."""
        return f"{begin}{self.text}{self.marks}{end}" if self.best else f"{self.text}{self.marks}"


def columns_of(results: Results) -> list[tuple[str, str]]:
    """Return ``(title, measure)`` of each column: the measures, then p and d of the :data:`DETAILED` ones."""
    measured = [measure for measure in DETAILED if measure in results.measures and results.comparisons]
    both = [(f"{kind} {measure}", measure) for measure in measured for kind in ("p (t)", "d")]
    return [*((measure, measure) for measure in results.measures), *both]


def legend(results: Results) -> str:
    """Explain the marks and the columns in one line."""
    n, measured = len(results.comparisons), [measure for measure in DETAILED if measure in results.measures]
    if not n:
        return f"{results.n_queries} queries."
    meaning = (
        f"{results.n_queries} queries. † p < 0.05, ‡ p < 0.01 against {results.baseline}, in both the paired t-test "
        f"and the randomisation test, Bonferroni-corrected for {n} comparison{'' if n == 1 else 's'}."
    )
    details = (
        f" p (t) is the corrected t-test's on {' and '.join(measured)}; d is Cohen's effect size there, the "
        "mean difference over the standard deviation of the differences (– where they are all the same)."
    )
    return meaning + details * bool(measured)


def markdown(results: Results) -> str:
    """Return the table in Markdown with its legend; the best of each measure is bold."""
    columns = columns_of(results)
    lines = [f"| ranker | {' | '.join(title for title, _ in columns)} |", "| --- |" + " ---: |" * len(columns)]
    for name in results.values:
        lines.append(f"| {name} | {' | '.join(each.shown('**', '**') for each in cells(results, name, columns))} |")
    return "\n".join([*lines, "", legend(results)])


def print_table(console: Console, results: Results, title: str) -> None:
    """Print the table; on a narrow terminal, its columns are split into several tables."""
    unbounded = console.options.update(width=1000)  # else the measure is cut to the console's own width
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
        table.add_row(Text(clean(ranker)), *(each.shown("[bold]", "[/]") for each in cells(results, ranker, columns)))
    return table


def cells(results: Results, ranker: str, columns: Sequence[tuple[str, str]]) -> list[Cell]:
    """Return a ranker's cells: averages with significance marks, then p and d."""
    means = {name: averages(values) for name, values in results.values.items()}
    found = []
    for title, measure in columns:
        compared = results.comparisons.get(ranker, {}).get(measure)
        if title == measure:
            value = means[ranker][measure]
            p = 1.0 if compared is None else compared.p
            marks = "‡" if p < 0.01 else "†" if p < 0.05 else ""
            found.append(Cell(f"{value:.4f}", value, marks, value == max(other[measure] for other in means.values())))
        elif compared is None:
            found.append(Cell("", None))
        elif title.startswith("p "):
            found.append(Cell("<0.0001" if compared.p_t < 0.0001 else f"{compared.p_t:.4f}", compared.p_t))
        else:
            d = compared.effect_size
            found.append(Cell("–" if d is None else f"{d:z.2f}", d))
    return found
