"""The ranker ``maxsim``, late interaction: each token of a query paragraph meets the passage's most similar token."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

from haybale.pairs.best_pairs import BEST_PAIRS, Scores, document_scores, pair_shares
from haybale.pairs.pair_encoders import PAIR_RANGES, PairEncoder, TokenPairs
from haybale.parameters import COUNT
from haybale.rankers.explanation import Explanation, Share
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.reranker import Reranker
from haybale.rankers.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints


@dataclass(eq=False, repr=False)
class MaxSim(Reranker):
    """Re-rank the first documents of another ranker by MaxSim over the tokens of their best pairs of paragraphs.

    Khattab & Zaharia, "ColBERT", SIGIR 2020; see :class:`~haybale.TokenPairs`. Only paragraphs that are read are
    encoded, each once. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose documents are re-ranked.
    model : str
        Hub id or folder of a late-interaction model, or of any text encoder, whose token vectors are then used
        unchanged. (Extra ``neural``.)
    n_documents, n_pairs, aggregation, top : optional
        As of :class:`~haybale.CrossEncoder`.
    max_length : int, optional
        Tokens of a text. Default: the model's own.
    device : str, optional
        Default: a GPU if there is one.
    """

    name = "maxsim"
    variants: ClassVar = {"maxsim": {}}
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "model": [str],
        "n_documents": COUNT,
        **BEST_PAIRS,
        **{name: PAIR_RANGES[name] for name in ("max_length", "device")},
    }

    ranker: Ranker
    model: str
    _: KW_ONLY
    n_documents: int = 50
    n_pairs: int = 16
    aggregation: str = "max"
    top: int = 3
    max_length: int | None = None
    device: str | None = None

    @cached_property
    def _encoder(self) -> PairEncoder:
        return TokenPairs(self.model, max_length=self.max_length, device=self.device)

    def fit_batch(self, training: Training) -> None:
        self.__dict__.pop("_encoder", None)
        _ = self._encoder  # refuses a missing model before the ranker within is fitted
        self.rankers_ = [self.ranker.fitted(training)]

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        return document_scores(self, self._encoder, batch, rows, documents)

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        return pair_shares(self, self._encoder, batch, document)
