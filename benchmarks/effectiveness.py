"""What the benchmarks of effectiveness share: a collection under one encoder, tuned BM25, groups of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from provenance import split_batch

from haybale import Collection, Engine, Ranker, Run, tune_bm25
from haybale.evaluation import Tuned
from haybale.rankers import Training

UNSEEN_SHARE = "unseen_share"  # the parameter of Learned: the share of the loss for unseen queries
SEARCHES = "bm25,bm25-doc,knn,knn-doc,parm-rrf,parm-vrrf"
BEST = f"learned({SEARCHES},bm25-weighted,knn-queries,svr)"  # the default of Learned without BM25 for long queries
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # Learned selects one of them
SPLITS, DEPTH = ("dev", "test"), 1000
AIMED = {"gesetze": "MRR@10"}  # the measure of the first table; nDCG@10 for the other collections


class Space:
    """A collection under one encoder with its training queries and those of each split; rankers share its searches."""

    def __init__(self, collection: Collection, encoder: str) -> None:
        engine = Engine(collection, encoder=encoder)
        self.training = Training.of(engine)
        self.batches = {split: split_batch(engine, split) for split in SPLITS}

    def runs(self, ranker: Ranker) -> dict[str, Run]:
        """Return the ranker's run of each split, fitted on the training queries."""
        fitted = ranker._fitted_copy(self.training)
        return {split: fitted.run(batch, DEPTH) for split, batch in self.batches.items()}


def described(collection: Collection) -> dict[str, Any]:
    """Return the name and the sizes of a collection."""
    return {
        "name": collection.name,
        "documents": collection.n_documents,
        "passages": collection.n_passages,
        "queries": {split: len(part.queries) for split, part in collection.splits.items()},
    }


def tuned_bm25(collection: Collection) -> dict[str, Tuned]:
    """Tune BM25 over passages and over documents."""
    return {unit: tune_bm25(collection, unit) for unit in ("passage", "document")}


def parameters(tuned: Mapping[str, Tuned]) -> dict[str, Any]:
    """Return the best parameters on dev, named as ``set_all`` takes them."""
    return {
        f"{ranker}.{parameter}": value
        for ranker, unit in (("bm25", "passage"), ("bm25-doc", "document"))
        for parameter, value in zip(("k1", "b", "k3"), tuned[unit].best[:3], strict=True)
    }


def by_relevant(
    collection: Collection, split: str, training: Sequence[Sequence[str]] | None = None
) -> dict[str, np.ndarray]:
    """Return masks (n,) of queries all, some or none of whose relevant documents were relevant to a training query.

    ``training``: the relevant documents of the training queries; default those of the split ``train``.
    """
    known = {doc for ids in training or collection.relevant_ids("train") for doc in ids}
    relevant = collection.relevant_ids(split)
    share = np.array([np.mean([doc in known for doc in ids]) if ids else np.nan for ids in relevant])
    return {"all seen": share == 1, "some seen": (share > 0) & (share < 1), "none seen": share == 0}
