"""Re-ranking by a cross-encoder, which reads a paragraph of the query and one of the document together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from haybale.embeddings.lineage import queries_of_model
from haybale.errors import InputError
from haybale.pairs.pair_encoders import PAIR_RANGES, CrossPairs, PairEncoder
from haybale.pairs.pair_reranker import BestPairs
from haybale.parameters import SEQUENCE
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.retrieval.hits import Ints


@dataclass(eq=False, repr=False)
class CrossEncoder(BestPairs):
    """Re-orders the first documents of another ranker by a cross-encoder over their best pairs of paragraphs.

    Nogueira & Cho, "Passage Re-ranking with BERT", 2019, with paragraphs of the query and passages of each document
    chosen by the engine's vectors. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    model : str
        Hub id or folder of any cross-encoder that sentence-transformers loads. (Extra ``neural``.)
    n_documents : int, default 50
        Documents of each query that are read.
    n_pairs : int, default 16
        Pairs of each document that are read: the most similar of all.
    aggregation : {"max", "mean"}, default "max"
        Of the pairs' scores.
    top : int, default 3
        Pairs that the mean is of, the best.
    max_length : int, optional
        Tokens of a pair; default: 256, or what the model reads where that is less.
    precision : {"auto", "float32", "bfloat16"}, default "auto"
        As of :class:`~haybale.CrossPairs`.
    device : str, optional
        Default: a GPU where there is one.
    folds : sequence of str, default ()
        Folders of models that were trained without a fold of the training queries each, and as ``model`` otherwise
        (:func:`~haybale.train_pair_encoder`): out of fold, a query is read by the first that has not seen it.
    """

    name = "cross-encoder"
    variants: ClassVar = {"cross-encoder": {}}
    _parameter_constraints: ClassVar = {
        **BestPairs._ranges,
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
        """Whether the ranker does, or models were trained fold by fold."""
        return self.ranker.needs_training or len(self.folds) > 0

    @property
    def encoder_queries(self) -> frozenset[str]:
        """As every ranker's, and those that all models were trained on."""
        return super().encoder_queries | frozenset.intersection(*map(queries_of_model, (self.model, *self.folds)))

    def learned_from(self) -> set[str]:
        """The ids of queries that a model, or a ranker within, was trained on."""
        return super().learned_from().union(*map(queries_of_model, (self.model, *self.folds)))

    def _load(self, name: str | None = None) -> PairEncoder:
        how: dict[str, Any] = {"max_length": self.max_length, "precision": self.precision, "device": self.device}
        return self._once(name or self.model, lambda: CrossPairs(name or self.model, read="score", **how))

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Any:
        """Out of fold, each query by the first model that was not trained on it."""
        if not (out_of_fold and self.folds):
            return super().rescore(batch, rows, documents, scores, out_of_fold)
        models = (self.model, *self.folds)
        seen = [queries_of_model(model) for model in models]
        unseen = np.array([[query not in each for query in batch.ids] for each in seen])
        if not unseen.any(axis=0).all():
            query = batch.ids[int(unseen.any(axis=0).argmin())]
            raise InputError(f"{self}: every model was trained on query {query!r}; none can rank it out of fold")
        of_query, found = unseen.argmax(axis=0), np.empty(len(rows))
        for number in np.unique(of_query[rows]).tolist():
            mine = of_query[rows] == number
            found[mine] = self._scored(batch, rows[mine], documents[mine], self._load(models[number]))
        return found
