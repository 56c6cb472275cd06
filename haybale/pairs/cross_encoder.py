"""The ranker ``cross-encoder``: it reads a paragraph of the query and one of the document together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from haybale.embeddings.lineage import first_unseen, queries_of_model
from haybale.pairs.best_pairs import BEST_PAIRS, Scores, document_scores, pair_shares
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs, PairEncoder
from haybale.parameters import COUNT, SEQUENCE
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.reranker import Reranker
from haybale.rankers.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints


@dataclass(eq=False, repr=False)
class CrossEncoder(Reranker):
    """Re-rank the first documents of another ranker by a cross-encoder over their best pairs of paragraphs.

    Nogueira & Cho, "Passage Re-ranking with BERT", 2019. The engine's vectors choose the pairs of query paragraph and
    passage. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose documents are re-ranked.
    model : str
        Hub id or folder of a cross-encoder that sentence-transformers can load. (Extra ``neural``.)
    n_documents : int, default 50
        Documents of each query that are read.
    n_pairs : int, default 16
        Pairs of each document that are read: the most similar ones.
    aggregation : {"max", "mean"}, default "max"
        How the pairs' scores become the document's.
    top : int, default 3
        Number of best pairs that the mean is of.
    max_length : int, optional
        Tokens of a pair. Default: 256, or what the model reads if that is less.
    precision : {"auto", "float32", "bfloat16"}, default "auto"
        As of :class:`~haybale.CrossPairs`.
    device : str, optional
        Default: a GPU if there is one.
    folds : sequence of str, default ()
        Folders of models trained like ``model``, each without one fold of the training queries
        (:func:`~haybale.train_pair_encoder`). Out of fold, a query is read by the first model not trained on it.
    """

    name = "cross-encoder"
    variants: ClassVar = {"cross-encoder": {}}
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "model": [str],
        "n_documents": COUNT,
        **BEST_PAIRS,
        "folds": SEQUENCE,
        **{name: PAIR_RANGES[name] for name in ("max_length", "precision", "device")},
    }

    ranker: Ranker
    model: str
    _: KW_ONLY
    n_documents: int = 50
    n_pairs: int = 16
    aggregation: str = "max"
    top: int = 3
    max_length: int | None = None
    precision: str = "auto"
    device: str | None = None
    folds: Sequence[str] = ()

    @property
    def needs_training(self) -> bool:
        """Whether the ranker within needs training, or there are models of folds."""
        return self.ranker.needs_training or len(self.folds) > 0

    @property
    def encoder_queries(self) -> frozenset[str]:
        """As of every ranker, and the queries that all models were trained on."""
        return super().encoder_queries | frozenset.intersection(*map(queries_of_model, (self.model, *self.folds)))

    def learned_from(self) -> set[str]:
        """The ids of queries that any model, or a ranker within, was trained on."""
        return super().learned_from().union(*map(queries_of_model, (self.model, *self.folds)))

    def fit_batch(self, training: Training) -> None:
        self._loaded = dict[str, PairEncoder]()
        self._encoder(self.model)  # refuses a missing model before the ranker within is fitted
        self.rankers_ = [self.ranker.fitted(training)]

    def _encoder(self, model: str) -> PairEncoder:
        loaded: dict[str, PairEncoder] = self.__dict__.setdefault("_loaded", {})
        if model not in loaded:
            how: dict[str, Any] = {"max_length": self.max_length, "precision": self.precision, "device": self.device}
            loaded[model] = CrossPairs(model, read="score", **how)
        return loaded[model]

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        models = (self.model, *self.folds)
        model_of = np.zeros(len(batch), dtype=np.int64)
        if out_of_fold and self.folds:
            model_of = first_unseen(batch.ids, [queries_of_model(model) for model in models], f"{self}: every model")
        found = np.empty(len(rows))
        for number in np.unique(model_of[rows]).tolist():
            mine = model_of[rows] == number
            found[mine] = document_scores(self, self._encoder(models[number]), batch, rows[mine], documents[mine])
        return found

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        return pair_shares(self, self._encoder(self.model), batch, document)
