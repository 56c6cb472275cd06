"""A Longformer trained through its own layers: gradients are those of transformers' own, and what is saved is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

import torch
from sentence_transformers import SentenceTransformer
from support.longformers import WORDS, save_longformer, texts

from haybale import CollectionBuilder, Engine, LongformerEncoder, train_encoder
from haybale.errors import InputError
from haybale.finetune.trainable_longformer import packed_model

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longformer(tmp_path_factory.mktemp("longformer") / "saved")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_gradients_are_those_of_transformers(saved: Path, pooling: str) -> None:
    """Of texts within the window and beyond it, after the same texts were encoded."""
    from transformers import AutoTokenizer, LongformerModel

    given = texts([3, 5, 12, 12, 40, 90])
    encoder = LongformerEncoder(saved, pooling=pooling, device="cpu")
    encoder.encode(given)  # which keeps weights and masks that know no gradient
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=(len(given), encoder.dim))).float()
    model = packed_model(encoder)
    found = model(model.preprocess(given))["sentence_embedding"]
    (found * direction).sum().backward()
    ours: dict[str, Any] = {}
    for name, parameter in encoder.model.named_parameters():
        ours[name] = parameter.grad

    standard = LongformerModel.from_pretrained(saved).eval()
    fast, multiple = AutoTokenizer.from_pretrained(saved), int(np.lcm.reduce(standard.config.attention_window))
    for text, along in zip(given, direction, strict=True):
        ids = fast(text)["input_ids"]
        padding = -len(ids) % multiple
        mask = torch.tensor([[1] * len(ids) + [0] * padding])
        hidden = standard(torch.tensor([ids + [1] * padding]), attention_mask=mask).last_hidden_state[0, : len(ids)]
        vector = hidden.mean(0) if pooling == "mean" else hidden[0]
        (torch.nn.functional.normalize(vector, dim=0) * along).sum().backward()
    theirs = {name: parameter.grad for name, parameter in standard.named_parameters() if parameter.grad is not None}

    def close(mine: torch.Tensor, *names: str) -> None:
        other = torch.cat([theirs.pop(name) for name in names])
        assert float(other.abs().max()) > 1e-4
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=2e-5 * max(1.0, float(other.abs().max())))

    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        close(ours.pop(name), f"embeddings.{name}.weight")
    parts = {
        "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
        "out": ("attention.output.dense",),
        "up": ("intermediate.dense",),
        "down": ("output.dense",),
        "norm_attention": ("attention.output.LayerNorm",),
        "norm_output": ("output.LayerNorm",),
    }
    for kind in ("weight", "bias"):
        close(ours.pop(f"norm.{kind}"), f"embeddings.LayerNorm.{kind}")
        for layer in range(3):
            for name, sources in parts.items():
                mine = ours.pop(f"layers.{layer}.{name}.{kind}")
                if (name, kind) == ("qkv", "bias"):  # that of the keys has none: softmax does not see it
                    mine, sources = torch.cat([mine[:32], mine[64:]]), (sources[0], sources[2])
                    theirs.pop(f"encoder.layer.{layer}.attention.self.key.bias")
                close(mine, *(f"encoder.layer.{layer}.{source}.{kind}" for source in sources))
    assert not ours
    assert not {name for name in theirs if "_global" not in name and "pooler" not in name}


def engine_of(n: int = 24) -> Engine:
    """Queries of one word, which documents answer in another."""
    builder = CollectionBuilder("words", language="english")
    for i in range(n):
        builder.add_document(f"d{i}", [f"{WORDS[2 * i]} common"])
        builder.add_query(f"q{i}", [f"{WORDS[2 * i + 1]} common"], split="train")
        builder.add_judgement("train", f"q{i}", f"d{i}")
    return Engine(builder.build())


def test_a_trained_longformer_is_one(tmp_path: Path) -> None:
    engine, saved = engine_of(), save_longformer(tmp_path / "saved", attention_window=[4, 4, 4])
    how: dict[str, Any] = {"epochs": 30, "learning_rate": 3e-3, "frozen_layers": 0, "evaluations": 2, "device": "cpu"}
    done = train_encoder(engine, str(saved), tmp_path / "out", match="bm25", held_out=0, **how)
    assert done.history["loss"].iloc[-1] < 0.5 * done.history["loss"].iloc[1]
    encoder = LongformerEncoder(tmp_path / "out", device="cpu")
    queries, passages = engine.collection.queries.paragraphs.to_pylist(), engine.collection.passages.texts.to_pylist()
    near = encoder.encode(queries) @ encoder.encode(passages).T
    before = LongformerEncoder(saved, device="cpu")
    assert (near.argmax(1) == np.arange(24)).mean() > 0.9
    assert ((before.encode(queries) @ before.encode(passages).T).argmax(1) == np.arange(24)).mean() < 0.3
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(plain.encode(passages), encoder.encode(passages), atol=1e-5)
    long = texts([20, 70])  # beyond the window
    np.testing.assert_allclose(plain.encode(long), encoder.encode(long), atol=1e-5)
    with pytest.raises(InputError, match="a Longformer is trained as one tower"):
        train_encoder(engine, str(saved), tmp_path / "two", towers=2, device="cpu")


def test_weights_that_change_are_packed_anew(saved: Path) -> None:
    encoder = LongformerEncoder(saved, device="cpu")
    before = encoder.encode(["w1 w2"])
    with torch.no_grad():
        encoder.model.layers[0].up.weight.mul_(2)
    assert not np.allclose(encoder.encode(["w1 w2"]), before, atol=1e-4)
