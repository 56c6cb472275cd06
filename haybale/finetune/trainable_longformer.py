"""Train a LongformerEncoder with sentence-transformers, through its own layers without padding."""

# torch's annotations are partial, and may be absent.
# mypy: disable-error-code="misc,no-any-return,no-untyped-call,unused-ignore"

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from haybale.embeddings.longformer import LongformerEncoder


class _Packed(InputModule):
    """A module that turns texts into vectors of length 1. Padding is removed before the first layer."""

    def __init__(self, encoder: LongformerEncoder) -> None:
        super().__init__()
        self.encoder, self.model = encoder, encoder.model
        self.tokenizer: Any = encoder.tokenizer

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        texts = [(prompt or "") + str(text) for text in inputs]
        encoded = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.encoder.max_length, return_tensors="pt"
        )
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        ids, mask = features["input_ids"], features["attention_mask"].bool()
        padding = self.model.config.pad_token_id
        counted = (ids != padding) & mask
        positions = counted.cumsum(1) * counted + padding  # as in transformers
        lengths = mask.sum(1).tolist()
        hidden = self.model(ids[mask], positions[mask], lengths)
        return features | {"sentence_embedding": self.encoder._pooled(hidden, lengths)}

    def get_embedding_dimension(self) -> int:
        return self.encoder.dim

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Do nothing: checkpoints contain the weights, and :func:`save_longformer` writes the trained model."""


def packed_model(encoder: LongformerEncoder) -> SentenceTransformer:
    """Return a trainable model that shares the encoder's weights."""
    return SentenceTransformer(modules=[_Packed(encoder)], device=str(encoder.device))


def save_longformer(encoder: LongformerEncoder, folder: Path) -> None:
    """Write a folder that transformers and sentence-transformers can load as a Longformer."""
    from transformers import LongformerModel

    standard = LongformerModel(encoder.model.config, add_pooling_layer=False)
    standard.load_state_dict(
        {name: tensor.cpu() for name, tensor in encoder.model.standard_state().items()}, strict=False
    )
    with tempfile.TemporaryDirectory() as scratch:
        standard.save_pretrained(scratch)
        encoder.tokenizer.save_pretrained(scratch)
        transformer = Transformer(scratch, max_seq_length=encoder.max_length)
        prompts = {"query": encoder.query_prompt, "document": encoder.passage_prompt}
        modules = [transformer, Pooling(encoder.dim, encoder.pooling), Normalize()]
        used_prompts = {kind: prompt for kind, prompt in prompts.items() if prompt}
        SentenceTransformer(modules=modules, prompts=used_prompts or None, device="cpu").save_pretrained(
            str(folder), create_model_card=False
        )
