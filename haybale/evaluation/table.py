"""Results of several rankers and their table: rows of rankers, columns of measures, marks of significant differences.

The table is printed, or is Markdown, HTML or LaTeX, or a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haybale.cached import cached_property
from haybale.collections.ids import distinct_ids
from haybale.drawing import clean
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation.intervals import intervals_of_rankers
from haybale.evaluation.latex_table import LATEX_RANGES, caption, chosen_measures, latex_table
from haybale.evaluation.measures import averages, values_by_query
from haybale.evaluation.significance import Comparison, paired_tests
from haybale.frames import Frame
from haybale.parameters import BOOLEAN, check_parameters

DETAILED = ("MRR@10", "nDCG@10")  # measures with columns for the p-value and the effect size


@dataclass(frozen=True)
class Results:
    """Frames of :func:`evaluate` by ranker, and their comparisons with the baseline. A notebook shows the table."""

    values: dict[str, pd.DataFrame]
    baseline: str
    comparisons: dict[str, dict[str, Comparison]]  # ranker -> measure -> comparison; the baseline has none

    @property
    def measures(self) -> list[str]:
        return list(self.values[self.baseline].columns)

    @property
    def n_queries(self) -> int:
        return len(self.values[self.baseline])

    @cached_property
    def intervals(self) -> dict[str, dict[str, tuple[float, float]]]:
        """The 95 % interval of each mean by ranker and measure, as :func:`~haybale.evaluation.intervals` finds it."""
        return intervals_of_rankers(self.values)

    def to_dict(self) -> dict[str, object]:
        """Return averages, intervals, p-values and effect sizes, for JSON."""
        return {
            name: {
                "measures": averages(table),
                "intervals": {measure: list(bounds) for measure, bounds in self.intervals[name].items()},
                "against_baseline": {m: vars(c) for m, c in self.comparisons.get(name, {}).items()},
            }
            for name, table in self.values.items()
        }

    def to_frame(self, *, per_query: bool = False) -> pd.DataFrame:
        """Return the table as a frame with a column ``ranker`` and one for each measure.

        Parameters
        ----------
        per_query : bool, default False
            By default there is a row for each ranker with the means over the queries; behind the measures there are
            columns such as ``low nDCG@10`` and ``high nDCG@10``, the ends of the 95 % interval, ``p nDCG@10``, the
            larger corrected p-value of both tests, and ``d nDCG@10``, the effect size; p and d are NaN for the
            baseline. If true, there is a row for each ranker and query, with the values of
            the query, whose id is in a column ``query_id``.
        """
        check_parameters("to_frame", {"per_query": per_query}, {"per_query": BOOLEAN})
        if per_query:
            tables = [table.reset_index(names="query_id") for table in self.values.values()]
            ranker = np.repeat(np.array(list(self.values), dtype=object), self.n_queries)
            frame = pd.concat([table[["query_id", *self.measures]] for table in tables], ignore_index=True)
            frame.insert(0, "ranker", ranker)
            return frame
        rows = []
        for name, table in self.values.items():
            means, row = averages(table), dict[str, object]({"ranker": name})
            row |= {measure: means[measure] for measure in self.measures}
            for measure, (low, high) in self.intervals[name].items():
                row |= {f"low {measure}": low, f"high {measure}": high}
            for measure, compared in self.comparisons.get(name, {}).items():
                d = compared.effect_size
                row |= {f"p {measure}": compared.p, f"d {measure}": np.nan if d is None else d}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_latex(
        self, measures: Sequence[str] | None = None, *, title: str | None = None, label: str | None = None
    ) -> str:
        """Return the table for a paper, in LaTeX with the rules of the package booktabs.

        The best value of each measure is bold, and the caption explains the marks of significant differences. Texts are
        escaped, so that any ranker name compiles; names with letters that are not Latin need XeLaTeX or LuaLaTeX.

        Parameters
        ----------
        measures : sequence of str, optional
            The measures to show, in this order. Default: all.
        title : str, optional
            The first sentence of the caption, such as the name of the collection. Default: none.
        label : str, optional
            The label of the table, for references to it, such as ``"tab:results"``. Default: none.

        Raises
        ------
        UnknownNameError
            If the results lack a measure.
        """
        values = {"measures": measures, "title": title, "label": label}
        check_parameters("to_latex", values, LATEX_RANGES)
        measures = chosen_measures(self.measures if measures is None else measures, self.measures)
        columns = [(measure, measure) for measure in measures]
        rows = {
            name: [(cell.text, cell.marks, cell.best) for cell in cells(self, name, columns)] for name in self.values
        }
        return latex_table(measures, rows, caption(title, self.n_queries, self.baseline, len(rows) - 1), label)

    def __repr__(self) -> str:
        return f"Results of {len(self.values)} rankers for {self.n_queries:,} queries"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return html_table_of(self, f"Means over {self.n_queries:,} queries")


def results(values: dict[str, Frame], baseline: str) -> Results:
    """Compare every ranker with the baseline on every measure.

    Values of the same query are compared, whatever the order of the rows.

    Parameters
    ----------
    values : dict of str to frame
        Results of :func:`evaluate` by ranker, for the same queries: frames of pandas or cuDF, or tables of pyarrow. The
        results have the query order of the baseline.
    baseline : str
        The ranker that the others are compared with. The Bonferroni factor is the number of other rankers.

    Raises
    ------
    InputError
        If ``values`` lack the baseline, if a ranker has other queries or lacks a measure of the baseline, or if a query
        occurs twice.
    """
    if baseline not in values:
        raise UnknownNameError("baseline", baseline, values)
    tables = _for_the_same_queries({name: values_by_query(table) for name, table in values.items()}, baseline)
    others = [name for name in tables if name != baseline]

    def compared(name: str, measure: str) -> Comparison:
        ours, theirs = (tables[ranker][measure].to_numpy() for ranker in (name, baseline))
        return paired_tests(ours, theirs, n_comparisons=len(others))

    measures = tables[baseline].columns
    return Results(
        tables, baseline, {name: {measure: compared(name, measure) for measure in measures} for name in others}
    )


def _for_the_same_queries(tables: dict[str, pd.DataFrame], baseline: str) -> dict[str, pd.DataFrame]:
    """Return the tables with their rows in the order of the baseline's queries."""
    ids = {name: distinct_ids(table.index.tolist(), f"results of {name}: query ids") for name, table in tables.items()}
    wanted, ordered = ids[baseline], {}
    for name, table in tables.items():
        if unshared := set(ids[name]) ^ set(wanted):
            first = min(unshared)
            where = f"only {name if first in ids[name] else baseline} has {first!r}"
            raise InputError(
                f"results of {name}: expected the queries of {baseline}, but {where}; give both the same ones"
            )
        if lacking := [measure for measure in tables[baseline].columns if measure not in table.columns]:
            columns = ", ".join(map(str, table.columns))
            raise InputError(
                f"results of {name}: expected the measure {lacking[0]!r} of {baseline}, found {columns}; add it"
            )
        row_of = {query: row for row, query in enumerate(ids[name])}
        same = ids[name] == wanted
        ordered[name] = table if same else table.iloc[[row_of[query] for query in wanted]]
    return ordered


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


def html_table_of(results: Results, caption: str) -> str:
    """Return the table with a caption and its legend as HTML; texts are escaped, the best of a measure is bold."""
    columns = columns_of(results)
    head = "".join(f"<th>{_html(title)}</th>" for title in ("ranker", *(title for title, _ in columns)))
    body = ""
    for name in results.values:
        shown = [cell._replace(text=escape(cell.text)).shown("<b>", "</b>") for cell in cells(results, name, columns)]
        body += f"<tr><th>{_html(name)}</th>{''.join(f'<td>{text}</td>' for text in shown)}</tr>"
    table = f"<table><caption>{_html(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{table}<p><small>{_html(legend(results))}</small></p></div>"


def _html(text: str) -> str:
    return escape(clean(text))


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
