"""Training a Longformer through its own layers: gradients equal those of transformers, and the result is loadable."""

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
from haybale.embeddings.networks.longformer_model import _LINEAR, _NORM
from haybale.errors import InputError
from haybale.finetune.trainable_longformer import packed_model

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longformer(tmp_path_factory.mktemp("longformer") / "saved")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_gradients_are_those_of_transformers(saved: Path, pooling: str) -> None:
    """For texts within and beyond the window, after the same texts were encoded."""
    from transformers import AutoTokenizer, LongformerModel

    given = texts([3, 5, 12, 12, 40, 90])
    encoder = LongformerEncoder(saved, pooling=pooling, device="cpu")
    encoder.encode(given)  # caches packed weights and masks, which have no gradient
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=(len(given), encoder.dim))).float()
    model = packed_model(encoder)
    found = model(model.preprocess(given))["sentence_embedding"]
    (found * direction).sum().backward()
    ours: dict[str, Any] = {name: parameter.grad for name, parameter in encoder.model.named_parameters()}

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
    parts = _LINEAR | {name: (source,) for name, source in _NORM.items()}
    for kind in ("weight", "bias"):
        close(ours.pop(f"norm.{kind}"), f"embeddings.LayerNorm.{kind}")
        for layer in range(3):
            for name, sources in parts.items():
                mine = ours.pop(f"layers.{layer}.{name}.{kind}")
                if (name, kind) == ("qkv", "bias"):  # softmax ignores the bias of the keys, so its gradient is zero
                    mine, sources = torch.cat([mine[:32], mine[64:]]), (sources[0], sources[2])
                    theirs.pop(f"encoder.layer.{layer}.attention.self.key.bias")
                close(mine, *(f"encoder.layer.{layer}.{source}.{kind}" for source in sources))
    assert not ours
    assert not {name for name in theirs if "_global" not in name and "pooler" not in name}


def engine_of(n: int = 24) -> Engine:
    """A collection in which each query and its relevant document have one rare word each, which differ."""
    builder = CollectionBuilder("words", language="english")
    for i in range(n):
        builder.add_document(f"d{i}", [f"{WORDS[2 * i]} common"])
        builder.add_query(f"q{i}", [f"{WORDS[2 * i + 1]} common"], split="train")
        builder.add_judgement("train", f"q{i}", f"d{i}")
    return Engine(builder.build())


@pytest.mark.thorough
def test_a_trained_longformer_can_be_loaded(tmp_path: Path) -> None:
    engine, saved = engine_of(), save_longformer(tmp_path / "saved", attention_window=[4, 4, 4])
    settings: dict[str, Any] = {"epochs": 30, "learning_rate": 3e-3, "frozen_layers": 0, "evaluations": 2}
    done = train_encoder(engine, str(saved), tmp_path / "out", match="bm25", held_out=0, device="cpu", **settings)
    assert done.history["loss"].iloc[-1] < 0.5 * done.history["loss"].iloc[1]
    encoder = LongformerEncoder(tmp_path / "out", device="cpu")
    queries, passages = engine.collection.queries.paragraphs.to_pylist(), engine.collection.passages.texts.to_pylist()
    cosines = encoder.encode(queries) @ encoder.encode(passages).T
    before = LongformerEncoder(saved, device="cpu")
    assert (cosines.argmax(1) == np.arange(24)).mean() > 0.9
    assert ((before.encode(queries) @ before.encode(passages).T).argmax(1) == np.arange(24)).mean() < 0.3
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(plain.encode(passages), encoder.encode(passages), atol=1e-5)
    long = texts([20, 70])  # longer than the window
    np.testing.assert_allclose(plain.encode(long), encoder.encode(long), atol=1e-5)
    with pytest.raises(InputError, match="towers=1"):
        train_encoder(engine, str(saved), tmp_path / "two", towers=2, device="cpu")


def test_changed_weights_are_packed_again(saved: Path) -> None:
    encoder = LongformerEncoder(saved, device="cpu")
    before = encoder.encode(["w1 w2"])
    with torch.no_grad():
        encoder.model.layers[0].up.weight.mul_(2)
    assert not np.allclose(encoder.encode(["w1 w2"]), before, atol=1e-4)
