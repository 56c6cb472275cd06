"""How an encoder is trained: which pairs, which loss, how long; and recipes by name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any

from haybale.errors import UnknownNameError
from haybale.finetune.training_pairs import PAIRING
from haybale.parameters import (
    COUNT,
    COUNT_OR_NONE,
    FROM_0,
    MOST,
    NOT_NEGATIVE,
    POSITIVE,
    Interval,
    check_parameters,
    one_of,
)

_CONSTRAINTS = {
    **PAIRING,
    "towers": [Interval(Integral, 1, 2, closed="both")],
    "pooling": [*one_of(["mean", "cls"]), None],
    "similarity": one_of(["cosine", "dot"]),
    "scale": POSITIVE,
    "max_length": [Interval(Integral, 8, MOST, closed="both"), None],
    "batch_size": [Interval(Integral, 2, MOST, closed="both")],
    "mini_batch_size": COUNT_OR_NONE,
    "epochs": COUNT,
    "learning_rate": POSITIVE,
    "warmup": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "max_grad_norm": POSITIVE,
    "frozen_layers": FROM_0,
    "lora_rank": COUNT_OR_NONE,
    "dtype": one_of(["auto", "float32", "bfloat16", "float16"]),
    "evaluations": COUNT,
}


@dataclass(frozen=True)
class Recipe:
    """How an encoder is trained; the defaults are for an hour on two cores.

    Parameters
    ----------
    per_paragraph, per_document, match, marker, negatives, n_negatives, skip, n_pairs : optional
        As of :func:`~haybale.training_pairs`, with other defaults: each paragraph of a query with four passages of each
        relevant document, of these the best twelve, and no negatives but those of the batch.
    towers : {1, 2}, default 1
        One encoder for queries and passages, or two that begin the same.
    pooling : {"mean", "cls"}, optional
        Of a text's tokens, or the first; default: the model's own, which for a plain BERT is the mean.
    similarity : {"cosine", "dot"}, default "cosine"
        In the loss. Engines search by the cosine, whichever it was.
    scale : float, default 20
        Of the similarities in the softmax.
    max_length : int, default 128
        Texts are cut at so many tokens, in training and by the trained encoder, or at as many as the
        model reads; None: where the model cuts them.
    batch_size : int, default 24
        Pairs at once, of as many query documents: where there are fewer, batches are smaller.
    mini_batch_size : int, optional
        Of the passes through the encoder (GradCache); default: all at once up to 128 pairs, else 32.
    epochs : int, default 1
    learning_rate : float, default 5e-5
        After the warm-up it falls linearly to 0.
    warmup : float, default 0.1
        Share of the steps, or, from 1 on, their number.
    weight_decay, max_grad_norm : float, default 0 and 1
    frozen_layers : int, default 3
        Embeddings and so many first layers stay as they are; 0: nothing does.
    lora_rank : int, optional
        Train adapters of this rank in place of the weights (LoRA, Hu et al. 2022); they are merged in the end.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default "auto"
        In which products are computed: auto is bfloat16 on a GPU that has it, else float16 there, and float32 on a CPU.
    evaluations : int, default 4
        How often the training is measured and kept; the best of these is taken.

    Examples
    --------
    >>> Recipe().changed(epochs=3).epochs, RECIPES["parm"].towers
    (3, 2)
    """

    per_paragraph: int | None = 4
    per_document: int | None = 12
    match: str = "vectors"
    marker: str | None = None
    negatives: str = "none"
    n_negatives: int = 1
    skip: int = 0
    n_pairs: int | None = None
    towers: int = 1
    pooling: str | None = None
    similarity: str = "cosine"
    scale: float = 20.0
    max_length: int | None = 128
    batch_size: int = 24
    mini_batch_size: int | None = None
    epochs: int = 1
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    frozen_layers: int = 3
    lora_rank: int | None = None
    dtype: str = "auto"
    evaluations: int = 4

    def changed(self, **changes: Any) -> Recipe:
        """With other values, which are checked."""
        for name in changes:
            if name not in _CONSTRAINTS:
                raise UnknownNameError("parameter of a recipe", name, _CONSTRAINTS)
        check_parameters("Recipe", changes, _CONSTRAINTS)
        return replace(self, **changes)

    @property
    def of_pairs(self) -> dict[str, Any]:
        """What :func:`~haybale.training_pairs` takes."""
        names = ("per_paragraph", "per_document", "match", "marker", "negatives", "n_negatives", "skip", "n_pairs")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


# The paper's (Althammer et al. 2022, section 4.2) and, where it is silent, that of DPR's code, which it ran: the 20
# best passages of every relevant document, a random negative each; two towers read [CLS]; warm-up and clipping.
PARM_RECIPE = Recipe(
    per_paragraph=20,
    per_document=None,
    match="bm25",
    negatives="random",
    towers=2,
    pooling="cls",
    similarity="dot",
    scale=1.0,
    max_length=256,
    batch_size=22,
    epochs=40,
    learning_rate=2e-5,
    warmup=1237,
    max_grad_norm=2.0,
    frozen_layers=0,
    evaluations=40,
)
# Minutes on a GPU: everything is trained, with the negatives that a large batch has.
GPU = Recipe(
    per_document=None,
    max_length=256,
    batch_size=512,
    epochs=10,
    frozen_layers=0,
    evaluations=10,
)
RECIPES = {"small": Recipe(), "gpu": GPU, "parm": PARM_RECIPE}


def recipe_of(given: Recipe | str, changes: dict[str, Any]) -> Recipe:
    """A recipe by its name, with changes."""
    if isinstance(given, str):
        if given not in RECIPES:
            raise UnknownNameError("recipe", given, RECIPES)
        given = RECIPES[given]
    check_parameters("Recipe", given.to_dict(), _CONSTRAINTS)
    return given.changed(**changes)
