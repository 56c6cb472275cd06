"""Backends of SentenceTransformerEncoder against PyTorch, on a tiny model with random weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

from support.tiny_models import save_bi_encoder

from haybale import Engine
from haybale.embeddings import SentenceTransformerEncoder, parse_encoder
from haybale.embeddings.compiled_network import compile_network
from haybale.embeddings.encoder import rebuild
from haybale.errors import InputError, MissingExtraError

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
TEXTS = ["dogs bark at cats", "meow", "a dog and a cat " * 30, "the dogs bark loudly", "purr and meow"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bi_encoder(tmp_path_factory.mktemp("bert"))


def test_vectors_are_those_of_torch(saved: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    expected = SentenceTransformerEncoder(saved, device="cpu")
    found = parse_encoder(f"sentence-transformers({saved!r},backend=openvino)")
    for texts in ([], TEXTS[1:2], TEXTS[:2], TEXTS):
        np.testing.assert_allclose(found.encode(texts), expected.encode(texts), atol=1e-5)
    np.testing.assert_allclose(found.encode_queries(TEXTS), expected.encode_queries(TEXTS), atol=1e-5)
    assert found.describe() == expected.describe() | {"backend": "openvino"}
    assert rebuild(found.describe(), "here").backend == "openvino"
    Engine.build({"a": ["cats purr"], "b": ["dogs bark"]}, tmp_path / "engine", encoder=found)
    opened = Engine.open(tmp_path / "engine")
    assert opened.encoder.backend == "openvino"
    # It rounds to bfloat16 or computes in float32, as the processor can.
    half = SentenceTransformerEncoder(saved, backend="openvino", dtype="bfloat16")
    assert (half.encode(TEXTS) * expected.encode(TEXTS)).sum(axis=1).min() > 0.999


def test_what_a_backend_refuses(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'backend' parameter"):
        SentenceTransformerEncoder(saved, backend="tensorflow")
    with pytest.raises(InputError, match="loaded model"):
        SentenceTransformerEncoder(SentenceTransformerEncoder(saved).model, backend="openvino")
    with pytest.raises(InputError, match="'cpu'"):
        SentenceTransformerEncoder(saved, backend="openvino", device="cuda")
    with pytest.raises(InputError, match="found object in 'model'"):
        compile_network([object()], "model", "float32")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"haybale\[openvino\]"):
        SentenceTransformerEncoder(saved, backend="openvino")
