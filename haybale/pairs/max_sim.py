"""The ranker ``maxsim``: late interaction, over the tokens of the most similar pairs of paragraphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from haybale.pairs.best_pairs import BestPairs
from haybale.pairs.pair_encoders import TokenPairs
from haybale.rankers.reranker import Reranker


@dataclass(eq=False, repr=False, kw_only=True)
class MaxSim(BestPairs, Reranker):
    """Re-rank the first documents of another ranker by MaxSim over the tokens of their best pairs of paragraphs.

    Khattab & Zaharia, "ColBERT", SIGIR 2020; :class:`~haybale.TokenPairs` has the formula. Only paragraphs that are
    read are encoded, each once. Documents beyond ``n_documents`` keep their order behind the others.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    model : str
        Hub id or folder of a late-interaction model, or of any text encoder, whose token vectors are then used
        unchanged. Needs the extra ``neural``.
    n_documents, n_pairs, aggregation, top : optional
        As for :class:`~haybale.CrossEncoder`.
    max_length : int, optional
        Maximum tokens of a text. Default: the model's own maximum.
    device : str, optional
        Torch device. Default: a GPU if there is one.
    """

    name = "maxsim"
    variants: ClassVar = {"maxsim": {}}
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = BestPairs.ranges

    device: str | None = None

    def load_encoder(self, model: str) -> TokenPairs:
        return TokenPairs(model, max_length=self.max_length, device=self.device)
