"""Longformers with random weights, their tokenizer, and the hidden states of transformers' LongformerModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDS = [f"w{i}" for i in range(60)]
BOS, PAD, EOS, UNK = range(4)


def tokenizer() -> Any:
    """Return a tokenizer with one token per word, between <s> and </s> as in RoBERTa."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    names = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        model_max_length=1_000_000,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{kind}_token": token for kind, token in names.items()},
    )


def save_longformer(folder: Path, *, head: str = "LongformerModel", std: float = 0.1, **settings: Any) -> Path:
    """Save a checkpoint of transformers, with weights so large that attention changes the result."""
    import torch
    import transformers

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "attention_window": [4, 10, 6],
        "max_position_embeddings": 130,
    }
    config = transformers.LongformerConfig(
        vocab_size=len(SPECIAL + WORDS),
        type_vocab_size=1,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        sep_token_id=EOS,
        initializer_range=std,
        layer_norm_eps=1e-5,
        **(sizes | settings),
    )
    torch.manual_seed(0)
    model = getattr(transformers, head)(config)
    with torch.no_grad():  # biases and norms are initialised as 0 and 1, which would hide errors
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def texts(lengths: list[int], seed: int = 0) -> list[str]:
    """Return texts with the given numbers of tokens, including <s> and </s> (at least 3)."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length - 2)) for length in lengths]


def reference(folder: Path, of: list[str], *, dtype: str = "float32") -> list[np.ndarray]:
    """Return hidden states of LongformerModel, one text at a time, padded to a multiple of all windows."""
    import torch
    from transformers import AutoTokenizer, LongformerModel

    model = LongformerModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    fast = AutoTokenizer.from_pretrained(folder)
    multiple = int(np.lcm.reduce(model.config.attention_window))
    result = []
    for text in of:
        ids = fast(text)["input_ids"]
        padding = -len(ids) % multiple
        mask = torch.tensor([[1] * len(ids) + [0] * padding])
        with torch.inference_mode():
            hidden = model(torch.tensor([ids + [PAD] * padding]), attention_mask=mask).last_hidden_state
        result.append(hidden[0, : len(ids)].float().numpy())
    return result


def hidden(encoder: Any, of: list[str]) -> list[np.ndarray]:
    """Return hidden states of haybale's encoder, with all texts in one batch."""
    import torch

    from haybale.embeddings.token_batches import token_rows

    rows = token_rows(encoder.tokenizer, of, encoder.max_length)[0]
    with torch.inference_mode():
        return [states.float().cpu().numpy() for states in encoder._hidden(rows).split([len(row) for row in rows])]


def pooled(hidden: list[np.ndarray], pooling: str = "mean") -> np.ndarray:
    """Return the mean or the first state, L2-normalised."""
    vectors = np.stack([states.mean(0) if pooling == "mean" else states[0] for states in hidden])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
