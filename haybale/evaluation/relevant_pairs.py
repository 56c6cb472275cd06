"""The relevant pairs of query and document, and at which rank a run has each."""

from __future__ import annotations

import pandas as pd

from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.frames import Frame
from haybale.retrieval import Run


def relevant_pairs(qrels: Frame) -> pd.DataFrame:
    """Columns ``query_id`` and ``doc_id``, both strings; a row a pair with relevance above 0, in the order of qrels."""
    judged = judgements(qrels)
    pairs = judged.loc[judged["relevance"] > 0, ["query_id", "doc_id"]].drop_duplicates(ignore_index=True)
    if pairs.empty:
        raise InputError("qrels hold no relevant document: nothing can be measured")
    return pairs


def ranks_of(run: Run, pairs: pd.DataFrame) -> pd.Series:
    """(n_pairs,) the rank, from 1, of each pair in the run, in the order of ``pairs``; infinity where it is absent.

    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [1.0, 2.0]}))
    >>> ranks_of(run, pd.DataFrame({"query_id": "q", "doc_id": ["a", "z"]})).tolist()
    [2.0, inf]
    """
    ranked = run.to_frame()[["query_id", "doc_id", "rank"]]
    return pairs.merge(ranked, how="left", on=["query_id", "doc_id"])["rank"].astype(float).fillna(float("inf"))
