"""Measures of queries whose relevant documents were relevant to training queries, and of the others.

A ranker that learns which documents are relevant remembers those of its training queries. If most queries of a split
have only such documents, its mean says little about queries for which other documents are relevant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haybale.drawing import clean
from haybale.evaluation.latex_table import (
    LATEX_RANGES,
    chosen_measures,
    escaped,
    first_sentence,
    latex_table,
)
from haybale.evaluation.measures import averages, evaluate, is_ratio, main_measure
from haybale.parameters import check_parameters
from haybale.retrieval import Run

SEEN, PARTLY_SEEN, UNSEEN = "seen", "partly seen", "unseen"
TITLE = "Seen and unseen queries"
NO_TEXT = "no text"  # the row of the ranker that reads no text


@dataclass(frozen=True)
class SeenQueries:
    """The measured queries of a split in three groups, with the averages of each ranker in each group.

    A notebook shows the table of nDCG@10, or of the first measure.

    A query is seen if all its relevant documents were relevant to a training query, unseen if none was, and partly seen
    otherwise.

    Parameters
    ----------
    groups : dict of str to list of str
        The ids of the queries of each group, in the order of the measures.
    averages : dict of str to dict
        By ranker, group and measure; a group without queries has none.
    """

    groups: dict[str, list[str]]
    averages: dict[str, dict[str, dict[str, float]]]

    @classmethod
    def of(
        cls, values: Mapping[str, pd.DataFrame], runs: Mapping[str, Run], qrels: pd.DataFrame, trained: Iterable[str]
    ) -> SeenQueries:
        """Group the queries of measures.

        Measures that divide sums over all queries, such as ``MicroF1``, are computed for the queries of each group: the
        values of single queries belong to the ratio of all.

        Parameters
        ----------
        values : dict of str to frame
            The measures by ranker, as :func:`~haybale.evaluate` returns them for the same queries.
        runs : dict of str to Run
            The run of each ranker, read for measures that divide sums.
        qrels : frame
            The judgements of the queries.
        trained : iterable of str
            The ids of the documents that were relevant to a training query.
        """
        relevant = qrels[qrels["relevance"] > 0].drop_duplicates(["query_id", "doc_id"])
        share = relevant["doc_id"].isin(set(trained)).groupby(relevant["query_id"]).mean()
        of_queries = next(iter(values.values())).index
        share = share.reindex(of_queries)
        names = np.where(share == 1, SEEN, np.where(share == 0, UNSEEN, PARTLY_SEEN))
        groups = {name: of_queries[names == name].tolist() for name in (SEEN, PARTLY_SEEN, UNSEEN)}
        ratios = [measure for measure in next(iter(values.values())).columns if is_ratio(measure)]

        def averages_of(ranker: str, queries: list[str]) -> dict[str, float]:
            means = averages(values[ranker].loc[queries])
            if ratios:
                means |= averages(evaluate(runs[ranker], qrels[qrels["query_id"].isin(queries)], ratios))
            return means

        return cls(
            groups,
            {
                ranker: {name: averages_of(ranker, queries) for name, queries in groups.items() if queries}
                for ranker in values
            },
        )

    @property
    def measures(self) -> list[str]:
        return list(next(iter(next(iter(self.averages.values())).values())))

    @property
    def group_of(self) -> dict[str, str]:
        """The group of each query, by its id."""
        return {query: name for name, queries in self.groups.items() for query in queries}

    @property
    def n_queries(self) -> int:
        return sum(map(len, self.groups.values()))

    def summary(self) -> str:
        """Return sentences with the numbers and shares of the groups."""
        n = self.n_queries
        counts = {name: f"{len(queries):,} ({len(queries) / n:.0%})" for name, queries in self.groups.items()}
        return (
            f"Of {n:,} queries, {counts[SEEN]} are seen: all their relevant documents were relevant to a training "
            f"query. {counts[PARTLY_SEEN]} are partly seen, and {counts[UNSEEN]} unseen: none was. The row "
            f"{NO_TEXT!r} ranks documents by the number of training queries to which they are relevant."
        )

    def table(self, measure: str) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of the averages of a measure, as texts."""
        header = ["ranker", *(f"{measure}, {name} ({len(self.groups[name]):,})" for name in self._names)]
        rows = [
            [ranker, *(f"{groups[name][measure]:.4f}" for name in self._names)]
            for ranker, groups in self.averages.items()
        ]
        return header, rows

    @property
    def _names(self) -> list[str]:
        return [name for name, queries in self.groups.items() if queries]

    def to_frame(self) -> pd.DataFrame:
        """Return the averages as a frame with a row for each ranker and each group that has queries.

        The columns are ``ranker``, ``group``, ``n_queries`` and the measures.
        """
        return pd.DataFrame(
            {"ranker": ranker, "group": name, "n_queries": len(self.groups[name]), **means}
            for ranker, groups in self.averages.items()
            for name, means in groups.items()
        )

    def to_latex(
        self, measures: Sequence[str] | None = None, *, title: str | None = None, label: str | None = None
    ) -> str:
        """Return the table in LaTeX, with a column for each measure in each group that has queries.

        Parameters
        ----------
        measures : sequence of str, optional
            The measures to show. Default: nDCG@10, or the first one if it was not measured.
        title, label : str, optional
            As for :meth:`Results.to_latex`.

        Raises
        ------
        UnknownNameError
            If the averages lack a measure.
        """
        check_parameters("to_latex", {"measures": measures, "title": title, "label": label}, LATEX_RANGES)
        measured = self.measures
        rows: dict[str, list[tuple[str, str, bool]]] = {ranker: [] for ranker in self.averages}
        heads = []
        for measure in chosen_measures([main_measure(measured)] if measures is None else measures, measured):
            head, texts = self.table(measure)
            heads += head[1:]
            best = [max(groups[name][measure] for groups in self.averages.values()) for name in self._names]
            for (ranker, *cells), groups in zip(texts, self.averages.values(), strict=True):
                is_best = [groups[name][measure] == value for name, value in zip(self._names, best, strict=True)]
                rows[ranker] += [(text, "", bold) for text, bold in zip(cells, is_best, strict=True)]
        sentences = [*first_sentence(title), escaped(self.summary()), "The best value of each column is bold."]
        return latex_table(heads, rows, " ".join(sentences), label)

    def _repr_html_(self) -> str:
        """Return the table of one measure with the summary, for notebooks."""
        header, rows = self.table(main_measure(self.measures))
        head = "".join(f"<th>{escape(text)}</th>" for text in header)
        body = "".join(
            f"<tr><th>{escape(clean(ranker))}</th>{''.join(f'<td>{text}</td>' for text in cells)}</tr>"
            for ranker, *cells in rows
        )
        table = f"<table><caption>{TITLE}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{table}<p><small>{escape(self.summary())}</small></p></div>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the number and the share of each group, and the averages of the rankers."""
        counts = {
            name: {"queries": len(queries), "share": len(queries) / self.n_queries}
            for name, queries in self.groups.items()
        }
        return {"summary": self.summary(), "groups": counts, "rankers": self.averages}


def print_seen(console: Console, seen: SeenQueries) -> None:
    """Print the table of one measure with the summary."""
    header, rows = seen.table(main_measure(seen.measures))
    table = Table(title=Text(f"\n{TITLE}"), title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console.print(table)
    console.print(Text(seen.summary()), soft_wrap=True)


def markdown_of(seen: SeenQueries, measures: Sequence[str]) -> str:
    """Return the summary, and a table in Markdown for each of the measures."""
    parts = [seen.summary()]
    for measure in measures:
        header, rows = seen.table(measure)
        lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts)
