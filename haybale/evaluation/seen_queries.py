"""Measures of queries whose relevant documents were relevant to training queries, and of the others.

A ranker that learns which documents are relevant remembers those of its training queries. If most queries of a split
have only such documents, its mean says little about queries for which other documents are relevant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haybale.drawing import clean
from haybale.evaluation.measures import averages

SEEN, PARTLY_SEEN, UNSEEN = "seen", "partly seen", "unseen"
NO_TEXT = "no text"  # the row of the ranker that reads no text


@dataclass(frozen=True)
class SeenQueries:
    """The measured queries of a split in three groups, with the averages of each ranker in each group.

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
    def of(cls, values: Mapping[str, pd.DataFrame], qrels: pd.DataFrame, trained: Iterable[str]) -> SeenQueries:
        """Group the queries of measures.

        Parameters
        ----------
        values : dict of str to frame
            The measures by ranker, as :func:`~haybale.evaluate` returns them for the same queries.
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
        return cls(
            groups,
            {
                ranker: {name: averages(table.loc[queries]) for name, queries in groups.items() if queries}
                for ranker, table in values.items()
            },
        )

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
        names = [name for name, queries in self.groups.items() if queries]
        header = ["ranker", *(f"{measure}, {name} ({len(self.groups[name]):,})" for name in names)]
        rows = [
            [ranker, *(f"{groups[name][measure]:.4f}" for name in names)] for ranker, groups in self.averages.items()
        ]
        return header, rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the number and the share of each group, and the averages of the rankers."""
        counts = {
            name: {"queries": len(queries), "share": len(queries) / self.n_queries}
            for name, queries in self.groups.items()
        }
        return {"summary": self.summary(), "groups": counts, "rankers": self.averages}


def print_seen(console: Console, seen: SeenQueries, measure: str) -> None:
    """Print the table of a measure with the summary."""
    header, rows = seen.table(measure)
    table = Table(title=Text("\nSeen and unseen queries"), title_justify="left")
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
