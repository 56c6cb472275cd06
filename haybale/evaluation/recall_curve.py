"""Recall against cut-off, for several runs: figure 2 of the PARM paper.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from haybale.drawing import draw_lines
from haybale.errors import InputError
from haybale.evaluation.relevant_pairs import ranks_of, relevant_pairs
from haybale.frames import Frame
from haybale.retrieval import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CUTOFFS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def recall_curves(runs: Mapping[str, Run], qrels: Frame, cutoffs: Sequence[int] | None = None) -> pd.DataFrame:
    """Mean recall (n_cutoffs, n_runs): index ``cutoff``, rising, and a column a run.

    ``qrels`` as for :func:`evaluate`, and the same queries count: those with a relevant document, with 0 where a
    run has nothing for them. ``cutoffs`` (default: 1, 2, 5, 10 … 1000, as far as the longest ranking of the
    runs goes) are at least 1.

    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["a", "z"], "relevance": [1, 1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [1.0, 2.0]}))
    >>> recall_curves({"bm25": run}, qrels)
            bm25
    cutoff
    1        0.0
    2        0.5
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
