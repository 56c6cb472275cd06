"""Sentence-transformers models, tiny with random weights: the library's own vectors, tensors, little memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import torch
from cupy_double import HAS_CUDA
from longformers import save_longformer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tiny_models import save_bi_encoder

from haybale.device import CPU, Device, to_device, to_numpy
from haybale.embeddings import EncodeCounts, Encoder, LongformerEncoder, SentenceTransformerEncoder, encode_queries
from haybale.errors import DeviceError, InputError, MissingExtraError

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
TEXTS = ["dogs bark at cats", "meow", "a dog and a cat " * 30, "the dogs bark loudly", "purr and meow", "x" * 300]
SHORT = ["w12 w7 w3", "w1", "w4 w5 w6 w7 w8", "w9 w1", "w3 w2 w1 w5 w6 w7 w8 w9 w4"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bi_encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def model(saved: str) -> SentenceTransformer:
    return SentenceTransformer(saved, prompts={"query": "q "}, device="cpu")


def test_vectors_are_the_library_s_own(model: SentenceTransformer) -> None:
    expected = model.encode(TEXTS, normalize_embeddings=True)
    for budget in (1, 100, 10_000):
        encoder = SentenceTransformerEncoder(model, tokens_per_batch=budget)
        assert encoder.packed
        assert isinstance(encoder, Encoder)
        with pytest.warns(UserWarning, match="^1 of 6 texts are longer than 64 tokens"):
            np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
        counts = encoder.counts
        assert (counts.texts, counts.truncated) == (6, 1)
        cut = [model.tokenizer(text, truncation=True, max_length=64).input_ids for text in TEXTS]
        assert counts.tokens == sum(map(len, cut))
        assert counts.slots >= counts.tokens if budget > 1 else counts.slots == counts.tokens
    queries = model.encode_query(TEXTS[:2], normalize_embeddings=True)
    np.testing.assert_allclose(encode_queries(encoder, TEXTS[:2]), queries, atol=1e-6)
    given = SentenceTransformerEncoder(model, query_prompt="a ", passage_prompt="b ")
    for vectors, prompt in ((given.encode_queries(TEXTS[:2]), "a "), (given.encode(TEXTS[:2]), "b ")):
        theirs = model.encode(TEXTS[:2], prompt=prompt, normalize_embeddings=True)
        np.testing.assert_allclose(vectors, theirs, atol=1e-6)
    described = given.describe()
    assert (described["query_prompt"], described["width"], given.dim) == ("a ", 16, 16)
    assert given.encode([]).shape == (0, 16)
    model[1].include_prompt = False  # then the prompt is left out of the mean, by the library
    theirs = model.encode(TEXTS[:2], prompt="b ", normalize_embeddings=True)
    np.testing.assert_allclose(given.encode(TEXTS[:2]), theirs, atol=1e-6)


def test_what_is_fed_otherwise_goes_through_the_library(model: SentenceTransformer) -> None:
    static = SentenceTransformer(modules=[StaticEmbedding(model.tokenizer, embedding_dim=8)], device="cpu")
    encoder = SentenceTransformerEncoder(static, batch_size=2)
    assert not encoder.packed
    np.testing.assert_allclose(encoder.encode(TEXTS), static.encode(TEXTS, normalize_embeddings=True), atol=1e-6)
    assert (encoder.counts, encoder.dim) == (EncodeCounts(texts=6), 8)


class Small:
    """A model with memory for so many tokens, or texts, at once."""

    def __init__(self, model: Any, room: int) -> None:
        self.model, self.room = model, room
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __iter__(self) -> Any:
        return iter(self.model)

    def _check(self, size: int) -> None:
        self.sizes.append(size)
        if size > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def __call__(self, first: Any, *rest: Any) -> Any:
        self._check(first["input_ids"].numel() if isinstance(first, dict) else len(first))
        return self.model(first, *rest)

    def encode(self, texts: list[str], **how: Any) -> Any:
        self._check(len(texts))
        return self.model.encode(texts, **how)


@pytest.fixture(params=["longformer", "packed", "library"])
def encoder(request: pytest.FixtureRequest, saved: str, tmp_path: Path) -> Any:
    how: dict[str, Any] = {"device": "cpu", "query_prompt": "w1 ", "tokens_per_batch": 60}
    if request.param == "longformer":
        return LongformerEncoder(save_longformer(tmp_path), **how)
    encoder = SentenceTransformerEncoder(saved, batch_size=4, **how)
    encoder.packed = request.param == "packed"
    return encoder


def test_tensors_are_the_vectors_without_a_copy(encoder: Any) -> None:
    tensor, queries = encoder.encode_tensor(SHORT), encoder.encode_queries_tensor(SHORT)
    assert (tensor.dtype, tensor.device.type, tensor.requires_grad) == (torch.float32, "cpu", False)
    np.testing.assert_array_equal(tensor.numpy(), encoder.encode(SHORT))
    np.testing.assert_array_equal(queries.numpy(), encoder.encode_queries(SHORT))
    assert not np.allclose(tensor.numpy(), queries.numpy())
    np.testing.assert_allclose(tensor.norm(dim=1).numpy(), 1, atol=1e-6)
    assert np.shares_memory(to_device(tensor, CPU), tensor.numpy())
    assert encoder.encode_tensor([]).shape == (0, encoder.dim)


def test_a_batch_that_does_not_fit_is_halved(encoder: Any) -> None:
    expected = encoder.encode(SHORT)
    packed = getattr(encoder, "packed", True)
    encoder.model = small = Small(encoder.model, 25 if packed else 2)
    np.testing.assert_allclose(encoder.encode_tensor(SHORT).numpy(), expected, atol=1e-6)
    assert max(small.sizes) > small.room  # once it was too much
    small.room = 2 if packed else 0
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 texts: CUDA out of memory"):
        encoder.encode(SHORT)


@pytest.mark.gpu
def test_cupy_reads_the_tensor_itself(tmp_path: Path) -> None:
    if not HAS_CUDA or not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    folder = save_longformer(tmp_path)
    tensor = LongformerEncoder(folder, device="cuda").encode_tensor(SHORT)
    there = to_device(tensor, Device("cuda", tensor.device.index))
    assert there.data.ptr == tensor.data_ptr()
    np.testing.assert_allclose(to_numpy(there), LongformerEncoder(folder, device="cpu").encode(SHORT), atol=1e-4)


def test_what_cannot_be_made(saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="tokens_per_batch must be at least 1"):
        SentenceTransformerEncoder(saved, tokens_per_batch=0)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot load the sentence-transformers model"):
        SentenceTransformerEncoder(str(tmp_path / "nothing" / "here"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[neural\]"'):
        SentenceTransformerEncoder("some/model")
