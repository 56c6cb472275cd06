"""Re-ranking by a cross-encoder, which reads a paragraph of the query and one of the document together."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from haybale.rankers.ranker import Ranker
from haybale.rankers.reranker import BestPairs
from haybale.rerank import CrossPairs
from haybale.rerank.pairs import PAIR_RANGES


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
    """

    name = "cross-encoder"
    names: ClassVar = {"cross-encoder": {}}
    _parameter_constraints: ClassVar = {
        **BestPairs._ranges,
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

    def _load(self) -> CrossPairs:
        if getattr(self, "_pairs", None) is None:
            how: dict[str, Any] = {"max_length": self.max_length, "precision": self.precision, "device": self.device}
            self._pairs = CrossPairs(self.model, read="score", **how)
        return self._pairs
