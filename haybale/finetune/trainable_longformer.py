"""A LongformerEncoder as a model that sentence-transformers can train, through its own layers without padding."""

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
    """Texts to vectors of length 1; padding is only for the way from the tokens to the layers."""

    def __init__(self, encoder: LongformerEncoder) -> None:
        super().__init__()
        self.encoder, self.model = encoder, encoder.model
        self.tokenizer: Any = encoder.tokenizer

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        texts = [(prompt or "") + str(text) for text in inputs]
        how = {"padding": True, "truncation": True, "max_length": self.encoder.max_length, "return_tensors": "pt"}
        found = self.tokenizer(texts, **how)
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        ids, there = features["input_ids"], features["attention_mask"].bool()
        padding = self.model.config.pad_token_id
        known = (ids != padding) & there
        positions = known.cumsum(1) * known + padding  # as in transformers
        lengths = there.sum(1).tolist()
        hidden = self.model(ids[there], positions[there], lengths)
        return features | {"sentence_embedding": self.encoder._pooled(hidden, lengths)}

    def get_embedding_dimension(self) -> int:
        return self.encoder.dim

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Checkpoints have the weights already; :func:`save_longformer` writes what others can read."""


def packed_model(encoder: LongformerEncoder) -> SentenceTransformer:
    """The encoder as a model to be trained: it has the same weights, not copies."""
    return SentenceTransformer(modules=[_Packed(encoder)], device=str(encoder.device))


def save_longformer(encoder: LongformerEncoder, folder: Path) -> None:
    """As transformers and sentence-transformers save a Longformer."""
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
        given = {kind: prompt for kind, prompt in prompts.items() if prompt}
        SentenceTransformer(modules=modules, prompts=given or None, device="cpu").save_pretrained(
            str(folder), create_model_card=False
        )
