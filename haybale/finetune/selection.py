"""How good an encoder is while it is trained: PARM over a part of the collection, for queries that were set aside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from haybale.collections import Collection
from haybale.engine import Engine
from haybale.evaluation import evaluate
from haybale.rankers import PARM, Training
from haybale.retrieval.hits import Ints

MEASURES = ("Recall@100", "nDCG@10")


class Selection:
    """Judged queries, and the documents among which PARM (VRRF) shall find theirs.

    Parameters
    ----------
    training : Training
        The queries that were set aside.
    n_passages : int or None
        All documents that are relevant to them, and others drawn at random until there are so many passages; None: all
        documents.
    random_state : int, optional
    """

    def __init__(self, training: Training, n_passages: int | None, random_state: int | None) -> None:
        whole = training.batch.engine.collection
        kept = _thinned(whole, training, n_passages, random_state)
        self.collection = whole.take(kept)
        place = np.full(whole.n_documents + 1, -1)
        place[kept] = np.arange(len(kept))
        queries = training.batch.queries
        self.queries = replace(queries, own=place[queries.own])
        columns = {"query_id": training.batch.ids, "doc_id": training.relevant, "relevance": 1}
        self.qrels = pd.DataFrame(columns).explode("doc_id").dropna()

    def measured(self, encoder: Any) -> dict[str, float]:
        """:data:`MEASURES` of an encoder."""
        run = PARM("vrrf").fit(Engine(self.collection, encoder=encoder)).rank(self.queries)
        found = evaluate(run, self.qrels, MEASURES).mean()
        return {measure: float(found[measure]) for measure in MEASURES}


def _thinned(whole: Collection, training: Training, n_passages: int | None, random_state: int | None) -> Ints:
    """The documents that are kept, rising."""
    lengths = np.diff(whole.passages.doc_offsets)
    if n_passages is None:
        return np.arange(whole.n_documents)
    needed = whole.document_numbers({doc for ids in training.relevant for doc in ids})
    others = np.setdiff1d(np.flatnonzero(lengths > 0), needed)
    others = np.random.default_rng(random_state).permutation(others)
    room = n_passages - int(lengths[needed].sum())
    return np.sort(np.concatenate([needed, others[np.cumsum(lengths[others]) <= room]]))
