"""The same encoder as sentence-transformers' own modules, for all who do not have haybale."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from haybale.embeddings.longformer.model import PackedLongformer
from haybale.errors import InputError
from haybale.extras import require

if TYPE_CHECKING:
    from haybale.embeddings.longformer.encoder import LongformerEncoder


def standard_stack(encoder: LongformerEncoder) -> list[torch.nn.Module]:
    """Transformer, Pooling and, if the encoder normalises, Normalize, on the encoder's device.

    Errors: :class:`InputError` with global attention, which sentence-transformers' Transformer never asks for.
    """
    if encoder.global_attention != "none":
        raise InputError(
            "a Longformer with global_attention='cls' has no counterpart among the modules of sentence-transformers, "
            "which give no token global attention; expected global_attention='none'"
        )
    modules = require("sentence_transformers.sentence_transformer.modules", "neural")
    with TemporaryDirectory() as folder:  # the Transformer can only be made from one
        standard_model(encoder.model).save_pretrained(folder)
        encoder.save_tokenizer(folder)
        transformer = modules.Transformer(folder, max_seq_length=encoder.max_length)
    stack = [transformer, modules.Pooling(encoder.width, encoder.pooling)]
    if encoder.normalize:
        stack.append(modules.Normalize())
    return [module.to(encoder.device) for module in stack]


def standard_model(model: PackedLongformer) -> Any:
    """The LongformerModel of transformers that has the same weights."""
    transformers = require("transformers", "neural")
    state = model.standard_state()
    with torch.device("meta"):  # all weights come from the state
        standard = transformers.LongformerModel(model.config, add_pooling_layer="pooler.dense.weight" in state)
    standard.load_state_dict(state, assign=True)
    return standard.to(model.word_embeddings.dtype).eval()
