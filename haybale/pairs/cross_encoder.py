"""The ranker ``cross-encoder``: a transformer reads a paragraph of the query and one of the document together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from haybale.embeddings.lineage import first_unseen, queries_of_model
from haybale.pairs.best_pairs import BestPairs, Scores
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs
from haybale.parameters import SEQUENCE
from haybale.rankers.reranker import Reranker
from haybale.retrieval.hits import Ints
from haybale.search.query_batch import QueryBatch


@dataclass(eq=False, repr=False, kw_only=True)
class CrossEncoder(BestPairs, Reranker):
    """Re-rank the first documents of another ranker by a cross-encoder over their best pairs of paragraphs.

    Nogueira & Cho, "Passage Re-ranking with BERT", 2019. The engine's vectors choose the pairs of a query paragraph and
    a passage. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    model : str
        Hub id or folder of a cross-encoder that sentence-transformers can load. Needs the extra ``neural``.
    n_documents : int, default 50
        Number of documents that are re-ranked for each query.
    n_pairs : int, default 16
        Number of pairs of each document that are read: the most similar ones.
    aggregation : {"max", "mean"}, default "max"
        Whether a document scores by its best pair or by the mean of its ``top`` best pairs.
    top : int, default 3
        Number of pairs in the mean.
    max_length : int, optional
        Maximum tokens of a pair. Default: 256, or the model's maximum if that is less.
    precision : {"auto", "float32", "bfloat16"}, default "auto"
        As for :class:`~haybale.CrossPairs`.
    device : str, optional
        Torch device. Default: a GPU if there is one.
    folds : sequence of str, default ()
        Folders of models trained like ``model``, each without one fold of the training queries
        (:func:`~haybale.train_pair_encoder`). Out of fold, the first model that was not trained on a query scores it.
    """

    name = "cross-encoder"
    variants: ClassVar = {"cross-encoder": {}}
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = BestPairs.ranges | {"folds": SEQUENCE, "precision": PAIR_RANGES["precision"]}

    precision: str = "auto"
    device: str | None = None
    folds: Sequence[str] = ()

    @property
    def needs_training(self) -> bool:
        """Whether the ranker within needs training, or there are models of folds."""
        return self.ranker.needs_training or len(self.folds) > 0

    @property
    def models(self) -> tuple[str, ...]:
        """The hub ids or folders of all models: the one that ranks, then those of the folds."""
        return (self.model, *self.folds)

    def load_encoder(self, model: str) -> CrossPairs:
        how: dict[str, Any] = {"max_length": self.max_length, "precision": self.precision, "device": self.device}
        return CrossPairs(model, read="score", **how)

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        models, model_of = self.models, np.zeros(len(batch), dtype=np.int64)
        if out_of_fold and self.folds:
            model_of = first_unseen(batch.ids, [self.twins_.with_twins(queries_of_model(model)) for model in models])
        new_scores = np.empty(len(rows))
        for number in np.unique(model_of[rows]).tolist():
            of_model = model_of[rows] == number
            new_scores[of_model] = self.score_documents(models[number], batch, rows[of_model], documents[of_model])
        return new_scores
