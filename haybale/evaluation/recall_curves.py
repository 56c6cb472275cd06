"""Mean recall at rising cut-offs, as in figure 2 of the PARM paper; ``haybale.drawing`` draws the curves.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from haybale.collections.collection import whole_numbers
from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.frames import Frame
from haybale.retrieval import Run

CUTOFFS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def recall_curves(runs: Mapping[str, Run], qrels: Frame, cutoffs: Sequence[int] | None = None) -> pd.DataFrame:
    """Return the mean recall at cut-offs, over the queries that :func:`evaluate` evaluates.

    Parameters
    ----------
    runs : mapping of str to Run
        Runs by name.
    qrels : frame
        Judgements as for :func:`evaluate`.
    cutoffs : sequence of int, optional
        Numbers from 1. Default: 1, 2, 5, 10 … 1000, up to the length of the longest ranking.

    Returns
    -------
    DataFrame, (n_cutoffs, n_runs) float64
        A column for each run, and the ascending index ``cutoff``.

    Raises
    ------
    InputError
        If there is no run or no relevant document, or for a cut-off below 1.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": "q", "doc_id": ["a", "z"], "relevance": [1, 1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [1.0, 2.0]}))
    >>> recall_curves({"bm25": run}, qrels)["bm25"].to_dict()
    {1: 0.0, 2: 0.5}
    """
    if not runs:
        raise InputError(f"runs must have at least one run, found {runs!r}")
    ranked = {name: run.to_frame()[["query_id", "doc_id", "rank"]] for name, run in runs.items()}
    if cutoffs is None:
        deepest = max(frame["rank"].to_numpy().max(initial=1) for frame in ranked.values())
        cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= deepest]
    if not len(cutoffs) or min(cutoffs) < 1:
        raise InputError(f"cutoffs must be 1 or more, found {list(cutoffs)}")
    judged, at = judgements(qrels), np.unique(whole_numbers(cutoffs, "cutoffs"))
    pairs = judged.loc[judged["relevance"] > 0, ["query_id", "doc_id"]].drop_duplicates(ignore_index=True)
    if pairs.empty:
        raise InputError("qrels must have a 'relevance' above 0, found none")
    curves = pd.DataFrame(index=pd.Index(at, name="cutoff"))
    for name, frame in ranked.items():
        rank = pairs.merge(frame, how="left", on=["query_id", "doc_id"])["rank"].astype(float)  # NaN: not in the run
        curves[name] = [(rank <= cutoff).groupby(pairs["query_id"]).mean().mean() for cutoff in at]
    return curves
