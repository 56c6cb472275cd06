"""Evaluate an encoder during its training, by PARM on held-out queries and a part of the collection."""

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
    """Held-out judged queries, and the part of the collection that PARM (VRRF) searches for them.

    Parameters
    ----------
    training : Training
        The held-out queries.
    n_passages : int or None
        The largest number of passages to search: those of all relevant documents, and those of other documents drawn at
        random. None: the whole collection.
    random_state : int, optional
        Seed of the sample of documents.
    """

    def __init__(self, training: Training, n_passages: int | None, random_state: int | None) -> None:
        whole = training.batch.engine.collection
        kept = _sampled_documents(whole, training, n_passages, random_state)
        self.collection = whole.take(kept)
        new_number = np.full(whole.n_documents + 1, -1)
        new_number[kept] = np.arange(len(kept))
        queries = training.batch.queries
        self.queries = replace(queries, own=new_number[queries.own])
        columns = {"query_id": training.batch.ids, "doc_id": training.relevant, "relevance": 1}
        self.qrels = pd.DataFrame(columns).explode("doc_id").dropna()

    def evaluate(self, encoder: Any) -> dict[str, float]:
        """Return the :data:`MEASURES` of an encoder."""
        run = PARM("vrrf").fit(Engine(self.collection, encoder=encoder)).rank(self.queries)
        means = evaluate(run, self.qrels, MEASURES).mean()
        return {measure: float(means[measure]) for measure in MEASURES}


def _sampled_documents(whole: Collection, training: Training, n_passages: int | None, random_state: int | None) -> Ints:
    """Return the numbers of the documents to search, in ascending order."""
    if n_passages is None:
        return np.arange(whole.n_documents)
    lengths = np.diff(whole.passages.doc_offsets)
    relevant = whole.document_numbers({doc for ids in training.relevant for doc in ids})
    others = np.setdiff1d(np.flatnonzero(lengths > 0), relevant)
    others = np.random.default_rng(random_state).permutation(others)
    room = n_passages - int(lengths[relevant].sum())
    return np.sort(np.concatenate([relevant, others[np.cumsum(lengths[others]) <= room]]))
