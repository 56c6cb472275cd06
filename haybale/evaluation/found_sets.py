"""Which relevant documents two runs find, both, one alone, or neither: figure 3 of the PARM paper.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from haybale.drawing import draw_bars
from haybale.errors import InputError
from haybale.evaluation.relevant_pairs import ranks_of, relevant_pairs
from haybale.frames import Frame
from haybale.retrieval import Run
from haybale.retrieval.run import DEPTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("A", "B")


@dataclass(frozen=True)
class FoundSets:
    """The relevant pairs of query and document, and which of two runs has each among its first documents.

    ``pairs``: a row a pair, columns ``query_id``, ``doc_id``, ``found_by`` (``"both"``, ``"a"``: a alone,
    ``"b"``: b alone, or ``"none"``), ``rank_a`` and ``rank_b`` (from 1; missing where not found).
    """

    pairs: pd.DataFrame
    depth: int  # documents of a ranking that count

    @property
    def counts(self) -> dict[str, int]:
        """The number of pairs by ``found_by``: a, both, b, none; together, all relevant pairs."""
        found = self.pairs["found_by"].value_counts()
        return {by: int(found.get(by, 0)) for by in ("a", "both", "b", "none")}

    def markdown(self, names: tuple[str, str] = NAMES, column: str = "relevant documents") -> str:
        """The table of :func:`found_table` with one column."""
        return found_table({column: self}, names)

    def plot(self, names: tuple[str, str] = NAMES, path: Path | str | None = None) -> Figure:
        """The figure of :func:`plot_found` with one bar."""
        return plot_found({"": self}, names, path)


def found_sets(a: Run, b: Run, qrels: Frame, depth: int = DEPTH) -> FoundSets:
    """Compare what two runs find of the relevant pairs, in the first ``depth`` documents of each ranking.

    ``qrels`` as for :func:`evaluate`. The rows keep their order.

    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["x", "y", "z"], "relevance": [1, 1, 1]})
    >>> one = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["x", "y"], "score": [2.0, 1.0]}))
    >>> other = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["w", "y"], "score": [2.0, 1.0]}))
    >>> found_sets(one, other, qrels).counts
    {'a': 1, 'both': 1, 'b': 0, 'none': 1}
    """
    if depth < 1:
        raise InputError(f"found sets: depth must be 1 or more; found {depth}")
    pairs = relevant_pairs(qrels)
    ranks = {name: ranks_of(run, pairs) for name, run in (("rank_a", a), ("rank_b", b))}
    ranks = {name: rank.where(rank <= depth).astype("Int64") for name, rank in ranks.items()}
    by_a, by_b = (rank.notna().to_numpy() for rank in ranks.values())
    found_by = np.select([by_a & by_b, by_a, by_b], ["both", "a", "b"], "none")
    return FoundSets(pairs.assign(found_by=found_by, **ranks), depth)


def found_table(columns: Mapping[str, FoundSets], names: tuple[str, str] = NAMES) -> str:
    """Several comparisons side by side, in Markdown: how many relevant pairs there are, and how many each set has.

    ``names`` are those of the two runs, the same in every comparison.
    """
    a, b = names
    counts = [sets.counts for sets in columns.values()]
    rows = {
        "relevant": [sum(n.values()) for n in counts],
        a: [n["a"] + n["both"] for n in counts],
        b: [n["b"] + n["both"] for n in counts],
        f"{a} ∩ {b}": [n["both"] for n in counts],
        f"{a} ∖ {b}": [n["a"] for n in counts],
        f"{b} ∖ {a}": [n["b"] for n in counts],
    }
    lines = ["| | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | " + " | ".join(map(str, row)) + " |" for name, row in rows.items()]
    return "\n".join(lines)


def plot_found(
    columns: Mapping[str, FoundSets], names: tuple[str, str] = NAMES, path: Path | str | None = None
) -> Figure:
    """Several comparisons as bars: found by one alone, by both, by the other alone, by none.

    Saved to ``path`` (.svg, .png or .pdf) where one is given.
    """
    a, b = names
    segments = {"a": f"{a} only", "both": "both", "b": f"{b} only", "none": "neither"}
    depths = {sets.depth for sets in columns.values()}
    return draw_bars(
        {name: {segments[by]: n for by, n in sets.counts.items()} for name, sets in columns.items()},
        title=f"Relevant documents found by {a} and {b}",
        x_label="relevant documents" + (f" (found: among the first {depths.pop():,})" if len(depths) == 1 else ""),
        path=path,
    )
