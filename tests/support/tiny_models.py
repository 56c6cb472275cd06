"""Tiny models of sentence-transformers with random weights, whose tokens are letters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
WORDS += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def _saved(kind: Any, folder: Path, words: Sequence[str] = (), **settings: Any) -> str:
    import torch
    from transformers import BertConfig, BertTokenizer

    folder.mkdir(parents=True)
    known = [*WORDS, *words]
    (folder / "vocab.txt").write_text("\n".join(known))
    torch.manual_seed(0)
    # Large weights, so that different texts have different scores.
    config = BertConfig(**{"vocab_size": len(known), "initializer_range": 0.5, **SIZES, **settings})
    kind(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return str(folder)


def save_cross_encoder(folder: Path, n_labels: int = 1) -> str:
    from transformers import BertForSequenceClassification

    return _saved(BertForSequenceClassification, folder, num_labels=n_labels)


def save_bi_encoder(folder: Path, words: Sequence[str] = (), **settings: Any) -> str:
    """Save a bi-encoder; ``words`` are additional tokens, and ``settings`` are those of a BertConfig."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertModel

    transformer = Transformer(_saved(BertModel, folder / "bert", words, **settings), max_seq_length=64)
    SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")]).save(
        str(folder / "saved")
    )
    return str(folder / "saved")
