"""SentenceTransformerEncoder against the library's own vectors, on tiny models with random weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from support.tiny_models import save_bi_encoder

from haybale.embeddings import Encoder, SentenceTransformerEncoder, encode_queries
from haybale.errors import InputError, MissingExtraError, TruncationWarning, VectorError

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
TEXTS = ["dogs bark at cats", "meow", "a dog and a cat " * 30, "the dogs bark loudly", "purr and meow", "x" * 300]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bi_encoder(tmp_path_factory.mktemp("bert"))


def test_vectors_equal_those_of_the_library(saved: str) -> None:
    model = SentenceTransformer(saved, prompts={"query": "q "}, device="cpu")
    encoder = SentenceTransformerEncoder(model, batch_size=4)
    assert isinstance(encoder, Encoder)
    with pytest.warns(TruncationWarning, match=r"^1 of 6 texts .* 64 tokens") as caught:
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


def test_bad_models_and_settings(saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'batch_size' parameter of SentenceTransformerEncoder"):
        SentenceTransformerEncoder(saved, batch_size=0)
    broken = SentenceTransformerEncoder(saved, device="cpu")
    monkeypatch.setattr(broken.model, "encode", lambda texts, **how: np.full((len(texts), 16), np.nan))
    with pytest.raises(VectorError, match="row 0 has NaN"):
        broken.encode(["a"])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="nothing/here"):
        SentenceTransformerEncoder(str(tmp_path / "nothing" / "here"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"haybale\[neural\]"):
        SentenceTransformerEncoder("some/model")
