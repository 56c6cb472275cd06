"""What runs find: recall against cut-off, found sets, which paragraph finds which. Figures 2 to 4 of the PARM paper.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, sections 5.2 and 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.drawing import draw_heatmap, draw_lines
from haybale.errors import InputError
from haybale.evaluation.measures import ranks_of, relevant_pairs
from haybale.frames import Frame
from haybale.retrieval import Hits, Run
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import DEPTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CUTOFFS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
LATER = "later"


def recall_curves(runs: Mapping[str, Run], qrels: Frame, cutoffs: Sequence[int] | None = None) -> pd.DataFrame:
    """Mean recall at cut-offs, over the queries that :func:`evaluate` counts.

    Parameters
    ----------
    runs : mapping of str to Run
    qrels : frame
        As for :func:`evaluate`.
    cutoffs : sequence of int, optional
        At least 1. Default: 1, 2, 5, 10 … 1000, as far as the longest ranking of the runs goes.

    Returns
    -------
    DataFrame, (n_cutoffs, n_runs) float64
        Index ``cutoff``, rising, and a column a run.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["a", "z"], "relevance": [1, 1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [1.0, 2.0]}))
    >>> recall_curves({"bm25": run}, qrels)["bm25"].to_dict()
    {1: 0.0, 2: 0.5}
    """
    if not runs:
        raise InputError("recall curves: no run was given")
    if cutoffs is None:
        deepest = max(run.to_frame()["rank"].to_numpy().max(initial=1) for run in runs.values())
        cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= deepest]
    if not len(cutoffs) or min(cutoffs) < 1:
        raise InputError(f"recall curves: cut-offs must be 1 or more; found {list(cutoffs)}")
    at = np.unique(np.asarray(cutoffs, dtype=np.int64))
    pairs = relevant_pairs(qrels)
    of_query = pairs.groupby("query_id")["doc_id"].transform("size").to_numpy()
    worth = 1 / (of_query * pairs["query_id"].nunique())  # what finding a pair adds to the mean
    curves = {}
    for name, run in runs.items():
        ranks = ranks_of(run, pairs).to_numpy()
        order = np.argsort(ranks)
        found = np.concatenate(([0.0], np.cumsum(worth[order])))
        curves[name] = found[np.searchsorted(ranks[order], at, side="right")]
    return pd.DataFrame(curves, index=pd.Index(at, name="cutoff"))


def plot_recall(curves: pd.DataFrame, path: Path | str | None = None) -> Figure:
    """The frame of :func:`recall_curves` as lines; saved to ``path`` (.svg, .png or .pdf) where one is given."""
    return draw_lines(
        {str(name): (curves.index.to_numpy(), curves[name].to_numpy()) for name in curves.columns},
        title="Recall at cut-offs",
        x_label="cut-off",
        y_label="recall",
        path=path,
        log_x=True,
    )


@dataclass(frozen=True)
class FoundSets:
    """The relevant pairs of query and document, and which of two runs has each among its first ``k`` documents.

    ``pairs``: a row a pair, columns ``query_id``, ``doc_id``, ``found_by`` (``"both"``, ``"a"``: a alone,
    ``"b"``: b alone, or ``"none"``), ``rank_a`` and ``rank_b`` (from 1; missing where not found).
    """

    pairs: pd.DataFrame
    k: int

    @property
    def counts(self) -> dict[str, int]:
        """The number of pairs by ``found_by``: a, both, b, none; together, all relevant pairs."""
        found = self.pairs["found_by"].value_counts()
        return {by: int(found.get(by, 0)) for by in ("a", "both", "b", "none")}


def found_sets(a: Run, b: Run, qrels: Frame, k: int = DEPTH) -> FoundSets:
    """Compare what two runs find of the relevant pairs of ``qrels``, in the first ``k`` documents of each ranking.

    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["x", "y", "z"], "relevance": [1, 1, 1]})
    >>> one = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["x", "y"], "score": [2.0, 1.0]}))
    >>> other = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["w", "y"], "score": [2.0, 1.0]}))
    >>> found_sets(one, other, qrels).counts
    {'a': 1, 'both': 1, 'b': 0, 'none': 1}
    """
    if k < 1:
        raise InputError(f"found sets: k must be 1 or more; found {k}")
    pairs = relevant_pairs(qrels)
    ranks = {name: ranks_of(run, pairs) for name, run in (("rank_a", a), ("rank_b", b))}
    ranks = {name: rank.where(rank <= k).astype("Int64") for name, rank in ranks.items()}
    by_a, by_b = (rank.notna().to_numpy() for rank in ranks.values())
    found_by = np.select([by_a & by_b, by_a, by_b], ["both", "a", "b"], "none")
    return FoundSets(pairs.assign(found_by=found_by, **ranks), k)


def found_table(columns: Mapping[str, FoundSets], names: tuple[str, str] = ("A", "B")) -> str:
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


@dataclass(frozen=True)
class ParagraphRelations:
    """How often query paragraphs (rows) retrieve paragraphs of relevant documents (columns), by position.

    ``counts`` (r, c) int64, hits; ``pairs`` (r, c) int64, how many pairs of a query paragraph and a paragraph of a
    document relevant to the query there are, retrieved or not.
    """

    counts: Ints
    pairs: Ints
    rows: list[str]
    columns: list[str]

    @property
    def rates(self) -> NDArray[np.float64]:
        """(r, c) the share of the pairs that are hits, from 0 to 1; NaN where there is no pair."""
        rates = np.full(self.counts.shape, np.nan)
        np.divide(self.counts, self.pairs, out=rates, where=self.pairs > 0)
        return rates

    def to_frame(self, normalize: bool = False) -> pd.DataFrame:
        """The counts, or with ``normalize`` the rates, with the names of rows and columns."""
        index, columns = pd.Index(self.rows, name="query"), pd.Index(self.columns, name="document")
        return pd.DataFrame(self.rates if normalize else self.counts, index=index, columns=columns)

    def plot(self, path: Path | str | None = None, normalize: bool = False, title: str = "") -> Figure:
        """The frame as a heatmap; saved to ``path`` (.svg, .png or .pdf) where one is given."""
        return draw_heatmap(
            self.rates if normalize else self.counts,
            self.rows,
            self.columns,
            title=title,
            x_label="paragraph of a relevant document",
            y_label="paragraph of the query",
            value_label="share retrieved" if normalize else "hits",
            path=path,
        )


def paragraph_relations(
    hits: Hits, offsets: Ints, doc_offsets: Ints, relevant: tuple[Ints, Ints], *, size: int = 12
) -> ParagraphRelations:
    """Count the hits on relevant documents by the place of the paragraph in the query and in the document.

    Parameters
    ----------
    hits : Hits, (n_paragraphs, n_hits)
    offsets : (n_queries + 1,) int
        Query j has the rows ``offsets[j]:offsets[j + 1]`` of ``hits``.
    doc_offsets : (n_documents + 1,) int
        Where documents begin among the passages.
    relevant : (query rows, document numbers), each (n,) int
        As :meth:`Split.relevant_rows` gives them.
    size : int, default 12
        So many positions, from 0, have a row or column of their own, all others together the last, ``later``.

    Examples
    --------
    >>> hits = Hits(np.array([[0, 2], [1, -1]]), np.array([[2.0, 1.0], [1.0, -np.inf]], dtype=np.float32))
    >>> found = paragraph_relations(hits, np.array([0, 2]), np.array([0, 2, 3]), (np.array([0]), np.array([0])))
    >>> found.to_frame()
    document  0  1
    query
    0         1  0
    1         0  1
    """
    offsets, doc_offsets = np.asarray(offsets, dtype=np.int64), np.asarray(doc_offsets, dtype=np.int64)
    queries, documents = (np.asarray(part, dtype=np.int64) for part in relevant)
    if size < 1:
        raise InputError(f"size must be 1 or more; found {size}")
    if offsets[0] != 0 or offsets[-1] != len(hits) or (np.diff(offsets) < 0).any():
        raise InputError(f"offsets must rise from 0 to the number of rows of hits, {len(hits)}")
    if doc_offsets[0] != 0 or (np.diff(doc_offsets) < 0).any():
        raise InputError("doc_offsets must rise from 0 to the number of passages")
    for what, numbers, first, n in (
        ("hits: passage", hits.passages, -1, doc_offsets[-1]),
        ("relevant: query row", queries, 0, len(offsets) - 1),
        ("relevant: document", documents, 0, len(doc_offsets) - 1),
    ):
        outside = numbers[(numbers < first) | (numbers >= n)]
        if len(outside):
            raise InputError(f"{what} {outside[0]} is not among the {n} there are")
    (rows, row_of), (columns, column_of) = (_positions(each, size) for each in (offsets, doc_offsets))
    shape = len(rows), len(columns)
    counts, pairs = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    wanted = np.zeros(doc_offsets[-1] + 1, dtype=np.bool_)  # by passage; the last is the padding's
    queries, documents = np.unique(np.stack([queries, documents]), axis=1)
    names, starts = np.unique(queries, return_index=True)
    for query, of_query in zip(names, np.split(documents, starts[1:]), strict=False):  # without any, one empty part
        paragraphs = slice(*offsets[query : query + 2])
        passages = np.concatenate([np.arange(*doc_offsets[document : document + 2]) for document in of_query])
        wanted[passages] = True
        row, rank = np.nonzero(wanted[hits.passages[paragraphs]])
        found = hits.passages[paragraphs][row, rank]
        np.add.at(counts, (row_of[paragraphs][row], column_of[found]), 1)
        in_rows = np.bincount(row_of[paragraphs], minlength=shape[0])
        pairs += np.outer(in_rows, np.bincount(column_of[passages], minlength=shape[1]))
        wanted[passages] = False
    return ParagraphRelations(counts, pairs, rows, columns)


def _positions(offsets: Ints, size: int) -> tuple[list[str], Ints]:
    """The names of the positions, and (n,) that of each paragraph; from ``size`` on all are one."""
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    n = int(np.diff(offsets).max(initial=0))
    return [*map(str, range(min(n, size))), *([LATER] if n > size else [])], np.minimum(positions, size)
