"""Encoders that hand over tensors where they are, and halve a batch that there is no memory for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import torch
from cupy_double import HAS_CUDA
from longformers import SPECIAL, WORDS, save_longformer, texts, tokenizer

from haybale.device import CPU, Device, to_device, to_numpy
from haybale.embeddings import LongformerEncoder, SentenceTransformerEncoder
from haybale.errors import DeviceError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
OF = texts([12, 3, 4, 9, 20, 5, 31, 8, 8, 64])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longformer(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT of one layer, width 16 and random weights, as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    made = tmp_path_factory.mktemp("stack")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(SPECIAL + WORDS), **sizes)).save_pretrained(made / "bert")
    tokenizer().save_pretrained(made / "bert")
    model = SentenceTransformer(modules=[Transformer(str(made / "bert"), max_seq_length=100), Pooling(16, "mean")])
    model.save(str(made / "saved"))
    return str(made / "saved")


@pytest.fixture(params=["longformer", "sentence_transformer"])
def encoder(request: pytest.FixtureRequest, folder: Path, stack: str) -> Any:
    how: dict[str, Any] = {"device": "cpu", "query_prompt": "w1 ", "tokens_per_batch": 100}
    if request.param == "longformer":
        return LongformerEncoder(folder, **how)
    return SentenceTransformerEncoder(stack, **how)


def test_tensors_are_the_vectors_without_a_copy(encoder: Any) -> None:
    tensor, queries = encoder.encode_tensor(OF), encoder.encode_queries_tensor(OF)
    assert tensor.dtype == torch.float32
    assert tensor.device.type == "cpu"
    assert not tensor.requires_grad
    np.testing.assert_array_equal(tensor.numpy(), encoder.encode(OF))
    np.testing.assert_array_equal(queries.numpy(), encoder.encode_queries(OF))
    assert not np.allclose(tensor.numpy(), queries.numpy())
    np.testing.assert_allclose(tensor.norm(dim=1).numpy(), 1, atol=1e-6)
    there = to_device(tensor, CPU)
    assert np.shares_memory(there, tensor.numpy())
    tensor[0, 0] = 7
    assert there[0, 0] == 7
    assert encoder.encode_tensor([]).shape == (0, encoder.dim)


def test_longformers_tensors_of_float16(folder: Path) -> None:
    encoder = LongformerEncoder(folder, device="cpu")
    half = encoder.encode_tensor(OF, dtype="float16")
    assert half.dtype == torch.float16
    np.testing.assert_array_equal(half.numpy(), encoder.encode(OF).astype(np.float16))
    assert encoder.encode_queries_tensor(OF, dtype="float16").dtype == torch.float16
    with pytest.raises(UnknownNameError, match="known: float32, float16"):
        encoder.encode_tensor(OF, dtype="int8")


class Small:
    """A model with memory for so many tokens at once, padding included."""

    def __init__(self, model: Any, room: int) -> None:
        self.model, self.room = model, room
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __iter__(self) -> Any:
        return iter(self.model)

    def __call__(self, first: Any, *rest: Any) -> Any:
        self.sizes.append(first["input_ids"].numel() if isinstance(first, dict) else len(first))
        if self.sizes[-1] > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.model(first, *rest)


def test_a_batch_that_does_not_fit_is_halved(encoder: Any) -> None:
    expected = encoder.encode(OF)
    small = Small(encoder.model, 70)
    # A module's attributes that are modules are kept apart, and a stand-in is none.
    vars(encoder).get("_modules", {}).pop("model", None)
    object.__setattr__(encoder, "model", small)
    found = encoder.encode_tensor(OF)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert max(small.sizes) > 70  # once it was too much
    small.room = 30
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 texts: CUDA out of memory"):
        encoder.encode(OF)


def test_the_librarys_own_encode_is_given_less_at_once(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceTransformerEncoder(stack, device="cpu", batch_size=8)
    expected = encoder.encode(OF)
    encoder.packed = False
    asked, room, plain = [], 2, encoder.model.encode

    def hungry(*args: Any, batch_size: int, **kwargs: Any) -> Any:
        asked.append(batch_size)
        if batch_size > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return plain(*args, batch_size=batch_size, **kwargs)

    monkeypatch.setattr(encoder.model, "encode", hungry)
    np.testing.assert_allclose(encoder.encode_tensor(OF).numpy(), expected, atol=1e-6)
    assert asked == [8, 4, 2]
    room = 0
    with pytest.raises(DeviceError, match="out of memory at one text at a time"):
        encoder.encode(OF)


@pytest.mark.gpu
def test_cupy_reads_the_tensor_itself(folder: Path) -> None:
    if not HAS_CUDA or not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    tensor = LongformerEncoder(folder, device="cuda").encode_tensor(OF)
    there = to_device(tensor, Device("cuda", tensor.device.index))
    assert there.data.ptr == tensor.data_ptr()
    np.testing.assert_allclose(to_numpy(there), LongformerEncoder(folder, device="cpu").encode(OF), atol=1e-4)
