"""Sentence-transformers models, tiny with random weights: the library's own vectors, little memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from support.longformers import save_longformer
from support.tiny_models import save_bi_encoder

from haybale.embeddings import Encoder, LongformerEncoder, SentenceTransformerEncoder, encode_queries
from haybale.errors import DeviceError, InputError, MissingExtraError, VectorError

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
TEXTS = ["dogs bark at cats", "meow", "a dog and a cat " * 30, "the dogs bark loudly", "purr and meow", "x" * 300]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bi_encoder(tmp_path_factory.mktemp("bert"))


def test_vectors_are_the_library_s_own(saved: str) -> None:
    model = SentenceTransformer(saved, prompts={"query": "q "}, device="cpu")
    encoder = SentenceTransformerEncoder(model, batch_size=4)
    assert isinstance(encoder, Encoder)
    with pytest.warns(UserWarning, match="^1 of 6 texts are longer than 64 tokens") as caught:
        np.testing.assert_allclose(encoder.encode(TEXTS), model.encode(TEXTS, normalize_embeddings=True), atol=1e-6)
    assert caught[0].filename == __file__
    cut = [model.tokenizer(text, truncation=True, max_length=64).input_ids for text in TEXTS]
    assert encoder.counts == {"texts": 6, "truncated": 1, "tokens": sum(map(len, cut))}
    queries = model.encode_query(TEXTS[:2], normalize_embeddings=True)
    np.testing.assert_allclose(encode_queries(encoder, TEXTS[:2]), queries, atol=1e-6)
    given = SentenceTransformerEncoder(model, query_prompt="a ", passage_prompt="b ")
    for vectors, prompt in ((given.encode_queries(TEXTS[:2]), "a "), (given.encode(TEXTS[:2]), "b ")):
        theirs = model.encode(TEXTS[:2], prompt=prompt, normalize_embeddings=True)
        np.testing.assert_allclose(vectors, theirs, atol=1e-6)
    described = given.describe()
    assert (described["query_prompt"], described["width"], given.encode([]).shape) == ("a ", 16, (0, 16))
    static = SentenceTransformer(modules=[StaticEmbedding(model.tokenizer, embedding_dim=8)], device="cpu")
    encoder = SentenceTransformerEncoder(static)
    np.testing.assert_allclose(encoder.encode(TEXTS), static.encode(TEXTS, normalize_embeddings=True), atol=1e-6)
    assert encoder.dim == 8


class Small:
    """A model with memory for so many tokens, or texts, at once."""

    def __init__(self, model: Any, room: int) -> None:
        self.model, self.room = model, room
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def _check(self, size: int) -> None:
        self.sizes.append(size)
        if size > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def __call__(self, ids: Any, *rest: Any) -> Any:
        self._check(len(ids))
        return self.model(ids, *rest)

    def encode(self, texts: list[str], **how: Any) -> Any:
        self._check(len(texts))
        return self.model.encode(texts, **how)


@pytest.mark.parametrize("kind", ["longformer", "library"])
def test_a_batch_that_does_not_fit_is_halved(kind: str, saved: str, tmp_path: Path) -> None:
    encoder: Any = SentenceTransformerEncoder(saved, batch_size=4, device="cpu")
    texts, room = TEXTS[:2] * 3, 1
    if kind == "longformer":
        encoder = LongformerEncoder(save_longformer(tmp_path), device="cpu", tokens_per_batch=60)
        texts, room = ["w12 w7 w3", "w1", "w4 w5 w6 w7 w8", "w9 w1", "w3 w2 w1 w5 w6 w7 w8 w9 w4"], 25
    expected = encoder.encode(texts)
    encoder.model = small = Small(encoder.model, room)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert max(small.sizes) > small.room  # once it was too much
    small.room = 0
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 texts: CUDA out of memory"):
        encoder.encode(texts)


def test_what_cannot_be_made(saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'batch_size' parameter of SentenceTransformerEncoder"):
        SentenceTransformerEncoder(saved, batch_size=0)
    broken = SentenceTransformerEncoder(saved, device="cpu")
    monkeypatch.setattr(broken.model, "encode", lambda texts, **how: np.full((len(texts), 16), np.nan))
    with pytest.raises(VectorError, match="row 0 has NaN"):
        broken.encode(["a"])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot load the sentence-transformers model"):
        SentenceTransformerEncoder(str(tmp_path / "nothing" / "here"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[neural\]"'):
        SentenceTransformerEncoder("some/model")
