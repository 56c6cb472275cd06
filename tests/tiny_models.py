"""Tiny neural models with random weights, as sentence-transformers saves them: letters are their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
WORDS += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def _saved(kind: Any, folder: Path, **settings: Any) -> str:
    import torch
    from transformers import BertConfig, BertTokenizer

    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(0)
    # Weights drawn wide, so that texts which differ have scores that do.
    config = BertConfig(vocab_size=len(WORDS), initializer_range=0.5, **SIZES, **settings)
    kind(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return str(folder)


def save_cross_encoder(folder: Path, n_labels: int = 1) -> str:
    from transformers import BertForSequenceClassification

    return _saved(BertForSequenceClassification, folder, num_labels=n_labels)


def save_bi_encoder(folder: Path) -> str:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertModel

    transformer = Transformer(_saved(BertModel, folder / "bert"), max_seq_length=64)
    SentenceTransformer(modules=[transformer, Pooling(SIZES["hidden_size"], "mean")]).save(str(folder / "saved"))
    return str(folder / "saved")
