"""Batches by token count, and sentence-transformers models encoded in them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.embeddings import EncodeCounts, SentenceTransformerEncoder, encode_queries
from haybale.embeddings.token_batches import token_batches
from haybale.errors import InputError

TEXTS = ["dogs bark at cats", "meow", "a dog and a cat " * 30, "the dogs bark loudly", "purr and meow", "x" * 300]


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 120), st.booleans())
def test_batches(lengths: list[int], budget: int, padded: bool) -> None:
    batches = token_batches(lengths, budget, padded=padded)
    order = [i for batch in batches for i in batch.tolist()]
    assert sorted(order) == list(range(len(lengths)))
    assert order == sorted(order, key=lambda i: (-lengths[i], i))

    def cost(batch: list[int]) -> int:
        of = [lengths[i] for i in batch]
        return len(of) * max(of) if padded else sum(of)

    for batch in batches:
        assert len(batch) == 1 or cost(batch.tolist()) <= budget
    for batch, after in pairwise(batches):  # none could have taken one more
        assert cost([*batch.tolist(), int(after[0])]) > budget


def test_a_budget_of_nothing() -> None:
    with pytest.raises(InputError, match="at least 1, found 0"):
        token_batches([1], 0)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT of width 16 with random weights, letter by letter, at most 64 tokens."""
    pytest.importorskip("sentence_transformers")
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("bert")
    letters = "abcdefghijklmnopqrstuvwxyz:"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.2,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("default")
def test_packed_vectors_are_the_library_s_own(bert: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    model = SentenceTransformer(
        modules=[Transformer(str(bert)), Pooling(16, "mean")], prompts={"query": "q: "}, device="cpu"
    )
    expected = model.encode(TEXTS, normalize_embeddings=True)
    for budget in (1, 100, 10_000):
        encoder = SentenceTransformerEncoder(model, tokens_per_batch=budget)
        assert encoder.packed
        with pytest.warns(UserWarning, match="^1 of 6 texts is longer than 64 tokens"):
            np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
        counts = encoder.counts
        assert (counts.texts, counts.truncated) == (6, 1)
        assert counts.tokens == sum(
            len(model.tokenizer(text, truncation=True, max_length=64).input_ids) for text in TEXTS
        )
        assert counts.slots >= counts.tokens if budget > 1 else counts.slots == counts.tokens
    queries = model.encode_query(TEXTS[:2], normalize_embeddings=True)
    np.testing.assert_allclose(encode_queries(encoder, TEXTS[:2]), queries, atol=1e-6)
    given = SentenceTransformerEncoder(model, query_prompt="a: ", passage_prompt="b: ")
    for vectors, prompt in ((given.encode_queries(TEXTS[:2]), "a: "), (given.encode(TEXTS[:2]), "b: ")):
        theirs = model.encode(TEXTS[:2], prompt=prompt, normalize_embeddings=True)
        np.testing.assert_allclose(vectors, theirs, atol=1e-6)
    described = given.describe()
    assert (described["query_prompt"], described["width"], given.dim) == ("a: ", 16, 16)
    assert given.encode([]).shape == (0, 16)
    model[1].include_prompt = False  # then the prompt is left out of the mean, by the library
    theirs = model.encode(TEXTS[:2], prompt="b: ", normalize_embeddings=True)
    np.testing.assert_allclose(given.encode(TEXTS[:2]), theirs, atol=1e-6)


@pytest.mark.filterwarnings("default")
def test_what_is_fed_otherwise_goes_through_the_library(bert: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from transformers import AutoTokenizer

    tokens = StaticEmbedding(AutoTokenizer.from_pretrained(bert), embedding_dim=8)
    model = SentenceTransformer(modules=[tokens], device="cpu")
    encoder = SentenceTransformerEncoder(model, batch_size=2)
    assert not encoder.packed
    np.testing.assert_allclose(encoder.encode(TEXTS), model.encode(TEXTS, normalize_embeddings=True), atol=1e-6)
    assert encoder.counts == EncodeCounts(texts=6)
    assert encoder.dim == 8
    with pytest.raises(InputError, match="tokens_per_batch must be at least 1"):
        SentenceTransformerEncoder(model, tokens_per_batch=0)
