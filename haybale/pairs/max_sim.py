"""Re-ranking by late interaction: each token of a query paragraph with the token of the passage that is nearest."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from haybale.pairs.pair_encoders import PAIR_RANGES, PairEncoder, TokenPairs
from haybale.pairs.pair_reranker import BestPairs
from haybale.rankers.ranker import Ranker


@dataclass(eq=False, repr=False)
class MaxSim(BestPairs):
    """Re-orders the first documents of another ranker by MaxSim over the tokens of their best pairs of paragraphs.

    Khattab & Zaharia, "ColBERT", SIGIR 2020; see :class:`~haybale.TokenPairs`. Only paragraphs that are read are
    encoded, each once. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    model : str
        Hub id or folder of a late-interaction model, or of any model of texts, whose tokens are then taken as they are.
        (Extra ``neural``.)
    n_documents : int, default 50
        Documents of each query that are read.
    n_pairs : int, default 16
        Pairs of each document that are read: the most similar of all, by the engine's vectors.
    aggregation : {"max", "mean"}, default "max"
        Of the pairs' scores.
    top : int, default 3
        Pairs that the mean is of, the best.
    max_length : int, optional
        Tokens of a text; default: the model's own.
    device : str, optional
        Default: a GPU where there is one.
    """

    name = "maxsim"
    variants: ClassVar = {"maxsim": {}}
    _parameter_constraints: ClassVar = {
        **BestPairs._ranges,
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

    def _load(self) -> PairEncoder:
        return self._once(self.model, lambda: TokenPairs(self.model, max_length=self.max_length, device=self.device))
