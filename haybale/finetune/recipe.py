"""Define the recipe of a fine-tuning (its pairs, loss and schedule), and the recipes known by name."""

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
    """The pairs, loss and schedule of a fine-tuning. The defaults need an hour on two cores.

    Parameters
    ----------
    per_paragraph, per_document, match, marker, negatives, n_negatives, skip, n_pairs : optional
        As in :func:`~haybale.training_pairs`, with other defaults: each paragraph of a query is paired with four
        passages of each relevant document, the best twelve pairs of each document are kept, and the only negatives are
        the other passages of the batch.
    towers : {1, 2}, default 1
        The number of encoders: one for queries and passages, or one for each, with equal weights at first.
    pooling : {"mean", "cls"}, optional
        Whether a text's vector is the mean of its hidden states or the first one. Default: the model's own pooling,
        which is the mean for a plain BERT.
    similarity : {"cosine", "dot"}, default "cosine"
        The similarity in the loss. Engines always search by the cosine.
    scale : float, default 20
        Factor of the similarities in the softmax (the inverse temperature).
    max_length : int or None, default 128
        The number of tokens after which texts are truncated, in training and by the trained encoder; at most what the
        model allows. None: the model's own limit.
    batch_size : int, default 24
        The number of pairs in a batch, each of another query document. With fewer query documents, batches are smaller.
    mini_batch_size : int, optional
        The number of pairs encoded at once (GradCache), which bounds the memory. Default: the whole batch up to 128
        pairs, else 32.
    epochs : int, default 1
        The number of passes over the pairs.
    learning_rate : float, default 5e-5
        The largest learning rate; after the warm-up it falls linearly to 0.
    warmup : float, default 0.1
        The share of the steps, or, from 1, the number of steps, in which the learning rate rises from 0.
    weight_decay : float, default 0
        The weight decay of AdamW.
    max_grad_norm : float, default 1
        The norm at which gradients are clipped.
    frozen_layers : int, default 3
        The number of first layers that are not trained, nor are the embeddings; 0 trains all weights.
    lora_rank : int, optional
        Trains adapters of this rank instead of the weights (LoRA, Hu et al. 2022), and merges them at the end.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default "auto"
        The type of matrix products. ``"auto"`` is float32 on a CPU, bfloat16 on a GPU that supports it, else float16.
    evaluations : int, default 4
        The number of checkpoints that are saved and evaluated; the best one is used.

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
        """Return a copy with other values, which are checked."""
        for name in changes:
            if name not in _CONSTRAINTS:
                raise UnknownNameError("parameter of a recipe", name, _CONSTRAINTS)
        check_parameters("Recipe", changes, _CONSTRAINTS)
        return replace(self, **changes)

    @property
    def pair_settings(self) -> dict[str, Any]:
        """The keyword arguments of :func:`~haybale.training_pairs`."""
        return {name: getattr(self, name) for name in PAIRING}

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name, for JSON."""
        return asdict(self)


# Althammer et al. 2022, section 4.2. Values that the paper does not state are those of DPR's code, which it used.
_PARM = Recipe(
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
# Needs minutes on a GPU: all layers are trained, and a large batch provides many negatives.
_GPU = Recipe(per_document=None, max_length=256, batch_size=512, epochs=10, frozen_layers=0, evaluations=10)
RECIPES = {"small": Recipe(), "gpu": _GPU, "parm": _PARM}


def recipe_of(recipe: Recipe | str, changes: dict[str, Any]) -> Recipe:
    """Return a recipe, or the recipe of a name, with changes; raise :class:`UnknownNameError` for an unknown name."""
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            raise UnknownNameError("recipe", recipe, RECIPES)
        recipe = RECIPES[recipe]
    check_parameters("Recipe", recipe.to_dict(), _CONSTRAINTS)
    return recipe.changed(**changes)
